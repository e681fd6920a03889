"""Logs: JSON for machines, readable lines on a terminal; one line per fact, no payloads."""

import logging
import sys

import structlog


def configure(*, service: str, level: int = logging.INFO) -> None:
    """Send structlog's and everybody else's lines through one pipeline to stderr."""
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    terminal = sys.stderr.isatty()
    final: list[structlog.types.Processor] = (
        [structlog.dev.ConsoleRenderer()]
        if terminal
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *final],
    )
    output = logging.StreamHandler(sys.stderr)
    output.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [output]
    root.setLevel(level)
    # A lost connection is our fact to state, once; the libraries repeat it per channel.
    for noisy in ("aiormq", "aio_pika", "httpx2", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
    structlog.contextvars.bind_contextvars(service=service)
