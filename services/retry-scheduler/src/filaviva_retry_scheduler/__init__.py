"""Filaviva's retry-scheduler service."""
