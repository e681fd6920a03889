"""What proves on the running stack that it does what it should."""

from pathlib import Path

from filaviva.database.migrations import scripts

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

DUTIES = ("drills", "processes", "workers", "moves", "counted", "tracestate", "snoozed")


def upgrade() -> None:
    """Widen what is there."""
    for duty in DUTIES:
        scripts.run(Path(__file__).with_name(f"0004_{duty}.sql"))


def downgrade() -> None:
    """Refuse it."""
    scripts.refuse(revision)
