"""Filaviva's producer service."""
