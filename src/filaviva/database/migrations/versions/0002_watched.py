"""Jobs that people watch, split, cancel and repeat: one script per duty."""

from pathlib import Path

from filaviva.database.migrations import scripts

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

DUTIES = (
    "batches",
    "cancel",
    "callbacks",
    "schedules",
    "events",
    "limits",
    "retention",
    "plans",
    "replays",
    "calls",
)


def upgrade() -> None:
    """Widen the spine."""
    for duty in DUTIES:
        scripts.run(Path(__file__).with_name(f"0002_{duty}.sql"))


def downgrade() -> None:
    """Refuse it."""
    scripts.refuse(revision)
