"""Why a queued job does not run yet, in words."""

from typing import Final

from filaviva.operations.jobs import Job

_WORDS: Final = {
    "en": {
        "worker": "a free worker",
        "time": "its time",
        "turn": "its turn: other jobs of its queue come first",
        "limit": "a place: as many jobs of its tenant or subject run as may",
        "concurrency": "other items of its batch to end",
        "unsupported_version": "a worker that reads its version",
        "queue_missing": "its queue on the broker",
    },
    "pt": {
        "worker": "um worker livre",
        "time": "a sua hora",
        "turn": "a sua vez: outros jobs da fila vêm antes",
        "limit": "uma vaga: já rodam tantos jobs do tenant ou do usuário quantos podem",
        "concurrency": "o fim de outros itens do lote",
        "unsupported_version": "um worker que leia a sua versão",
        "queue_missing": "a sua fila no broker",
    },
}


def waiting_for(job: Job, language: str = "en") -> str | None:
    """Say what a queued job waits for; None if it does not wait, or is a batch."""
    if job.state != "queued" or job.is_batch:
        return None
    words = _WORDS[language]
    if job.parked_reason is not None:
        return words.get(job.parked_reason, job.parked_reason)
    if job.in_line:
        return words["turn"]
    return words["time" if job.early else "worker"]
