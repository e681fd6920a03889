"""`filaviva dev`: the embedded stack."""

from filaviva.dev.command import app

__all__ = ["app"]
