"""The jobs that the benchmarks submit."""

import json
from uuid import uuid4

from filaviva.canonical import fingerprint
from filaviva.operations.submission import Submission
from fixtures.submissions import submission as plain


def submission(kind: str, n: int) -> Submission:
    """One job of the benchmark's app."""
    return plain(
        idempotency_key=uuid4().hex,
        fingerprint=fingerprint({"n": n}),
        type=f"bench.{kind}",
        queue=f"bench-{kind}",
        payload=json.dumps({"n": n}),
        submitted_by="bench",
        correlation_id=uuid4().hex,
    )
