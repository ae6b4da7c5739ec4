"""The two narrow protocols everything here is written against: a host and a device.

Schedulers and isolated costs see only these, so the same straight-line Python runs on real threads or on a
computed clock (`hosts/`), and on a CUDA GPU or a modelled one (`devices/`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from microbench.devices.spec import StepSpec


class Channel(Protocol):
    """A FIFO between tasks, with the semantics of `queue.Queue`."""

    def put(self, item: Any) -> None: ...

    def get(self) -> Any: ...


class Latch(Protocol):
    """A flag one task sets and others wait for, with the semantics of `threading.Event`."""

    def set(self) -> None: ...

    def wait(self) -> None: ...


class Host(Protocol):
    """Who works, waits and hands over. Twins: `hosts.real.RealHost`, `hosts.virtual.VirtualHost`."""

    name: str

    def now_ns(self) -> int:
        """The host's clock, in ns; only differences mean anything."""
        ...

    def spend(self, gil_ns: int, free_ns: int = 0, *, atomic: bool = False) -> None:
        """Work `gil_ns` of CPU time holding the GIL, then `free_ns` without it.

        `atomic`: the GIL can't be forced away meanwhile, as in one long C call.
        """
        ...

    def repeat(self, gil_ns: int, free_ns: int, times: int) -> Iterator[tuple[int, int]]:
        """`spend` it `times` over, yielding (count, end_ns) as it goes: `count` more ended, the last at `end_ns`.

        The time the caller takes between two yields is part of what is spent. A host that can prove that nobody
        would interrupt yields many at once, evenly spaced.
        """
        ...

    def wait_until(self, when_ns: int, what: str, *, spin: bool = False) -> None:
        """Wait without the GIL until the clock reaches `when_ns`; `what` names it in a time-out.

        `spin`: burn a core instead of sleeping.
        """
        ...

    def channel(self, name: str) -> Channel: ...

    def latch(self, name: str) -> Latch: ...

    def run(self, tasks: Mapping[str, Callable[[], None]]) -> None:
        """Run the named tasks side by side until all return; the first error ends all and is re-raised."""
        ...


class StreamLike(Protocol):
    """An in-order queue of device work, named as `torch.cuda.Stream`."""

    def synchronize(self) -> None: ...

    def query(self) -> bool: ...

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...


class EventLike(Protocol):
    """A point in a stream, named as `torch.cuda.Event`."""

    def record(self, stream: Any = None) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool: ...

    def elapsed_time(self, end_event: Any) -> float: ...


class HostCopy(Protocol):
    """Token ids on their way to the host. Reading before the copy has ended gives stale values, as on a GPU."""

    def tolist(self) -> list[int]: ...


class Batch(Protocol):
    """What the scheduler hands to the model for one decode step."""

    size: int
    input_ids: Any
    seq_lens: Any

    def next_ids(self) -> Any:
        """The token ids a modelled GPU answers with: a fixed function of request, position and last token."""
        ...


class Model(Protocol):
    """One decode step on a device: eager launches or a graph replay, then sampling."""

    def plan(self, batch: Batch) -> None:
        """Attention planning; blocks until the stream is idle where the engine's planner reads back."""
        ...

    def forward(self, batch: Batch) -> None: ...

    def sample(self, batch: Batch) -> Any:
        """Enqueue sampling; returns the token ids on the device."""
        ...


class Device(Protocol):
    """Streams, events, launches and copies.

    Twins: `devices.sim.SimDevice`, `devices.torch_cuda.TorchDevice`, `devices.cupy_cuda.CupyDevice`.
    """

    name: str
    tensor_device: str
    modelled: bool

    def Stream(self, *, priority: int = 0) -> StreamLike: ...

    def Event(self, *, enable_timing: bool = False, blocking: bool = False) -> EventLike: ...

    def current_stream(self) -> StreamLike: ...

    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Make `stream` current for this task."""
        ...

    def range(self, name: str) -> AbstractContextManager[Any]:
        """A named range for a profiler (NVTX on CUDA)."""
        ...

    def synchronize(self) -> None: ...

    def to_host(self, values: Any, *, nbytes: int, pinned: bool = True) -> HostCopy:
        """Enqueue a device-to-host copy on the current stream; a pageable one blocks until it has ended."""
        ...

    def spin(self, ns: int) -> int | None:
        """Enqueue a kernel of `ns` on the current stream; returns when it ends on the host's clock, or None where
        only the GPU knows."""
        ...

    def model(self, spec: StepSpec) -> Model:
        """One decode step ready to be launched. Raises Unavailable when it doesn't fit the device's memory."""
        ...

    def busy_ns(self) -> int | None:
        """GPU time of all work enqueued so far, in ns; None where only the GPU knows."""
        ...


class EngineWork(Protocol):
    """What one engine version does on the host each step. Twins: `engines.requests`, `engines.priced`.

    Batches are the work's own: what `schedule` returned is what the other methods take (a `Batch`).
    """

    overlap: bool

    def rewind(self) -> None:
        """Back to the lengths the requests had at first."""
        ...

    def schedule(self) -> Any | None:
        """Drop finished requests, allocate, build the next decode batch; None when no request is left."""
        ...

    def advance(self) -> Any:
        """The batch of the next decode step of the same requests, without a look at them."""
        ...

    def outputs(self, batch: Any, ids: Any) -> None:
        """Make `ids` (device token ids, or future ids) the input of the batch after `batch`."""
        ...

    def futures(self, batch: Any) -> Any:
        """Placeholder ids (negative) for the tokens `batch` will produce."""
        ...

    def snapshot(self, batch: Any) -> Any:
        """What processing the result will need, safe from the next `schedule`."""
        ...

    def resolve(self, batch: Any) -> None:
        """Replace the placeholders in `batch` by the tokens they stand for (on the device)."""
        ...

    def publish(self, batch: Any, ids: Any) -> None:
        """Store the sampled `ids` where `resolve` of the next batch finds them."""
        ...

    def process(self, batch: Any, tokens: Sequence[int]) -> None:
        """Append the tokens, check which requests finish, free what they held."""
        ...

    def stream(self, batch: Any) -> None:
        """Build, serialise and send the outputs to the detokenizer."""
        ...

    def close(self) -> None: ...
