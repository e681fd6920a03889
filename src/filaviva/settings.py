"""Settings: read once in `main`, from FILAVIVA_ variables, and handed down."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo

from filaviva.errors import ConfigurationError

PREFIX: Final = "FILAVIVA_"
REDELIVERY_DAYS: Final = 7
_BETWEEN: Final = "__"
_FILE: Final = "_FILE"
_SECRET: Final = 32

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

    @field_validator("url")
    @classmethod
    def _scheme(cls, url: SecretStr) -> SecretStr:
        return _with_scheme(url, "amqp", "amqps")


class PostgresSettings(Group):
    url: SecretStr = Field(description="postgresql://user:password@host:5432/database")
    pool_size: int = Field(
        default=10,
        ge=2,
        le=200,
        description="connections per process; in a worker as many more for ctx.transaction()",
    )

    @field_validator("url")
    @classmethod
    def _scheme(cls, url: SecretStr) -> SecretStr:
        return _with_scheme(url, "postgresql", "postgres", "postgresql+asyncpg")


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
        description="0: producer 9101, worker 9102, retry-scheduler 9103, dlq-handler 9104, "
        "relay 9106",
    )


class WorkerGroup(Group):
    queues: tuple[QueueName, ...] = Field(
        default=(), description="comma-separated; empty: every queue of the app"
    )
    concurrency: int = Field(
        default=100, ge=1, le=10_000, description="jobs at once of each queue in this process"
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
    cancel_grace_seconds: float = Field(
        default=0.5, ge=0, le=60, description="how long a canceled job may end what it does now"
    )
    cancel_limit_seconds: float = Field(
        default=30,
        gt=0,
        description="a handler that ignores its cancel for so long is fenced: nothing of it counts",
    )
    max_result_bytes: int = Field(
        default=1024 * 1024, gt=0, description="a longer result is not kept: the job fails"
    )

    @field_validator("queues", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return _names_in(value)


def _names_in(value: object) -> object:
    if isinstance(value, str):
        return tuple(filter(None, (name.strip() for name in value.split(","))))
    return value


class ProducerGroup(Group):
    max_pending: int = Field(
        default=100_000,
        gt=0,
        description="new jobs are refused while so many messages wait for the broker",
    )
    max_streams: int = Field(
        default=5000, gt=0, description="event streams open in this process; more get 503"
    )
    max_streams_per_key: int = Field(
        default=2000, gt=0, description="event streams open here of one API key; more get 429"
    )
    max_streams_per_tenant: int = Field(
        default=4000, gt=0, description="of all keys and links of one tenant; more get 429"
    )


class CallbackSettings(Group):
    secret: SecretStr | None = Field(
        default=None,
        description="each tenant's signing secret is derived from it, 32 characters or more; "
        "without one there are no callbacks",
    )
    previous_secret: SecretStr | None = Field(
        default=None, description="signs too, while receivers change to the new one"
    )
    allow_http: bool = Field(default=False, description="also http:// URLs")
    allow_private: bool = Field(
        default=False, description="also private and loopback addresses: receivers inside, or tests"
    )
    timeout_seconds: float = Field(
        default=15, gt=0, le=30, description="how long a receiver may take to answer"
    )

    @field_validator("secret", "previous_secret")
    @classmethod
    def _long(cls, secret: SecretStr | None) -> SecretStr | None:
        return _long_secret(secret)


class LinksSettings(Group):
    secret: SecretStr | None = Field(
        default=None,
        description="signs the links of status pages, 32 characters or more; without one there are "
        "no links",
    )
    previous_secret: SecretStr | None = Field(
        default=None, description="the one before: what it signed stays valid"
    )
    base_url: str = Field(
        default="", description="how end users reach the producer; empty: links are relative"
    )
    days: int = Field(default=30, ge=1, le=3650, description="how long a link is valid")

    @field_validator("secret", "previous_secret")
    @classmethod
    def _long(cls, secret: SecretStr | None) -> SecretStr | None:
        return _long_secret(secret)

    @field_validator("base_url")
    @classmethod
    def _absolute(cls, url: str) -> str:
        return _web(url)


class DrillSettings(Group):
    provider_url: str = Field(
        default="",
        description="where workers reach the provider that a drill serves and cuts, "
        "such as http://drill:9200; empty: they do no drills",
    )
    api_url: str = Field(default="", description="where a drill reaches the producer")
    prometheus_url: str = Field(default="", description="the Prometheus that a drill asks")
    alertmanager_url: str = Field(default="", description="the Alertmanager that a drill asks")

    @field_validator("provider_url", "api_url", "prometheus_url", "alertmanager_url")
    @classmethod
    def _absolute(cls, url: str) -> str:
        return _web(url).rstrip("/")


class EventSettings(Group):
    tenants: dict[str, tuple[str, ...]] = Field(
        default={},
        description="which tenants the broker's users may name in events, as JSON: "
        '{"billing": ["acme"], "gateway": ["*"]}',
    )

    @field_validator("tenants", mode="before")
    @classmethod
    def _parse(cls, value: object) -> object:
        return _json(value, such_as='{"billing": ["acme"]}')


class ContentsSettings(Group):
    api: str = Field(
        default="",
        description="the producer, where `filaviva run relay` puts what is too large for a message",
    )
    keys: dict[str, SecretStr] = Field(
        default={},
        description="its API keys (`jobs:write`) by tenant, as JSON: "
        '{"default": "fv_…", "acme": "fv_…"}',
    )

    @field_validator("api")
    @classmethod
    def _absolute(cls, url: str) -> str:
        return _web(url).rstrip("/")

    @field_validator("keys", mode="before")
    @classmethod
    def _parse(cls, value: object) -> object:
        return _json(value, such_as='{"default": "fv_…"}')


def _json(value: object, *, such_as: str) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError(f"JSON such as {such_as}") from None


Days = Annotated[float, Field(gt=0, le=36_500)]


class RetentionGroup(Group):
    jobs_days: Days = Field(
        default=90, description="finished jobs, with all that belongs to them; per type: Policy"
    )
    payloads_days: Days | None = Field(default=None, description="their data; as long as the job")
    results_days: Days | None = Field(default=None, description="their results; likewise")
    steps_days: Days | None = Field(default=None, description="their steps; likewise")
    events_days: Days | None = Field(default=None, description="their timelines; likewise")
    attempts_days: Days | None = Field(default=None, description="their attempts; likewise")
    llm_calls_days: Days | None = Field(default=None, description="their model calls; likewise")
    dead_letters_days: Days = Field(
        default=90, description="closed dead letters; an open one is kept, and so is its job"
    )
    inbox_days: Days = Field(
        default=120,
        description="how long a message is known; a week more than dead letters at least",
        validate_default=True,
    )
    samples_days: Days = Field(
        default=90, description="outlines of what was sent, so long after it was seen last"
    )
    audit_days: Days = Field(default=365, description="who did what")
    workers_days: Days = Field(
        default=7, description="workers that are gone, since they were last seen"
    )
    contents_days: Days = Field(
        default=30, description="contents of events sent by reference, since they were last read"
    )
    tombstones_days: Days = Field(
        default=365, description="how long a removed job is answered with 410 and not with 404"
    )

    @field_validator("inbox_days")
    @classmethod
    def _outlives_replays(cls, days: float, known: ValidationInfo) -> float:
        # A replayed message comes to everybody who read it before; and a message may wait for its
        # second delivery while nobody consumes.
        least = known.data.get("dead_letters_days", 0) + REDELIVERY_DAYS
        if days < least:
            raise ValueError(
                f"at least {least:g}: dead letters may be replayed until then, and a message be "
                f"delivered again {REDELIVERY_DAYS} days later"
            )
        return days


class SamplesGroup(Group):
    types: tuple[str, ...] = Field(
        default=(),
        description="comma-separated, * for all: workers keep outlines of their data, without "
        "contents; empty: none",
    )
    per_version: int = Field(
        default=50, ge=1, le=1000, description="outlines kept of one version, the last seen ones"
    )
    every_seconds: float = Field(
        default=10, gt=0, description="at most one in so long, for each version and process"
    )

    @field_validator("types", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return _names_in(value)


class SlackSettings(Group):
    webhook_url: SecretStr | None = Field(
        default=None, description="an incoming webhook; without one alerts stay in the database"
    )
    bot_token: SecretStr | None = Field(default=None, description="reserved")
    signing_secret: SecretStr | None = Field(default=None, description="reserved")
    channel: str = Field(default="#filaviva", description="reserved")
    api_url: str = Field(default="https://slack.com/api/", description="reserved")


class FromEnvironment(BaseModel):
    """Settings in groups: FILAVIVA_ and the group, two underscores, the name."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Settings(FromEnvironment):
    """Every setting of every service; each service reads the groups it needs."""

    app: str | None = Field(default=None, description="package.module:attribute of your App")
    environment: str = Field(default="development", description="shown in alerts")
    revision: str = Field(default="", description="what was built, shown in filaviva_build_info")
    console_url: str | None = Field(default=None, description="where alerts link to")
    broker: BrokerSettings
    postgres: PostgresSettings
    http: HttpSettings = HttpSettings()
    metrics: MetricsSettings = MetricsSettings()
    producer: ProducerGroup = ProducerGroup()
    worker: WorkerGroup = WorkerGroup()
    retention: RetentionGroup = RetentionGroup()
    samples: SamplesGroup = SamplesGroup()
    slack: SlackSettings = SlackSettings()
    links: LinksSettings = LinksSettings()
    callbacks: CallbackSettings = CallbackSettings()
    drill: DrillSettings = DrillSettings()
    events: EventSettings = EventSettings()
    contents: ContentsSettings = ContentsSettings()


