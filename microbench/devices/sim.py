"""A modelled GPU: every stream is a timeline of integers on the host's clock. Twin of `devices.torch_cuda`.

A kernel starts at `max(now + launch latency, end of its stream)` and ends its duration later. All that a stream
waits for is known when it is enqueued, so no device thread disturbs the host; waiting for an event blocks
the task without the GIL until the host's clock reaches the recorded point. Streams and events carry torch's names.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from microbench.devices.spec import LaunchCost, StepSpec
from microbench.protocols import Batch, Host

LAUNCH_QUEUE_DEPTH = 1000
"""Pending launches before the next one blocks: about 1,000 per stream, measured by users
(stackoverflow.com/questions/53970187)."""


class SimStream:
    """A timeline. `end_ns`: when all work enqueued so far has ended; `busy_ns`: its total duration."""

    def __init__(self, device: SimDevice, name: str) -> None:
        self.device, self.name = device, name
        self.end_ns = self.busy_ns = 0
        self.pending: deque[int] = deque()

    def synchronize(self) -> None:
        self.device.host.wait_until(self.end_ns, f"stream {self.name!r}")

    def query(self) -> bool:
        return self.device.host.now_ns() >= self.end_ns

    def wait_stream(self, stream: SimStream) -> None:
        self.end_ns = max(self.end_ns, stream.end_ns)

    def wait_event(self, event: SimEvent) -> None:
        self.end_ns = max(self.end_ns, event.at_ns)

    def record_event(self, event: SimEvent | None = None) -> SimEvent:
        event = event or SimEvent(self.device)
        event.record(self)
        return event


class SimEvent:
    """A point on a timeline; before the first `record` it counts as done, as in CUDA."""

    def __init__(self, device: SimDevice, *, enable_timing: bool = False, blocking: bool = True) -> None:
        self.device, self.enable_timing, self.blocking = device, enable_timing, blocking
        self.at_ns = 0
        self.recorded = False
        self._what = "an event"

    def record(self, stream: SimStream | None = None) -> None:
        stream = stream or self.device.current_stream()
        self.at_ns = max(stream.end_ns, self.device.host.now_ns())
        self.recorded = True
        self._what = f"an event recorded on {stream.name!r}"

    def synchronize(self) -> None:
        self.device.host.wait_until(self.at_ns, self._what, spin=not self.blocking)

    def query(self) -> bool:
        return self.device.host.now_ns() >= self.at_ns

    def wait(self, stream: SimStream | None = None) -> None:
        (stream or self.device.current_stream()).wait_event(self)

    def elapsed_time(self, end_event: SimEvent) -> float:
        """Milliseconds from this event to `end_event`; both need timing, as in torch."""
        if not (self.enable_timing and end_event.enable_timing and self.recorded and end_event.recorded):
            raise RuntimeError("elapsed_time needs two recorded events made with enable_timing=True")
        if not (self.query() and end_event.query()):
            raise RuntimeError("elapsed_time: an event has not been reached yet; synchronize with it first")
        return (end_event.at_ns - self.at_ns) / 1e6


class SimCopy:
    """A device-to-host copy: readable before it has ended, but then it still holds the old values."""

    STALE = -1

    def __init__(self, device: SimDevice, values: Any, ready_ns: int) -> None:
        self._device, self._values, self._ready_ns = device, values, ready_ns

    def tolist(self) -> list[int]:
        if self._values is None:
            return []
        tokens: list[int] = self._values.tolist()
        if self._device.host.now_ns() < self._ready_ns:
            return [self.STALE] * len(tokens)
        return tokens


class SimModel:
    """One decode step of known kernel durations."""

    def __init__(self, device: SimDevice, spec: StepSpec) -> None:
        self.device, self.spec = device, spec

    def plan(self, batch: Batch) -> None:
        if self.spec.plan_sync:
            self.device.current_stream().synchronize()

    def forward(self, batch: Batch) -> None:
        if self.spec.graph:
            self.device.replay(self.spec.graph, self.spec.forward_ns)
        else:
            self.device.launch(self.spec.launch, self.spec.forward_ns)

    def sample(self, batch: Batch) -> Any:
        self.device.launch(self.spec.sample_launch, self.spec.sample_ns)
        return batch.next_ids()


class SimDevice:
    """A modelled GPU on `host`'s clock.

    launch_latency_ns: from the launch call until the kernel can start on an idle stream.
    copy_latency_ns, copy_bytes_per_s: a device-to-host copy takes latency + bytes / bandwidth.
    spin_waits: events made without `blocking=True` burn a core while waited for, as CUDA's default does; off, so that
        a machine with few cores is not starved by a GPU that isn't there.
    exclusive: kernels of one stream wait for those of every other (a small GPU, or kernels that fill it).
    """

    tensor_device = "cpu"
    modelled = True

    def __init__(
        self,
        host: Host,
        *,
        name: str = "sim",
        launch_latency_ns: int = 4_000,
        copy_latency_ns: int = 6_000,
        copy_bytes_per_s: float = 25e9,
        spin_waits: bool = False,
        exclusive: bool = False,
    ) -> None:
        self.host, self.name = host, name
        self.launch_latency_ns = launch_latency_ns
        self.copy_latency_ns, self.copy_bytes_per_s = copy_latency_ns, copy_bytes_per_s
        self.spin_waits, self.exclusive = spin_waits, exclusive
        self._kernels_end_ns = 0
        self.log: list[tuple[str, str, int, int]] | None = None
        """Set to a list, it gets (stream, what, start_ns, end_ns) of everything enqueued."""
        self._streams: list[SimStream] = []
        self._default = self.Stream()
        self._current: ContextVar[SimStream] = ContextVar("current_stream", default=self._default)

    def Stream(self, *, priority: int = 0) -> SimStream:
        stream = SimStream(self, f"stream {len(self._streams)}")
        self._streams.append(stream)
        return stream

    def Event(self, *, enable_timing: bool = False, blocking: bool = False) -> SimEvent:
        return SimEvent(self, enable_timing=enable_timing, blocking=blocking or not self.spin_waits)

    def current_stream(self) -> SimStream:
        return self._current.get()

    @contextmanager
    def stream(self, stream: SimStream) -> Iterator[SimStream]:
        token = self._current.set(stream)
        try:
            yield stream
        finally:
            self._current.reset(token)

    def range(self, name: str) -> AbstractContextManager[None]:
        """Nobody profiles a modelled GPU."""
        return nullcontext()

    def synchronize(self) -> None:
        for stream in self._streams:
            stream.synchronize()

    def busy_ns(self) -> int:
        return sum(stream.busy_ns for stream in self._streams)

    def model(self, spec: StepSpec) -> SimModel:
        return SimModel(self, spec)

    def spin(self, ns: int) -> int:
        return self._enqueue(self.current_stream(), self.host.now_ns(), ns)

    def launch(self, cost: LaunchCost, durations_ns: Sequence[int]) -> None:
        """Enqueue kernels one launch at a time on the current stream; each pays `cost` on the host first."""
        host, stream = self.host, self.current_stream()
        pending = stream.pending
        todo = iter(durations_ns)
        left = len(durations_ns)
        while left:
            self._make_room(stream)
            room = min(left, LAUNCH_QUEUE_DEPTH - len(pending))
            left -= room
            before = host.now_ns()
            for count, end_ns in host.repeat(cost.gil_ns, cost.free_ns, room):
                period = (end_ns - before) // count
                for behind in range(count - 1, -1, -1):
                    at = end_ns - behind * period
                    while pending and pending[0] <= at:
                        pending.popleft()
                    pending.append(self._enqueue(stream, at, next(todo)))
                before = end_ns

    def replay(self, cost: LaunchCost, durations_ns: Sequence[int]) -> None:
        """Enqueue a captured graph: one host call, then the kernels back to back."""
        self.host.spend(cost.gil_ns, cost.free_ns)
        stream = self.current_stream()
        self._make_room(stream)
        stream.pending.append(self._enqueue(stream, self.host.now_ns(), sum(durations_ns)))

    def to_host(self, values: Any, *, nbytes: int, pinned: bool = True) -> SimCopy:
        stream = self.current_stream()
        duration = self.copy_latency_ns + math.ceil(nbytes / self.copy_bytes_per_s * 1e9)
        ready_ns = stream.end_ns = max(self.host.now_ns(), stream.end_ns) + duration
        if self.log is not None:
            self.log.append((stream.name, "copy to host", ready_ns - duration, ready_ns))
        if not pinned:
            self.host.wait_until(ready_ns, f"a pageable copy on {stream.name!r}")
        return SimCopy(self, values, ready_ns)

    def _make_room(self, stream: SimStream) -> None:
        """Forget what has ended; block while the stream's launch queue is full."""
        pending, now = stream.pending, self.host.now_ns()
        while pending and pending[0] <= now:
            pending.popleft()
        while len(pending) >= LAUNCH_QUEUE_DEPTH:
            self.host.wait_until(pending[0], f"room in the launch queue of {stream.name!r}")
            pending.popleft()

    def _enqueue(self, stream: SimStream, at_ns: int, duration_ns: int) -> int:
        start = max(at_ns + self.launch_latency_ns, stream.end_ns)
        if self.exclusive:
            start = max(start, self._kernels_end_ns)
        self._kernels_end_ns = stream.end_ns = start + duration_ns
        stream.busy_ns += duration_ns
        if self.log is not None:
            self.log.append((stream.name, "kernel", start, stream.end_ns))
        return stream.end_ns
