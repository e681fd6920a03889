"""The message that tells the dlq-handler that a job has failed."""

from uuid import UUID

from filaviva.broker.topology import Topology
from filaviva.outbox import NewMessage
from filaviva_contracts.names import wire_type
from filaviva_contracts.wire import JobDead

TYPE = wire_type(JobDead.contract_type, JobDead.contract_version)

_EXCHANGE = Topology().dead


def job_dead(  # noqa: PLR0913 - the fields of one message
    *,
    job_id: UUID,
    epoch: int,
    reason: str,
    queue: str,
    correlation_id: str,
    traceparent: str | None,
    copy: int = 0,
) -> NewMessage:
    """Build the message; a `copy` is another message about the same death."""
    ending = f":{copy}" if copy else ""
    return NewMessage(
        exchange=_EXCHANGE,
        routing_key=queue,
        message_id=f"{job_id}:dead:{epoch}{ending}",
        type=TYPE,
        data=JobDead(job_id=job_id, epoch=epoch, reason=reason).model_dump_json(),
        job_id=job_id,
        epoch=epoch,
        correlation_id=correlation_id,
        traceparent=traceparent,
    )
