"""CuPy's names over a modelled GPU, so that `devices.cupy_cuda` runs without one. Twin of `devices.torch_style`."""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

from microbench.devices.sim import SimDevice, SimEvent, SimStream
from microbench.devices.torch_style import FREE, SimulatedCuda
from synthetic_models.cupy_kernels import HOLD, RELEASED, SPIN, SPIN_BETWEEN, TIMED_OUT, TIMESTAMP

SUCCESS, NOT_READY, INVALID = 0, 600, 1
"""cudaError_t of a query."""
CUDA = 12090
LEAST, GREATEST = 0, -3
"""Stream priorities; all are alike on a timeline."""
EPOCH_NS = 1
"""Added to the timelines, so that no timestamp is 0."""


class SimulatedCupy:
    """A module-like object: CuPy's streams, events, copies, graphs, and the kernels of `synthetic_models.cupy_kernels`.

    Arrays stay in host memory. A cycle is 1 ns, and the global timer is the host's clock. A launch costs the host only
    the Python that makes it. What a kernel or a copy writes is there at once, its time is on the timeline. A `hold`
    whose flag isn't set yet lasts its whole time-out: when it will be released isn't known when it is enqueued.

    torch_cuda: names of torch.cuda over the same streams.
    """

    def __init__(self, device: SimDevice) -> None:
        self.cuda = SimulatedCupyCuda(device)
        self.torch_cuda = SharedCuda(device, self.cuda)

    def RawModule(self, *, code: str) -> SimulatedModule:
        return SimulatedModule(self.cuda)

    def asarray(self, values: Any) -> SimulatedArray:
        import numpy

        return SimulatedArray(self.cuda, numpy.asarray(values))

    def zeros(self, shape: Any, dtype: Any) -> SimulatedArray:
        import numpy

        return self.asarray(numpy.zeros(shape, dtype))


class SimulatedCupyCuda:
    """`cupy.cuda`."""

    def __init__(self, device: SimDevice) -> None:
        self.device = device
        self.streams = [device.current_stream()]  # by pointer; the default stream's is null
        self.events: weakref.WeakValueDictionary[int, SimulatedEvent] = weakref.WeakValueDictionary()
        self.capturing: dict[SimStream, list[int]] = {}
        # Apart from torch's: making a stream current in one library doesn't in the other.
        self.entered: ContextVar[tuple[SimStream, ...]] = ContextVar("entered", default=(self.streams[0],))
        self.next_event = itertools.count(1)
        self.runtime = SimulatedRuntime(self)
        self.nvtx = SimpleNamespace(RangePush=lambda message: None, RangePop=lambda: None)
        self.compiler = SimpleNamespace(CompileException=CompileException)

    def Stream(self, *, non_blocking: bool = False, priority: int | None = None) -> SimulatedStream:
        nearest = max(min(priority or 0, LEAST), GREATEST)
        return SimulatedStream(self, self.device.Stream(priority=nearest), nearest)

    def Event(self, *, block: bool = False, disable_timing: bool = False) -> SimulatedEvent:
        return SimulatedEvent(self, self.device.Event(enable_timing=not disable_timing, blocking=block))

    def get_current_stream(self) -> SimulatedStream:
        return SimulatedStream(self, self.current())

    def get_elapsed_time(self, start_event: SimulatedEvent, end_event: SimulatedEvent) -> float:
        return start_event.point.elapsed_time(end_event.point)

    def alloc_pinned_memory(self, size: int) -> Any:
        return (ctypes.c_char * size)()

    def current(self) -> SimStream:
        return self.entered.get()[-1]

    def pointer(self, timeline: SimStream) -> int:
        if timeline not in self.streams:
            self.streams.append(timeline)
        return self.streams.index(timeline)

    def launch(self, duration_ns: int) -> int:
        """Enqueue a kernel on the current stream, or capture it; returns when it ends."""
        stream = self.current()
        if stream in self.capturing:
            self.capturing[stream].append(duration_ns)
            return 0
        with self.device.stream(stream):
            self.device.launch(FREE, (duration_ns,))
        return stream.end_ns


class SimulatedRuntime:
    """`cupy.cuda.runtime`: one device, and a driver of the same CUDA."""

    is_hip = False

    def __init__(self, cuda: SimulatedCupyCuda) -> None:
        self._cuda = cuda
        self.CUDARuntimeError = CUDARuntimeError

    def driverGetVersion(self) -> int:
        return CUDA

    def runtimeGetVersion(self) -> int:
        return CUDA

    def getDeviceCount(self) -> int:
        return 1

    def setDevice(self, device: int) -> None:
        """Nothing to choose: there is one device."""

    def getDeviceProperties(self, device: int) -> dict[str, Any]:
        return {"name": self._cuda.device.name.encode()}

    def deviceSynchronize(self) -> None:
        self._cuda.device.synchronize()

    def streamQuery(self, ptr: int) -> int:
        return SUCCESS if self._cuda.streams[ptr].query() else NOT_READY

    def eventQuery(self, ptr: int) -> int:
        event = self._cuda.events.get(ptr)
        return INVALID if event is None else SUCCESS if event.point.query() else NOT_READY


