"""Outbox, inbox, broker: whether messages move, and how PostgreSQL keeps up."""

from typing import Final

from filaviva.monitoring.panels import (
    ANY,
    Board,
    Panel,
    Query,
    Row,
    age,
    bad_from,
    figure,
    increase,
    quantile,
    rate,
)

_OURS: Final = 'job="retry-scheduler"'
_QUEUES: Final = 'queue=~"filaviva\\\\..*",queue!~"filaviva\\\\.delay\\\\..*"'

_OUT: Final = (
    Panel(
        title="Outbox",
        text="Messages not yet confirmed by the broker. `parked`: the broker refuses them; they "
        "are tried each minute.",
        unit="short",
        ask=[
            Query(figure("filaviva_outbox_pending", where=_OURS), "pending"),
            Query(figure("filaviva_outbox_parked"), "parked"),
        ],
        steps=bad_from(1000, 10_000),
        see="FilavivaOutboxStuck",
    ),
    Panel(
        title="Oldest in the outbox",
        text="How long the oldest message waits that is not parked.",
        unit="s",
        ask=[Query(age("filaviva_outbox_oldest_timestamp_seconds", where=_OURS), "oldest")],
        steps=bad_from(10, 60),
        see="FilavivaOutboxStuck",
    ),
    Panel(
        title="Publish to confirm",
        text="99 % of the batches were confirmed within this time, by what publishes.",
        unit="s",
        ask=[
            Query(
                quantile(0.99, "filaviva_publish_confirm_seconds", "job", 'outcome="confirmed"'),
                "{{job}}",
            )
        ],
        steps=bad_from(0.5, 5),
        see="FilavivaOutboxStuck",
    ),
    Panel(
        title="Batches by outcome",
        text="`unroutable`: no queue is bound. `unknown`: no confirm came in time, so it is sent "
        "again.",
        unit="ops",
        stacked=True,
        ask=[Query(rate("filaviva_publish_confirm_seconds_count", "outcome"), "{{outcome}}")],
        see="FilavivaPublishUnroutable",
    ),
    Panel(
        title="Inbox: without effect",
        text="Messages that came twice, too early or too late, by who received them.",
        unit="short",
        stacked=True,
        ask=[
            Query(
                increase("filaviva_duplicates_suppressed_total", "consumer, cause"),
                "{{consumer}} {{cause}}",
            )
        ],
        steps=bad_from(100, 1000),
        see="FilavivaDuplicatesRising",
    ),
    Panel(
        title="Rows removed",
        text="What retention removed because nothing has to be kept longer.",
        unit="short",
        stacked=True,
        ask=[Query(increase("filaviva_rows_removed_total", "what"), "{{what}}")],
        see="FilavivaTableBloated",
    ),
)

_BROKER: Final = (
    Panel(
        title="Ready messages",
        text="What waits on our queues at the broker, without the cascade.",
        unit="short",
        stacked=True,
        ask=[
            Query(
                f"sum by (queue)(rabbitmq_detailed_queue_messages_ready{{{_QUEUES}}})", "{{queue}}"
            )
        ],
        steps=bad_from(10_000, 100_000),
        see="FilavivaQueueOld",
    ),
    Panel(
        title="Held by consumers",
        text="Delivered, not yet acknowledged.",
        unit="short",
        stacked=True,
        ask=[
            Query(
                f"sum by (queue)(rabbitmq_detailed_queue_messages_unacked{{{_QUEUES}}})",
                "{{queue}}",
            )
        ],
        see="FilavivaConsumerDeaf",
    ),
    Panel(
        title="Consumers",
        text="0 where something should be read is an alert.",
        unit="short",
        ask=[Query(f"sum by (queue)(rabbitmq_detailed_queue_consumers{{{_QUEUES}}})", "{{queue}}")],
        see="FilavivaQueueWithoutConsumer",
    ),
    Panel(
        title="Dead-lettered by the broker",
        text="By why. `expired` is the cascade at work; `delivery_limit` is a message that its "
        "consumers did not survive.",
        unit="ops",
        ask=[
            Query(
                "sum(rate(rabbitmq_global_messages_dead_lettered_expired_total[$__rate_interval]))",
                "expired",
            ),
            Query(
                "sum(rate(rabbitmq_global_messages_dead_lettered_delivery_limit_total[$__rate_interval]))",
                "delivery limit",
            ),
            Query(
                "sum(rate(rabbitmq_global_messages_dead_lettered_rejected_total[$__rate_interval]))",
                "rejected",
            ),
        ],
        see="FilavivaDeadLettersMany",
    ),
    Panel(
        title="Memory and disk alarms",
        text="1: the broker takes nothing more.",
        unit="short",
        ask=[
            Query("max(rabbitmq_alarms_memory_used_watermark)", "memory"),
            Query("max(rabbitmq_alarms_free_disk_space_watermark)", "disk"),
        ],
        steps=ANY,
        see="FilavivaBrokerAlarm",
    ),
    Panel(
        title="Broker's memory",
        text="What RabbitMQ uses. More about it: RabbitMQ's own dashboards, linked above.",
        unit="bytes",
        ask=[
            Query("sum by (instance)(rabbitmq_process_resident_memory_bytes)", "{{instance}}"),
        ],
        see="FilavivaBrokerAlarm",
    ),
)

_POSTGRES: Final = (
    Panel(
        title="Dead rows",
        text="Rows that vacuum has not taken away, by table.",
        unit="short",
        ask=[Query(figure("filaviva_table_rows", "table", 'state="dead"'), "{{table}}")],
        steps=bad_from(100_000, 1_000_000),
        see="FilavivaTableBloated",
    ),
    Panel(
        title="Size of tables",
        text="With their indexes.",
        unit="bytes",
        stacked=True,
        ask=[Query(figure("filaviva_table_bytes", "table"), "{{table}}")],
        see="FilavivaTableBloated",
    ),
    Panel(
        title="Connections",
        text="To our database, of everybody.",
        unit="short",
        stacked=True,
        width=4,
        ask=[Query(figure("filaviva_database_connections", "state"), "{{state}}")],
        see="FilavivaTransactionOld",
    ),
    Panel(
        title="Oldest transaction",
        text="Nothing that is newer can be vacuumed.",
        unit="s",
        width=4,
        ask=[Query(age("filaviva_database_transaction_oldest_timestamp_seconds"), "oldest")],
        steps=bad_from(60, 900),
        see="FilavivaTransactionOld",
    ),
    Panel(
        title="Age of the figures",
        text="One retry-scheduler counts what waits, every few seconds.",
        unit="s",
        width=8,
        ask=[Query("time() - max(filaviva_figures_timestamp_seconds)", "age")],
        steps=bad_from(30, 120),
        see="FilavivaSchedulerStalled",
    ),
    Panel(
        title="Turns: the first in line",
        text="How long the first in line waits, by priority.",
        unit="s",
        width=16,
        ask=[Query(age("filaviva_turns_oldest_timestamp_seconds", "priority"), "{{priority}}")],
        steps=bad_from(60, 600),
        see="FilavivaTurnsNotGiven",
    ),
)

BOARD: Final = Board(
    uid="filaviva-messages",
    title="Outbox, inbox, broker",
    text="Whether messages leave, arrive once, and move; how PostgreSQL keeps up.",
    rows=(
        Row("Outbox and inbox", _OUT),
        Row("Broker", _BROKER),
        Row("PostgreSQL", _POSTGRES),
    ),
)
