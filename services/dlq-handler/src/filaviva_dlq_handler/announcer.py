"""What follows a commit: messages to the relay, changes to those who wait, figures."""

from collections.abc import Callable, Collection, Sequence
from uuid import UUID

import structlog

from filaviva.outbox import OutboxRow
from filaviva.telemetry.metrics import Metrics
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
        self._hand_over(filed.messages)
        self._changed(filed.jobs)
        if filed.failed:
            self._hurry()  # who wants to be told of an end has a row that nobody hands over
        for type_, reason in filed.filed:
            self._metrics.dead_letters.labels(self._violations.known(type_), reason).inc()
            log.warning("dead letter", type=type_, reason=reason)
        for violation in filed.violations:
            self._violations.count(*violation)
        for cause in filed.closed:
            self._metrics.duplicates.labels(CONSUMER, cause).inc()
        for type_ in filed.failed:
            self._metrics.jobs_finished.labels(type_, "failed").inc()
        if filed.reissued:
            self._metrics.wakeups_reissued.labels("dead_lettered").inc(filed.reissued)