class CUDARuntimeError(RuntimeError):
    """As CuPy's: made of a cudaError_t."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError {status}")
        self.status = status


class CompileException(Exception):
    """As CuPy's."""


class SimulatedStream:
    """`cupy.cuda.Stream`."""

    def __init__(self, cuda: SimulatedCupyCuda, timeline: SimStream, priority: int = 0) -> None:
        self._cuda, self.timeline = cuda, timeline
        self.ptr, self.priority = cuda.pointer(timeline), priority

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SimulatedStream) and other.timeline is self.timeline

    def __hash__(self) -> int:
        return self.ptr

    def __enter__(self) -> SimulatedStream:
        self._cuda.entered.set((*self._cuda.entered.get(), self.timeline))
        return self

    def __exit__(self, *error: object) -> None:
        self._cuda.entered.set(self._cuda.entered.get()[:-1])

    def synchronize(self) -> None:
        self.timeline.synchronize()

    def wait_event(self, event: SimulatedEvent) -> None:
        self.timeline.wait_event(event.point)

    def begin_capture(self) -> None:
        self._cuda.capturing[self.timeline] = []

    def end_capture(self) -> SimulatedGraph:
        return SimulatedGraph(self._cuda, self._cuda.capturing.pop(self.timeline))


class SimulatedEvent:
    """`cupy.cuda.Event`."""

    def __init__(self, cuda: SimulatedCupyCuda, point: SimEvent) -> None:
        self._cuda, self.point, self.ptr = cuda, point, next(cuda.next_event)
        cuda.events[self.ptr] = self

    def record(self, stream: SimulatedStream | None = None) -> None:
        self.point.record(stream.timeline if stream else self._cuda.current())

    def synchronize(self) -> None:
        self.point.synchronize()


class SimulatedGraph:
    """`cupy.cuda.Graph`: the durations of the kernels captured."""

    def __init__(self, cuda: SimulatedCupyCuda, durations_ns: list[int]) -> None:
        self._cuda, self.durations_ns = cuda, durations_ns

    def launch(self) -> None:
        with self._cuda.device.stream(self._cuda.current()):
            self._cuda.device.replay(FREE, self.durations_ns)


class SimulatedArray:
    """`cupy.ndarray`, as far as a copy to the host needs it."""

    def __init__(self, cuda: SimulatedCupyCuda, values: Any) -> None:
        self._cuda, self._values = cuda, values
        self.shape, self.dtype = values.shape, values.dtype

    def get(self, *, out: Any, blocking: bool = True) -> Any:
        with self._cuda.device.stream(self._cuda.current()):
            self._cuda.device.to_host(None, nbytes=self._values.nbytes, pinned=not blocking)
        out[...] = self._values
        return out


class SimulatedModule:
    """`cupy.RawModule` of `synthetic_models.cupy_kernels`: what its kernels do, on a timeline."""

    def __init__(self, cuda: SimulatedCupyCuda) -> None:
        self._cuda = cuda
        self._kernels: dict[str, Callable[..., None]] = {
            SPIN: self._spin,
            SPIN_BETWEEN: self._spin_between,
            TIMESTAMP: self._timestamp,
            HOLD: self._hold,
        }

    def get_function(self, name: str) -> Callable[..., None]:
        kernel = self._kernels[name]

        def launch(grid: tuple[int], block: tuple[int], arguments: tuple[int, ...]) -> None:
            kernel(*arguments)

        return launch

    def _spin(self, cycles: int, cap_ns: int) -> None:
        self._cuda.launch(min(cycles, cap_ns))

    def _spin_between(self, cycles: int, cap_ns: int, began_ended: int) -> None:
        duration_ns = min(cycles, cap_ns)
        end_ns = self._cuda.launch(duration_ns)
        _word(began_ended).value = EPOCH_NS + end_ns - duration_ns
        _word(began_ended + 8).value = EPOCH_NS + end_ns

    def _timestamp(self, ns: int) -> None:
        _word(ns).value = EPOCH_NS + self._cuda.launch(0)

    def _hold(self, timeout_ns: int, flag: int, outcome: int) -> None:
        released = _word(flag).value != 0
        self._cuda.launch(0 if released else timeout_ns)
        _word(outcome).value = RELEASED if released else TIMED_OUT


class SharedCuda(SimulatedCuda):
    """torch.cuda's names over CuPy's streams."""

    def __init__(self, device: SimDevice, cuda: SimulatedCupyCuda) -> None:
        super().__init__(device)
        self._cuda = cuda

    def ExternalStream(self, stream_ptr: int, device: Any = None) -> SimStream:
        """As torch: a null pointer counts as none, and makes a new stream."""
        return self._cuda.streams[stream_ptr] if stream_ptr else self._device.Stream()

    def default_stream(self, device: Any = None) -> SimStream:
        return self._cuda.streams[0]


def _word(address: int) -> ctypes.c_uint64:
    """The 8 bytes of pinned memory at this address."""
    return ctypes.c_uint64.from_address(address)
