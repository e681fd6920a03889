"""Extract Brazilian fiscal documents with a model."""
