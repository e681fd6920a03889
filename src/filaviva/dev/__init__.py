"""The stack on one machine without containers: real servers and services as our own children."""

from filaviva.dev.broker import EmbeddedBroker
from filaviva.dev.postgres import EmbeddedPostgres

__all__ = ["EmbeddedBroker", "EmbeddedPostgres"]
