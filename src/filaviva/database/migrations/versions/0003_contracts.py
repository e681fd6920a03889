"""Contracts that change, and what people who wait had missed: one script per duty."""

import re
from pathlib import Path

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

DUTIES = ("turns", "callbacks", "versions", "samples", "schedules", "contents", "retries")


def upgrade() -> None:
    """Widen what is there, statement by statement (the driver prepares each)."""
    for duty in DUTIES:
        script = Path(__file__).with_name(f"0003_{duty}.sql").read_text(encoding="utf-8")
        for statement in re.split(r";\n(?=\n|CREATE|ALTER|DROP|--|\Z)", script):
            if _says_something(statement):
                op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    """Refuse: a database that holds jobs is restored from a backup, not taken back."""
    message = "0003 cannot be taken back; restore a backup instead"
    raise NotImplementedError(message)


def _says_something(statement: str) -> bool:
    lines = (line.strip() for line in statement.splitlines())
    return any(line and not line.startswith("--") for line in lines)
