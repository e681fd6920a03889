"""Contracts that change, and what people who wait had missed: one script per duty."""

from pathlib import Path

from filaviva.database.migrations import scripts

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

DUTIES = ("turns", "callbacks", "versions", "samples", "schedules", "contents", "retries")


def upgrade() -> None:
    """Widen what is there."""
    for duty in DUTIES:
        scripts.run(Path(__file__).with_name(f"0003_{duty}.sql"))


def downgrade() -> None:
    """Refuse it."""
    scripts.refuse(revision)
