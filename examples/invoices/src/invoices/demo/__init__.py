"""The demonstration: ten documents, everything that can go wrong, and the facts checked."""
