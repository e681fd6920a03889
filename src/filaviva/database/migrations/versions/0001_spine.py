"""The spine: jobs and their journey."""

import re
from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table of the journey, statement by statement (the driver prepares each)."""
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    for statement in re.split(r";\n(?=\n|CREATE|--)", script):
        if statement.strip():
            op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    """Refuse: a database that holds jobs is restored from a backup, not taken back."""
    message = "0001 cannot be taken back; restore a backup instead"
    raise NotImplementedError(message)
