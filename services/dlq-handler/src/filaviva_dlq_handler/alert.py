"""What an alert says: cause, price, ids and the next step; never a payload, never a secret."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

LONGEST = 8_000
_HEADER = 150  # Slack refuses longer ones
_SECTION = 3_000
_CODE = 600
_TOP = 5

_WHY = {
    "terminal": "the failure is one that repeating cannot help",
    "attempts_exhausted": "all attempts are used up",
    "undecodable": "nobody can read the bytes",
    "unknown_type": "no contract has this type",
    "unsupported_version": "no running worker reads this version (it waits for a deploy)",
    "unroutable": "no queue is bound for it",
    "oversize": "the message is too large",
    "expired": "the deadline passed",
    "delivery_limit": "it seems to take its workers down",
    "id_reused": "its message id was used for another message",
    "result_too_large": "the result is over the limit",
    "forbidden": "it is not allowed",
}
_WAITING = frozenset({"unsupported_version"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One dead letter of the group, the newest first."""

    letter_id: str
    job_id: str | None
    tenant: str | None
    version: int | None
    attempts: int
    worker: str | None
    correlation_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failure group as it is told."""

    group_id: str
    fingerprint: str
    type: str | None
    reason: str
    error_class: str | None
    error_code: str | None
    message: str
    frames: tuple[str, ...]
    episode: int
    state: str
    count: int
    cost_usd: Decimal
    seconds: float
    first_seen_at: datetime
    last_seen_at: datetime
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True, slots=True)
class Alert:
    """A message as Slack takes it; `text` is what a notification or a screen reader shows."""

    text: str
    blocks: tuple[dict[str, Any], ...]

    @property
    def payload(self) -> dict[str, Any]:
        """Give the body of the request."""
        return {"text": self.text, "blocks": list(self.blocks)}

    @property
    def plain(self) -> str:
        """Give all of its words, for who reads it elsewhere."""
        return "\n".join(line for block in self.blocks for line in _words(block))


def escape(text: str) -> str:
    """Take the meaning out of Slack's control characters: a foreign text must not mention all."""
    text = text.replace("`", "'")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def failure_alert(failure: Failure, *, environment: str, console_url: str | None = None) -> Alert:
    """Tell of one group."""
    what = f"{failure.type or 'unknown type'} - {failure.error_code or failure.reason}"
    headline = f"{_state(failure)}: {what} ({environment})"
    why = _WHY.get(failure.reason, failure.reason)
    code = failure.message[:_CODE]
    blocks = [
        _header(headline),
        _section(f"*Why it is here:* {escape(failure.reason)}: {why}\n```{escape(code)}```"),
        {"type": "section", "fields": [_field(*pair) for pair in _facts(failure)]},
        *_frames(failure),
        _context(_ids(failure)),
        _section(_next_step(failure, console_url)),
    ]
    first = failure.message.splitlines()[0] if failure.message else why
    return _fitting(escape(f"{headline}: {first}"[:_CODE]), blocks)


def digest_alert(
    failures: Sequence[Failure], *, environment: str, console_url: str | None = None
) -> Alert:
    """Tell of many groups at once: the largest by name, the others by number."""
    headline = f"{len(failures)} new failures ({environment})"
    largest = sorted(failures, key=lambda one: (-one.count, one.fingerprint))[:_TOP]
    lines = [
        f"*{escape(one.type or 'unknown type')}* - {escape(one.error_code or one.reason)}"
        f" x{one.count}, {_money(one.cost_usd)} USD: {escape(one.message[:200])}"
        for one in largest
    ]
    rest = len(failures) - len(largest)
    more = f"\nand {rest} more groups" if rest else ""
    link = f"\n<{console_url}|Open the console>" if console_url else ""
    blocks = [
        _header(headline),
        _section("\n".join(lines) + more),
        _section(f"*Next step:* `filaviva dlq groups` shows all of them{link}"),
    ]
    return _fitting(escape(f"{headline}: {largest[0].message if largest else ''}"[:_CODE]), blocks)


