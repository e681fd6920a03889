"""Runs the stack: servers, then setup, then services; starts again whatever dies.

Before: a state folder that no other run holds.
After: everything that was started has ended, cleanly or by SIGKILL.
May happen twice: yes; a run that was killed is cleared away by the next one.
"""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TypeAlias, assert_never

from filaviva.dev import changes, keyring
from filaviva.dev.child import Child, recover
from filaviva.dev.facts import WITH_API, Facts
from filaviva.dev.identity import Identity
from filaviva.dev.member import Member
from filaviva.dev.options import Options, Programs
from filaviva.dev.ports import LOOPBACK, free_port
from filaviva.dev.readiness import NotReady, wait_until
from filaviva.dev.restarts import Changed, Due, Ended, Happening, Restartable, Restarts, Stop
from filaviva.dev.servers import Servers, exported
from filaviva.dev.topology_guard import TopologyGuard

Say: TypeAlias = Callable[[str], None]

_SERVERS_PATIENCE = timedelta(seconds=90)
_SETUP_PATIENCE = timedelta(seconds=120)
_SERVICES_PATIENCE = timedelta(seconds=90)
_DRILLED = "FILAVIVA_DRILL__PROVIDER_URL"
_GUARD_EVERY = timedelta(seconds=2)


@dataclass(slots=True)
class Supervisor:
    """One run of the stack."""

    options: Options
    programs: Programs
    say: Say
    servers: Servers = field(init=False)
    members: list[Member] = field(init=False, default_factory=list)
    restarts: Restarts = field(init=False)
    _stopping: Event = field(init=False, default_factory=Event)
    _guard: TopologyGuard | None = field(init=False, default=None)
    _api_key: str = field(init=False, default="")
    _drill_provider: str = field(init=False, default_factory=lambda: provider(os.environ))

    def run(self) -> None:
        """Bring the stack up and keep it up until somebody asks for its end."""
        state = self.options.state
        dev_json(state).unlink(missing_ok=True)
        for name in recover(state):
            self.say(f"ended {name}, left by a run that was killed")
        Identity.of(os.getpid()).write(record(state))
        self.restarts = Restarts(self.say)
        self.servers = Servers.of(self.options)
        with self._signals():
            try:
                self._bring_up()
                self._keep_up()
            except Interrupted:
                pass
            finally:
                self._bring_down()

    def _bring_up(self) -> None:
        chosen = self._chosen()  # a wrong name must not wait for servers to start
        servers = [server.child.name for server in self.servers.own]
        self.say(f"starting {', '.join([*servers, 'the services'])} ...")
        self._start(list(self.servers.own), _SERVERS_PATIENCE)
        self._set_up()
        self._api_key = keyring.key(
            self.options.state, self.servers.postgres_url, self.programs.create_key
        )
        self.members = self._make_members(chosen)
        self._start(list(self.members), _SERVICES_PATIENCE)
        self._write()
        self._announce()
        if self.options.reload:
            changes.watch(lambda: self.restarts.tell(Changed()), self._stopping)

    def _start(self, things: list[Restartable], patience: timedelta) -> None:
        for thing in things:
            self.restarts.launch(thing)
        for thing in things:
            self._until(thing.ready, patience, f"{thing.child.name} ({thing.child.log})")

    def _set_up(self) -> None:
        """Run the one-shot setup, then note what it declared on the broker."""
        setup = Child(
            "setup", self.programs.setup, state=self.options.state, env=self._environment()
        )
        setup.start()
        self._until(lambda: not setup.alive, _SETUP_PATIENCE, f"setup ({setup.log})")
        code = setup.wait()
        setup.kill()  # forgets its record
        if code != 0:
            raise NotReady(f"setup failed ({code}):\n{setup.tail()}")
        if self.servers.broker is not None:
            self._guard = TopologyGuard(
                self.servers.broker.management_url, exported(self.options.state)
            )
            self._guard.export()

    def _make_members(self, chosen: Mapping[str, list[str]]) -> list[Member]:
        env, state = self._environment(), self.options.state
        return [
            Member.of(service, number, command, state=state, env=env)
            for service, command in chosen.items()
            for number in range(1, 1 + (self.options.workers if service == "worker" else 1))
        ]

    def _chosen(self) -> dict[str, list[str]]:
        """The services of this run; workers only when there is an app for them."""
        wanted = self.options.services or tuple(self.programs.services)
        unknown = [name for name in wanted if name not in self.programs.services]
        if unknown:
            known = ", ".join(self.programs.services) or "none"
            raise NotReady(f"no such service: {', '.join(unknown)} (installed: {known})")
        if self.options.app is None and "worker" in wanted:
            self.say("no worker without an app: name one with --app package.module:app")
            wanted = tuple(name for name in wanted if name != "worker")
        return {name: self.programs.services[name] for name in wanted}

    def _environment(self) -> dict[str, str]:
        app = {} if self.options.app is None else {"FILAVIVA_APP": self.options.app}
        app[_DRILLED] = self._drill_provider
        ours = {
            **keyring.links(self.options.state, os.environ),
            **keyring.callbacks(self.options.state, os.environ),
        }
        return {**os.environ, "PYTHONUNBUFFERED": "1", **self.servers.environment, **ours, **app}

    def _keep_up(self) -> None:
        while not self._stopping.is_set():
            happening = self.restarts.next(_GUARD_EVERY)
            if happening is None:
                self._look_after_broker()
            else:
                self._deal_with(happening)

    def _look_after_broker(self) -> None:
        if self.servers.broker is None or self._guard is None:
            return
        self.servers.broker.epmd.start()  # nothing, unless it has died
        try:
            if self._guard.step():
                self.say("the broker had lost its topology: declared it again")
        except OSError:
            return  # the broker is down or still booting: it loads the definitions itself

    def _until(self, fact: Callable[[], bool], patience: timedelta, what: str) -> None:
        """Wait for a fact, starting again what dies meanwhile."""

        def holds() -> bool:
            while (happening := self.restarts.next()) is not None:
                self._deal_with(happening)
            if self._stopping.is_set():
                raise Interrupted
            return fact()

        wait_until(holds, patience=patience, what=what)

    def _deal_with(self, happening: Happening) -> None:
        match happening:
            case Ended():
                self.restarts.plan(happening)
            case Due(what):
                self.restarts.launch(what)
                if self.members:
                    self._write()
            case Changed():
                self.say("source changed: starting the services again")
                for member in self.members:
                    member.child.terminate()
            case Stop():
                self._stopping.set()
            case _:
                assert_never(happening)

    def _write(self) -> None:
        """Say in dev.json what runs where."""
        pids = self.servers.pids
        for member in self.members:
            pids.setdefault(member.service, []).append(member.child.pid)
        metrics: dict[str, list[str]] = {}
        for member in self.members:
            metrics.setdefault(member.service, []).append(member.metrics)
        Facts(
            broker=self.servers.broker_url,
            broker_management=self.servers.management_url,
            postgres=self.servers.postgres_url,
            api_key=self._api_key,
            drill_provider=self._drill_provider,
            pids={name: numbers for name, numbers in pids.items() if numbers},
            http={m.service: m.http for m in self.members if m.service in WITH_API},
            metrics=metrics,
        ).write(dev_json(self.options.state))

    def _announce(self) -> None:
        for member in self.members:
            api = member.http if member.service in WITH_API else ""
            self.say(f"{member.child.name:<16} {api:<24} metrics {member.metrics}")
        self.say(f"everything else: {dev_json(self.options.state)}")
        self.say(f"Ctrl-C here, or `filaviva dev stop --state {self.options.state}`, ends it")

    def _bring_down(self) -> None:
        self._stopping.set()
        self.say("stopping ...")
        dev_json(self.options.state).unlink(missing_ok=True)
        for member in self.members:
            member.child.terminate()
        for member in self.members:
            member.child.stop(timedelta(seconds=35))
        if self.servers.broker is not None:
            self.servers.broker.child.terminate()
        for server in self.servers.own:
            server.stop()
        record(self.options.state).unlink(missing_ok=True)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Turn Ctrl-C and SIGTERM into a happening."""

        def stop(_number: int, _frame: FrameType | None) -> None:
            self.restarts.tell(Stop())

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Interrupted(Exception):
    """The end was asked for while the stack was still coming up."""


def dev_json(state: Path) -> Path:
    """Where a run says what runs where."""
    return state / "dev.json"


def provider(environment: Mapping[str, str]) -> str:
    """Say where a drill's provider will be: a free port, unless the environment names a place."""
    return environment.get(_DRILLED) or f"http://{LOOPBACK}:{free_port()}"


def record(state: Path) -> Path:
    """Where a run says which process it is."""
    return state / "supervisor.json"
