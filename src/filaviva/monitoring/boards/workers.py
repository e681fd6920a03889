"""Workers and capacity: who saturates, and who is gone."""

from typing import Final

from filaviva.monitoring.panels import (
    ANY,
    Board,
    Panel,
    Query,
    Row,
    Sql,
    bad_from,
    figure,
    increase,
    quantile,
    rate,
)

_SLOTS = "sum(filaviva_worker_slots)"
_BUSY = 'sum(filaviva_worker_slots{state="busy"})'
_ALIVE: Final = """\
SELECT id, app, queues, busy, slots, started_at, last_seen_at
FROM filaviva.workers
WHERE stopped_at IS NULL AND last_seen_at > now() - interval '1 hour'
ORDER BY last_seen_at DESC LIMIT 200"""

_ROOM: Final = (
    Panel(
        title="Slots",
        text="How many jobs can run at once, and how many do.",
        unit="short",
        stacked=True,
        ask=[Query("sum by (state)(filaviva_worker_slots)", "{{state}}")],
        see="FilavivaQueueOld",
    ),
    Panel(
        title="Utilisation",
        text="Share of the slots that are busy. Near 100 % jobs begin to wait.",
        unit="percentunit",
        ask=[Query(f"{_BUSY} / ({_SLOTS} > 0) or vector(0)", "busy")],
        steps=bad_from(0.8, 0.95),
        see="FilavivaQueueOld",
    ),
    Panel(
        title="Saturation: wait for a worker",
        text="95 % of the jobs waited less.",
        unit="s",
        ask=[Query(quantile(0.95, "filaviva_job_queue_wait_seconds"), "95 %")],
        steps=bad_from(30, 60),
        see="FilavivaQueueOld",
    ),
    Panel(
        title="Workers",
        text="Processes by whether their heartbeat is heard. `silent`: killed, or cut off.",
        unit="short",
        ask=[Query(figure("filaviva_workers", "state"), "{{state}}")],
        see="FilavivaWorkerSilent",
    ),
    Panel(
        title="Waiting for a turn",
        text="Jobs of a flood that wait their turn in PostgreSQL, by priority.",
        unit="short",
        stacked=True,
        ask=[
            Query(figure("filaviva_turns_waiting", "priority"), "{{priority}}"),
            Query(figure("filaviva_turns_upcoming"), "later"),
        ],
        see="FilavivaTurnsNotGiven",
    ),
    Panel(
        title="Turns given",
        text="By priority.",
        unit="ops",
        stacked=True,
        ask=[Query(rate("filaviva_turns_given_total", "priority"), "{{priority}}")],
        see="FilavivaTurnsNotGiven",
    ),
)

_HEALTH: Final = (
    Panel(
        title="Event loop lag",
        text="How late the event loop of each process was, at worst in half a minute. A handler "
        "that blocks shows here.",
        unit="s",
        ask=[
            Query("max by (job, instance)(filaviva_event_loop_lag_seconds)", "{{job}} {{instance}}")
        ],
        steps=bad_from(0.2, 1),
        see="FilavivaEventLoopBlocked",
    ),
    Panel(
        title="CPU",
        text="Cores in use, by process.",
        unit="cores",
        ask=[
            Query(
                'sum by (job, instance)(rate(process_cpu_seconds_total{app="filaviva"}'
                "[$__rate_interval]))",
                "{{job}} {{instance}}",
            )
        ],
        steps=bad_from(0.7, 0.95),
        see="FilavivaEventLoopBlocked",
    ),
    Panel(
        title="Memory",
        text="Resident memory, by process.",
        unit="bytes",
        ask=[
            Query(
                'sum by (job, instance)(process_resident_memory_bytes{app="filaviva"})',
                "{{job}} {{instance}}",
            )
        ],
        steps=bad_from(1 << 30, 2 << 30),
        see="FilavivaLeasesExpiring",
    ),
    Panel(
        title="Leases",
        text="`expired`: a worker stopped answering while it worked. `void`: an outcome came after "
        "its lease and does not count.",
        unit="short",
        ask=[
            Query(increase("filaviva_leases_expired_total"), "expired"),
            Query(increase("filaviva_lease_lost_total"), "void"),
        ],
        steps=ANY,
        see="FilavivaLeasesExpiring",
    ),
    Panel(
        title="Consumers built again",
        text="By cause. `deaf`: messages were ready and nothing was delivered.",
        unit="short",
        ask=[Query(increase("filaviva_consumer_rebuilt_total", "job, cause"), "{{job}} {{cause}}")],
        steps=ANY,
        see="FilavivaConsumerDeaf",
    ),
    Panel(
        title="Handlers that do not stop",
        text="They were told to stop, go on, and have lost their slot.",
        unit="short",
        ask=[
            Query(
                f"{increase('filaviva_handlers_abandoned_total', 'type, cause')}",
                "{{type}} {{cause}}",
            )
        ],
        steps=ANY,
        see="FilavivaHandlersAbandoned",
    ),
    Panel(
        title="Streams",
        text="Open streams of server-sent events, by process.",
        unit="short",
        ask=[Query('sum by (instance)(filaviva_sse_clients{job="producer"})', "{{instance}}")],
        steps=bad_from(500, 1000),
        see="FilavivaServiceDown",
    ),
    Panel(
        title="Processes",
        text="1: its metrics port answers.",
        unit="short",
        ask=[Query('sum by (job)(up{app="filaviva"})', "{{job}}")],
        see="FilavivaServiceDown",
    ),
    Panel(
        title="Releases",
        text="How many processes run which release: two at once only during a deploy.",
        unit="short",
        ask=[
            Query("count by (version, revision)(filaviva_build_info)", "{{version}} {{revision}}")
        ],
        see="FilavivaServiceDown",
    ),
    Panel(
        title="Workers, as PostgreSQL knows them",
        text="Who works on what, and when it was heard of last.",
        unit="short",
        kind="table",
        width=24,
        height=8,
        ask=[Sql(_ALIVE)],
        see="FilavivaWorkerSilent",
    ),
)

BOARD: Final = Board(
    uid="filaviva-workers",
    title="Workers and capacity",
    text="Who saturates: slots, waiting, event loops, memory; which workers are gone.",
    rows=(Row("Capacity", _ROOM), Row("Processes", _HEALTH)),
)