S = TypeVar("S", bound=FromEnvironment)


def read(model: type[S], environment: Mapping[str, str] | None = None) -> S:
    """Read settings; a wrong one ends the start with its name, what was found, what is expected."""
    given = _given(os.environ if environment is None else environment)
    _refuse_misspelt(given)
    values: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        variable = PREFIX + name.upper()
        if _group(field) is not None:
            values[name] = _members(given, variable + _BETWEEN)
        elif variable in given:
            values[name] = given[variable]
    try:
        return model(**values)
    except ValidationError as invalid:
        raise ConfigurationError(_explain(model, invalid)) from None


def _given(environment: Mapping[str, str]) -> dict[str, str]:
    """Take our variables, with the contents of secret files; an empty one is as good as none."""
    ours = {name: value for name, value in environment.items() if name.startswith(PREFIX) and value}
    files = {name: path for name, path in ours.items() if name.endswith(_FILE)}
    contents = {name.removesuffix(_FILE): _content(name, path) for name, path in files.items()}
    return contents | {name: value for name, value in ours.items() if name not in files}


def _refuse_misspelt(given: Mapping[str, str]) -> None:
    """Refuse the names that can only be meant for us, and that nobody would read.

    Others pass: Kubernetes adds FILAVIVA_…_PORT=tcp://… for each service that is called so.
    """
    known = {name.replace("_", ""): name for name in _names(Settings, PREFIX)}
    groups = {name.partition(_BETWEEN)[0] for name in known.values() if _BETWEEN in name}
    for name, value in given.items():
        right = known.get(name.replace("_", ""), name)
        if right != name and not value.startswith("tcp://"):
            message = f"{name}: found a setting that nobody reads, expected {right}"
            raise ConfigurationError(message)
        if _BETWEEN in name and name.partition(_BETWEEN)[0] not in groups:
            expected = ", ".join(f"{group}{_BETWEEN}…" for group in sorted(groups))
            message = f"{name}: found a setting that nobody reads, expected one of {expected}"
            raise ConfigurationError(message)


