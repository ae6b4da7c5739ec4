"""CuPy's streams and events under torch's names, with a time-out on their waits."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from microbench.devices.cupy_cuda import CupyDevice

_SUCCESS, _NOT_READY = 0, 600
"""cudaError_t of a query (CUDA runtime API)."""


class CupyStream:
    """A CuPy stream under torch's names. `raw`: CuPy's own."""

    def __init__(self, device: CupyDevice, raw: Any) -> None:
        self.device, self.raw = device, raw

    def synchronize(self) -> None:
        self.device.watchdog.watch(self, self.raw.synchronize)

    def query(self) -> bool:
        return _reached(self.device, self.device.runtime.streamQuery(self.raw.ptr))

    def wait_event(self, event: CupyEvent) -> None:
        self.raw.wait_event(event.raw)

    def wait_stream(self, stream: CupyStream) -> None:
        self.wait_event(stream.record_event())

    def record_event(self, event: CupyEvent | None = None) -> CupyEvent:
        event = event or self.device.Event()
        event.record(self)
        return event

    @cached_property
    def torch(self) -> Any:
        """torch's view of the stream."""
        cuda, index = self.device.torch_module, self.device.index
        # torch takes a null pointer for no pointer, and makes a stream of its own.
        return cuda.ExternalStream(self.raw.ptr, device=index) if self.raw.ptr else cuda.default_stream(index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CupyStream) and bool(self.raw == other.raw)

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"CuPy stream {self.raw.ptr:#x}"


class CupyEvent:
    """A CuPy event under torch's names. `raw`: CuPy's own."""

    def __init__(self, device: CupyDevice, raw: Any) -> None:
        self.device, self.raw = device, raw

    def record(self, stream: CupyStream | None = None) -> None:
        self.raw.record(stream.raw if stream else None)

    def synchronize(self) -> None:
        self.device.watchdog.watch(self, self.raw.synchronize)

    def query(self) -> bool:
        return _reached(self.device, self.device.runtime.eventQuery(self.raw.ptr))

    def wait(self, stream: CupyStream | None = None) -> None:
        (stream or self.device.current_stream()).wait_event(self)

    def elapsed_time(self, end_event: CupyEvent) -> float:
        """Milliseconds from this event to `end_event`; RuntimeError unless both have timing and were reached."""
        return float(self.device.module.cuda.get_elapsed_time(self.raw, end_event.raw))

    def __repr__(self) -> str:
        return f"CuPy event {self.raw.ptr:#x}"


def _reached(device: CupyDevice, status: int) -> bool:
    """What a query answers. CuPy raises for no status: a lost GPU would be waited for forever."""
    if status not in (_SUCCESS, _NOT_READY):
        raise device.runtime.CUDARuntimeError(status)
    return status == _SUCCESS
