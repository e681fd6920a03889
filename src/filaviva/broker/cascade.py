"""The delay cascade: any pause as a sum of powers of two, each waited out in a queue of its own.

RabbitMQ expires only the head of a queue, so every length of wait needs its own queue. A pause in
ticks is written in binary, most significant bit first, as the head of the routing key; the level of
each 1 holds the message for its time, the levels of the 0s let it pass.
"""

from math import ceil

TICK_SECONDS = 0.1
LEVELS = 28
HORIZON_TICKS = (1 << LEVELS) - 1


def ticks(pause_seconds: float) -> int:
    """Round a pause up to whole ticks, at most the horizon."""
    # Rounded first, because 1.1 s must be 11 ticks and 1.1 / 0.1 is a little more than 11.
    wanted = ceil(round(pause_seconds / TICK_SECONDS, 6))
    return max(0, min(wanted, HORIZON_TICKS))


def entry_level(pause_ticks: int) -> int:
    """Tell at which level a pause of at least one tick enters the cascade."""
    return pause_ticks.bit_length() - 1


def routing_key(pause_ticks: int, destination: str) -> str:
    """Write the pause and its destination as one routing key."""
    return ".".join([*f"{pause_ticks:0{LEVELS}b}", destination])


def held_at(level: int) -> str:
    """The binding of the messages that wait at this level."""
    return _bit(level, "1")


def passing(level: int) -> str:
    """The binding of the messages that pass this level without a wait."""
    return _bit(level, "0")


def ttl_milliseconds(level: int) -> int:
    """How long a message waits at this level."""
    return 100 << level


def _bit(level: int, bit: str) -> str:
    return "*." * (LEVELS - 1 - level) + f"{bit}.#"
