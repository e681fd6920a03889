"""Which model provider is called: a real one if the environment names it, else the sandbox."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MODEL = "gpt-4o-mini"
# Written by `python -m invoices.sandbox --state .filaviva/sandbox.json`.
SANDBOX_STATE = Path(".filaviva/sandbox.json")


class NoProvider(RuntimeError):
    """Nothing to call: the message says what to set or start."""


@dataclass(frozen=True, slots=True)
class Provider:
    """Where the model is, which one, and for how long we wait for its answer (seconds)."""

    base_url: str
    api_key: str
    model: str = MODEL
    timeout: float = 60.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Provider":
        """Read OPENAI_BASE_URL, OPENAI_API_KEY, INVOICES_MODEL and INVOICES_MODEL_TIMEOUT."""
        base_url, api_key = _address(environment)
        return cls(
            base_url=base_url,
            api_key=api_key,
            model=environment.get("INVOICES_MODEL", MODEL),
            timeout=_seconds(environment.get("INVOICES_MODEL_TIMEOUT", "60")),
        )


def _address(environment: Mapping[str, str]) -> tuple[str, str]:
    base_url, api_key = environment.get("OPENAI_BASE_URL"), environment.get("OPENAI_API_KEY")
    if base_url or api_key:
        return base_url or "https://api.openai.com/v1", api_key or "not-needed"
    return _sandbox(Path(environment.get("INVOICES_SANDBOX_STATE", SANDBOX_STATE))), "sandbox"


def _sandbox(state: Path) -> str:
    try:
        return f"{json.loads(state.read_text())['url']}/v1"
    except FileNotFoundError:
        raise NoProvider(
            f"OPENAI_API_KEY is not set and no sandbox is announced in {state}; set the key, "
            f"or start one: python -m invoices.sandbox --state {state}"
        ) from None


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise NoProvider(
            f"INVOICES_MODEL_TIMEOUT is {text!r}; expected a number of seconds"
        ) from None
