"""The spine: jobs and their journey."""

from pathlib import Path

from filaviva.database.migrations import scripts

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table of the journey."""
    scripts.run(Path(__file__).with_suffix(".sql"))


def downgrade() -> None:
    """Refuse it."""
    scripts.refuse(revision)
