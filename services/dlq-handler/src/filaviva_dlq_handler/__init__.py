"""Filaviva's dlq-handler service."""
