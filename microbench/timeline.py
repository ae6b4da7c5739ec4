"""What every thread and stream did in a few steps: host segments, waits, hand-offs, kernels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from microbench.case import Case, instances
from microbench.devices.sim import SimDevice
from microbench.engines.prices import HostProfile
from microbench.protocols import Channel, Device, Host, Latch
from microbench.trace import Trace


@dataclass(frozen=True)
class Slice:
    """One stretch of a track. kind: `host` (a segment of the step), `wait`, `gil` (waiting for it) or `gpu`."""

    track: str
    name: str
    start_ns: int
    end_ns: int
    kind: str


@dataclass(frozen=True)
class Arrow:
    """A hand-off: what one task put or set, and when another one had it."""

    name: str
    source: str
    source_ns: int
    sink: str
    sink_ns: int


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A few steps of one scheduler. Times in ns on the host's clock; `steps`: when each step was done."""

    scheduler: str
    target: str
    says: str
    slices: tuple[Slice, ...]
    arrows: tuple[Arrow, ...]
    steps: tuple[int, ...]


@dataclass
class _Log:
    slices: list[Slice] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    task: ContextVar[str] = field(default_factory=lambda: ContextVar("task", default="main"))


class _WatchedChannel:
    def __init__(self, inner: Channel, name: str, host: WatchedHost) -> None:
        self._inner, self._name, self._host = inner, name, host

    def put(self, item: Any) -> None:
        source = self._host.log.task.get(), self._host.now_ns()
        self._inner.put((source, item))

    def get(self) -> Any:
        start = self._host.now_ns()
        (task, at), item = self._inner.get()
        self._host.handed(self._name, task, at, start)
        return item


class _WatchedLatch:
    def __init__(self, inner: Latch, name: str, host: WatchedHost) -> None:
        self._inner, self._name, self._host = inner, name, host
        self._set: tuple[str, int] | None = None

    def set(self) -> None:
        self._set = self._host.log.task.get(), self._host.now_ns()
        self._inner.set()

    def wait(self) -> None:
        start = self._host.now_ns()
        self._inner.wait()
        if self._set is not None:
            self._host.handed(self._name, *self._set, start)


class WatchedHost:
    """A host that writes down who waited for what, and who handed over to whom."""

    def __init__(self, inner: Host) -> None:
        self.inner, self.name, self.log = inner, inner.name, _Log()
        self._lock = threading.Lock()

    def now_ns(self) -> int:
        return self.inner.now_ns()

    def spend(self, gil_ns: int, free_ns: int = 0, *, atomic: bool = False) -> None:
        self.inner.spend(gil_ns, free_ns, atomic=atomic)

    def repeat(self, gil_ns: int, free_ns: int, times: int) -> Iterator[tuple[int, int]]:
        return self.inner.repeat(gil_ns, free_ns, times)

    def wait_until(self, when_ns: int, what: str, *, spin: bool = False) -> None:
        start = self.now_ns()
        self.inner.wait_until(when_ns, what, spin=spin)
        self.waited(f"wait for {what}", start)

    def channel(self, name: str) -> Channel:
        return _WatchedChannel(self.inner.channel(name), name, self)

    def latch(self, name: str) -> Latch:
        return _WatchedLatch(self.inner.latch(name), name, self)

    def run(self, tasks: Mapping[str, Callable[[], None]]) -> None:
        def named(name: str, body: Callable[[], None]) -> Callable[[], None]:
            def task() -> None:
                self.log.task.set(name)
                body()

            return task

        self.inner.run({name: named(name, body) for name, body in tasks.items()})

    def waited(self, what: str, start_ns: int) -> None:
        """The running task waited since `start_ns`."""
        end = self.now_ns()
        if end > start_ns:
            with self._lock:
                self.log.slices.append(Slice(self.log.task.get(), what, start_ns, end, "wait"))

    def handed(self, what: str, source: str, source_ns: int, start_ns: int) -> None:
        """The running task has what `source` handed over at `source_ns`, having waited since `start_ns`."""
        end, task = self.now_ns(), self.log.task.get()
        with self._lock:
            self.log.arrows.append(Arrow(what, source, source_ns, task, end))
        self.waited(f"wait for {what}", start_ns)


def record(
    case: Case, scheduler: str, *, steps: int = 6, warm: int = 3, profile: HostProfile | None = None
) -> Timeline:
    """Run `warm` + `steps` steps and give back the last `steps` of them.

    GPU slices are those of a modelled GPU; on CUDA there are none, since only a profiler sees its kernels.
    """
    watched: list[WatchedHost] = []
    devices: list[Device] = []

    def observe(host: Host, device: Device) -> Host:
        watched.append(WatchedHost(host))
        devices.append(device)
        if isinstance(device, SimDevice):
            device.host, device.log = watched[0], []
        return watched[0]

    with instances(case, [scheduler], profile, observe=observe) as (instance,):
        trace = Trace(instance.host.now_ns)
        instance.run(steps + warm + 1, trace)
        name = instance.name
    host = watched[0]
    # The interval between two step ends is a step; the last is left out because nothing is launched under it.
    start, end = trace.steps[warm - 1], trace.steps[-2]
    slices = [Slice(task, segment, a, b, "host") for task, segment, a, b in trace.laps]
    slices += host.log.slices
    slices += [Slice(f"GPU {stream}", what, a, b, "gpu") for stream, what, a, b in getattr(devices[0], "log", ())]
    slices += [Slice(task, "waits for the GIL", a, b, "gil") for task, a, b in getattr(host.inner, "gil_waits", ())]
    inside = [s for s in slices if s.end_ns > s.start_ns and s.end_ns > start and s.start_ns < end]
    return Timeline(
        scheduler=name,
        target=str(case.target),
        says=case.target.says,
        slices=tuple(sorted(inside, key=lambda s: (s.start_ns, -s.end_ns))),
        arrows=tuple(a for a in host.log.arrows if a.sink_ns > start and a.source_ns < end),
        steps=tuple(s for s in trace.steps if start <= s <= end),
    )
