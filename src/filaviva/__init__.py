"""Filaviva: the living queue."""
