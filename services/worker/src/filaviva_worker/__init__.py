"""Filaviva's worker service."""
