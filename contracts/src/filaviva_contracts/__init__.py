"""Message contracts and the envelope."""
