"""PostgreSQL: the truth about jobs."""

from filaviva.database.engine import as_dict, connect, redacted
from filaviva.database.migrate import migrate, newest_revision, present_revision

__all__ = ["as_dict", "connect", "migrate", "newest_revision", "present_revision", "redacted"]