def _names(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        group = _group(field)
        if group is None:
            yield prefix + name.upper()
        else:
            yield from _names(group, prefix + name.upper() + _BETWEEN)


def _members(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix).lower(): value
        for name, value in given.items()
        if name.startswith(prefix)
    }


def _content(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as unreadable:
        why = getattr(unreadable, "strerror", None) or "it is no text"
        message = f"{name}: found {path!r}, expected a readable file ({why})"
        raise ConfigurationError(message) from unreadable


def _explain(model: type[FromEnvironment], invalid: ValidationError) -> str:
    return "\n".join(_explain_one(model, error) for error in invalid.errors(include_url=False))


def _explain_one(model: type[FromEnvironment], error: Any) -> str:
    path = [part for part in error["loc"] if isinstance(part, str)]
    name = PREFIX + _BETWEEN.join(part.upper() for part in path)
    field, siblings = _find(model, path)
    if field is None:
        known = ", ".join(sibling.upper() for sibling in siblings)
        return f"{name}: found a setting that nobody reads, expected one of {known}"
    if error["type"] == "missing":
        return f"{name}: found nothing, expected {field.description}"
    found = "another value" if "SecretStr" in str(field.annotation) else repr(error["input"])
    expected = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return f"{name}: found {found}, expected {expected}"


def _find(model: type[BaseModel], path: list[str]) -> tuple[FieldInfo | None, list[str]]:
    """Find the field that a path leads to, and the names beside it."""
    fields = model.model_fields
    field = fields.get(path[0])
    group = None if field is None else _group(field)
    if group is None or len(path) == 1:
        return field, list(fields)
    return _find(group, path[1:])


def _group(field: FieldInfo) -> type[Group] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Group) else None


def _web(url: str) -> str:
    if url and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
        raise ValueError("a URL that begins with https:// or http://")
    return url


def _long_secret(secret: SecretStr | None) -> SecretStr | None:
    if secret is not None and len(secret.get_secret_value()) < _SECRET:
        raise ValueError(f"{_SECRET} characters or more, chosen at random")
    return secret


def _with_scheme(url: SecretStr, *schemes: str) -> SecretStr:
    if urlsplit(url.get_secret_value()).scheme not in schemes:
        raise ValueError(f"a URL that begins with {schemes[0]}://")
    return url
