"""The jobs that the benchmarks submit."""

import json
from uuid import uuid4

from filaviva.canonical import fingerprint
from filaviva.operations.submission import Submission


def submission(kind: str, n: int) -> Submission:
    """One job of the benchmark's app."""
    return Submission(
        tenant="default",
        idempotency_key=uuid4().hex,
        fingerprint=fingerprint({"n": n}),
        type=f"bench.{kind}",
        version=1,
        queue=f"bench-{kind}",
        payload=json.dumps({"n": n}),
        max_attempts=5,
        priority=4,
        not_before=None,
        deadline=None,
        labels="{}",
        subject=None,
        submitted_by="bench",
        correlation_id=uuid4().hex,
        traceparent=None,
    )
