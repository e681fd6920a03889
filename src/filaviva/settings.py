"""Settings: read once in `main`, from FILAVIVA_ variables, and handed down."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    field_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from filaviva.errors import ConfigurationError

QueueName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
Port = Annotated[int, Field(ge=0, le=65535)]


class Group(BaseModel):
    """One group of settings: unknown names are refused, so that a typo does not pass in silence."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BrokerSettings(Group):
    url: SecretStr = Field(description="amqp://user:password@host:5672/vhost")
    management_url: SecretStr | None = Field(
        default=None, description="http://user:password@host:15672, for doctor and topology verify"
    )
    confirm_timeout_seconds: float = Field(
        default=10, gt=0, le=120, description="how long a publish may wait for its confirm"
    )


class PostgresSettings(Group):
    url: SecretStr = Field(description="postgresql://user:password@host:5432/database")
    pool_size: int = Field(default=10, ge=2, le=200, description="connections per process")


class HttpSettings(Group):
    host: str = Field(default="127.0.0.1", description="the address to listen on")
    port: Port = Field(default=0, description="0: producer 8080, dlq-handler 8081")
    max_body_bytes: int = Field(
        default=16 * 1024 * 1024, gt=0, description="a longer request gets 413"
    )
    max_data_bytes: int = Field(
        default=256 * 1024, gt=0, description="a job with more data gets 413"
    )


class MetricsSettings(Group):
    host: str = Field(default="127.0.0.1", description="where /metrics and /readyz listen")
    port: Port = Field(
        default=0,
        description="0: producer 9101, worker 9102, retry-scheduler 9103, dlq-handler 9104",
    )


class WorkerGroup(Group):
    queues: Annotated[tuple[QueueName, ...], NoDecode] = Field(
        default=(), description="comma-separated; empty: every queue of the app"
    )
    concurrency: int = Field(
        default=100, ge=1, le=10_000, description="jobs at once in this process"
    )
    lease_seconds: float = Field(
        default=15, ge=1, le=3600, description="how long a silent worker keeps its jobs"
    )
    detach_after_seconds: float = Field(
        default=600,
        gt=0,
        description="a longer job lets go of its message; below the broker's consumer timeout",
    )
    grace_seconds: float = Field(
        default=30, ge=0, description="how long running jobs may go on after SIGTERM"
    )
    max_result_bytes: int = Field(
        default=1024 * 1024, gt=0, description="a longer result is not kept: the job fails"
    )

    @field_validator("queues", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(filter(None, (name.strip() for name in value.split(","))))
        return value


class ProducerGroup(Group):
    max_pending: int = Field(
        default=100_000,
        gt=0,
        description="new jobs are refused while so many messages wait for the broker",
    )


class SlackSettings(Group):
    webhook_url: SecretStr | None = Field(
        default=None, description="an incoming webhook; without one alerts stay in the database"
    )
    bot_token: SecretStr | None = Field(default=None, description="reserved")
    signing_secret: SecretStr | None = Field(default=None, description="reserved")
    channel: str = Field(default="#filaviva", description="reserved")
    api_url: str = Field(default="https://slack.com/api/", description="reserved")


class Settings(BaseSettings):
    """Every setting of every service; each service reads the groups it needs."""

    model_config = SettingsConfigDict(
        env_prefix="FILAVIVA_", env_nested_delimiter="__", frozen=True, extra="ignore"
    )

    app: str | None = Field(default=None, description="package.module:attribute of your App")
    environment: str = Field(default="development", description="shown in alerts")
    console_url: str | None = Field(default=None, description="where alerts link to")
    broker: BrokerSettings
    postgres: PostgresSettings
    http: HttpSettings = HttpSettings()
    metrics: MetricsSettings = MetricsSettings()
    producer: ProducerGroup = ProducerGroup()
    worker: WorkerGroup = WorkerGroup()
    slack: SlackSettings = SlackSettings()


S = TypeVar("S", bound=BaseSettings)


def read(model: type[S], environment: Mapping[str, str] | None = None) -> S:
    """Read settings; a wrong one ends the start with its name, what was found, what is expected."""
    _read_secret_files(os.environ if environment is None else dict(environment))
    try:
        return model()
    except ValidationError as invalid:
        raise ConfigurationError(_explain(model, invalid)) from None


def _read_secret_files(environment: Mapping[str, str]) -> None:
    for name, path in list(environment.items()):
        if name.startswith("FILAVIVA_") and name.endswith("_FILE"):
            try:
                value = Path(path).read_text(encoding="utf-8").strip()
            except OSError as unreadable:
                message = (
                    f"{name}: found {path!r}, expected a readable file ({unreadable.strerror})"
                )
                raise ConfigurationError(message) from unreadable
            os.environ.setdefault(name.removesuffix("_FILE"), value)


def _explain(model: type[BaseSettings], invalid: ValidationError) -> str:
    prefix = model.model_config.get("env_prefix", "")
    lines = []
    for error in invalid.errors(include_url=False):
        for place in _places(model, error["loc"]):
            name = prefix + "__".join(str(part).upper() for part in place)
            secret = any(word in name for word in ("URL", "TOKEN", "SECRET", "PASSWORD"))
            found = "nothing" if error["type"] == "missing" else repr(error["input"])
            if secret and error["type"] != "missing":
                found = "a value"
            lines.append(f"{name}: found {found}, expected: {error['msg'].lower()}")
    return "\n".join(lines)


def _places(model: type[BaseSettings], place: tuple[int | str, ...]) -> list[tuple[int | str, ...]]:
    """Name the variables themselves where a whole group is missing."""
    field = model.model_fields.get(str(place[0])) if len(place) == 1 else None
    group = None if field is None else field.annotation
    if not (isinstance(group, type) and issubclass(group, Group)):
        return [place]
    return [(*place, name) for name, inner in group.model_fields.items() if inner.is_required()]
