"""Extract Brazilian fiscal documents with a model: a user's package on Filaviva."""