def test_alert(tester: str, *, environment: str) -> Alert:
    """Tell that nothing has failed, and who wants to know whether alerts arrive."""
    headline = f"TEST, nothing has failed ({environment})"
    asked = f"{escape(tester)} asked with `filaviva doctor` whether alerts of dead letters arrive"
    blocks = [
        _header(headline),
        _section(f"{asked}. You read this: they do."),
        _section("*Next step:* none; tell who asked that you have seen it"),
    ]
    return _fitting(f"{escape(headline)}: do alerts arrive?", blocks)


def _state(failure: Failure) -> str:
    word = "Waiting for a deploy" if failure.reason in _WAITING else "New failure"
    if failure.episode > 1:
        word = f"Failing again (episode {failure.episode})"
    return f"{word}, resolved since" if failure.state == "resolved" else word


def _facts(failure: Failure) -> list[tuple[str, str]]:
    newest = failure.samples[0] if failure.samples else None
    tenants = sorted({one.tenant for one in failure.samples if one.tenant})
    return [
        ("Letters", str(failure.count)),
        ("Error class", failure.error_class or "none"),
        ("First seen", _time(failure.first_seen_at)),
        ("Last seen", _time(failure.last_seen_at)),
        ("Attempts", str(newest.attempts) if newest else "0"),
        ("Time spent", f"{failure.seconds:.1f} s"),
        ("Spent", f"{_money(failure.cost_usd)} USD"),
        ("Tenant", escape(", ".join(tenants) or "none")),
        ("Version", str(newest.version) if newest and newest.version else "none"),
        ("Worker", escape((newest.worker if newest else None) or "none")),
    ]


def _frames(failure: Failure) -> list[dict[str, Any]]:
    if not failure.frames:
        return []
    lines = "\n".join(frame[:200] for frame in failure.frames[-_TOP:])
    return [_section(f"```{escape(lines)}```")]


def _ids(failure: Failure) -> str:
    samples = failure.samples[:3]
    jobs = ", ".join(one.job_id for one in samples if one.job_id) or "none"
    letters = ", ".join(one.letter_id for one in samples)
    correlation = next((one.correlation_id for one in samples if one.correlation_id), "none")
    return (
        f"group {failure.group_id} · fingerprint {failure.fingerprint} · letters {letters}"
        f" · jobs {jobs} · correlation {escape(correlation[:200])}"
    )


def _next_step(failure: Failure, console_url: str | None) -> str:
    shown = failure.samples[0].letter_id if failure.samples else failure.group_id
    lines = [
        f"*Next step:* look at one: `filaviva dlq show {shown}`",
        "send one back, then all:",
        f'`filaviva dlq replay {shown} --reason "…"`',
        f'`filaviva dlq replay --group {failure.group_id} --canary 1 --reason "…"`',
    ]
    if failure.reason in _WAITING:
        lines[1:] = ["deploy a worker that reads this version: the jobs then go on by themselves"]
    if console_url:
        lines.append(f"<{console_url.rstrip('/')}/failures/{failure.group_id}|Open the group>")
    return "\n".join(lines)


def _header(text: str) -> dict[str, Any]:
    return {"type": "header", "text": {"type": "plain_text", "text": text[:_HEADER]}}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:_SECTION]}}


def _field(name: str, value: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": f"*{name}*\n{value[:200]}"}


def _context(text: str) -> dict[str, Any]:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text[:_SECTION]}]}


def _time(at: datetime) -> str:
    fallback = at.strftime("%Y-%m-%d %H:%M:%SZ")
    return f"<!date^{int(at.timestamp())}^{{date_short_pretty}} {{time_secs}}|{fallback}>"


def _money(amount: Decimal) -> str:
    return f"{amount:.6f}".rstrip("0").rstrip(".") or "0"


def _fitting(text: str, blocks: list[dict[str, Any]]) -> Alert:
    # The whole message fails at about 13,000 characters although no single limit is hit.
    while len(text) + sum(len(line) for block in blocks for line in _words(block)) > LONGEST:
        blocks = blocks[:-2] + blocks[-1:]
    return Alert(text, tuple(blocks))


def _words(block: dict[str, Any]) -> list[str]:
    inner = [block["text"]] if "text" in block else []
    inner += block.get("fields", []) + block.get("elements", [])
    return [part["text"] for part in inner]
