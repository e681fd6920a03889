"""A stand-in for a model provider: not a model, and it says so."""
