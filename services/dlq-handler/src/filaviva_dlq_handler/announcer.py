"""What follows a commit: messages to the relay, changes to those who wait, figures."""

from collections.abc import Callable, Collection, Sequence
from uuid import UUID

import structlog

from filaviva import tracing
from filaviva.outbox import OutboxRow
from filaviva.telemetry.metrics import Metrics
from filaviva.tracing.told import Letter
from filaviva.violations import Violations
from filaviva_dlq_handler.filing import Filed
from filaviva_dlq_handler.gate import CONSUMER

log = structlog.get_logger("filaviva")


class Announcer:
    """Tell everybody concerned what was filed; a crash before costs only time."""

    def __init__(
        self,
        metrics: Metrics,
        violations: Violations,
        *,
        hand_over: Callable[[Sequence[OutboxRow]], None],
        changed: Callable[[Collection[UUID]], None],
        hurry: Callable[[], None],
    ) -> None:
        self._metrics = metrics
        self._violations = violations
        self._hand_over = hand_over
        self._changed = changed
        self._hurry = hurry

    def __call__(self, filed: Filed) -> None:
        """Announce one batch; to be called after its commit."""
        for letter in filed.letters:
            _tell(letter)
        self._hand_over(filed.messages)
        self._changed(filed.jobs)
        if filed.failed:
            self._hurry()  # who wants to be told of an end has a row that nobody hands over
        for type_, reason in filed.filed:
            self._metrics.dead_letters.labels(self._violations.known(type_), reason).inc()
        for violation in filed.violations:
            self._violations.count(*violation)
        for cause in filed.closed:
            self._metrics.duplicates.labels(CONSUMER, cause).inc()
        for type_ in filed.failed:
            self._metrics.jobs_finished.labels(type_, "failed").inc()
        if filed.reissued:
            self._metrics.wakeups_reissued.labels("dead_lettered").inc(filed.reissued)


def _tell(letter: Letter) -> None:
    job_id = letter.job_id and str(letter.job_id)
    told = {"job_id": job_id, "attempt": letter.attempt, "error_code": letter.error_code}
    known = {name: value for name, value in told.items() if value is not None}
    log.warning("dead letter", type=letter.type, reason=letter.reason, **known)
    if tracing.spans is not None:
        tracing.spans.filed(letter)
