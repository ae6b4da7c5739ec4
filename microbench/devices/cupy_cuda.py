"""A CUDA GPU through CuPy: its streams, events and graphs, and kernels of its own. Twin of `devices.torch_cuda`.

A stream made current here is current for CuPy and for torch, so that the engine's torch ops and CuPy's kernels are in
one queue.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from microbench.devices.cupy_checks import advised, check_driver, import_cupy, torch_cuda
from microbench.devices.cupy_streams import CupyEvent, CupyStream
from microbench.devices.cupy_words import Hold, Timestamp, Words
from microbench.devices.refusals import INSTEAD
from microbench.devices.spec import StepSpec
from microbench.devices.torch_cuda import RING, WARM_UP, Range, TorchCopy, TorchDevice
from microbench.devices.torch_model import TorchModel
from microbench.devices.watchdog import Watchdog
from microbench.errors import Unavailable, UsageError
from microbench.nvml import GpuState, gpu_state
from microbench.protocols import Batch, Host
from synthetic_models.cupy_kernels import HOLD, KERNELS, SOURCE, SPIN, SPIN_BETWEEN, TIMESTAMP

ONE = ((1,), (1,))
"""Grid and block of one thread."""
_SETTLE_CYCLES, _CYCLES = 50_000_000, 20_000_000
"""Spun to calibrate: until the SM clock is up, then what is timed (10 ms or so, in which a step of 32 us is 0.3 %)."""
_SHORTEST_CAP_NS, _CAP_FACTOR = 1_000_000, 16
"""A spin ends at the latest after 16 times its length and 1 ms: an idle SM clock is 210 MHz, a boosted one 3 GHz."""


class CupySpins:
    """Kernels that spin for a spec's durations and compute nothing."""

    def __init__(self, device: CupyDevice, spec: StepSpec) -> None:
        self._kernel = device.kernels[SPIN]
        self._forward = [device.spin_arguments(ns) for ns in spec.forward_ns]
        self._sample = [device.spin_arguments(ns) for ns in spec.sample_ns]

    def load(self, ids: Any, seq_lens: Any) -> None:
        """Spins read nothing."""

    def run(self) -> None:
        for arguments in self._forward:
            self._kernel(*ONE, arguments)

    def sample(self) -> None:
        for arguments in self._sample:
            self._kernel(*ONE, arguments)


class CupySpinModel(TorchModel):
    """CuPy's spins, launched one by one or as a graph that CuPy captured."""

    def __init__(self, device: CupyDevice, spec: StepSpec) -> None:
        super().__init__(device, spec, CupySpins(device, spec))  # type: ignore[arg-type]
        self._device, self._reads_back = device, spec.plan_sync

    def plan(self, batch: Batch) -> None:
        if self._reads_back:
            self._device.to_host(batch.seq_lens, nbytes=batch.seq_lens.nbytes, pinned=False)


class CupyDevice:
    """Device `index` of `module` (cupy, or an object with its names), which becomes the current one.

    torch_module: the torch.cuda that sees the same GPU (default: the `torch_cuda` of `module`, if it brings one); None
        without: then tensors stay on the host (`tensor_device="cpu"`), copying them back includes copying them there,
        and there are no transformer steps.
    Kernels, events and copies are CuPy's own, so what they cost is CuPy's, and one Python call around it. On an index
    other than 0, tasks on further threads work inside `stream()`: CUDA keeps the current device by thread. Waits end
    the process when they take longer than the host's time-out (`devices.watchdog`).
    """

    modelled = False

    def __init__(
        self, host: Host, *, module: Any, torch_module: Any = None, tensor_device: str = "cuda", index: int = 0
    ) -> None:
        self.host, self.module, self.tensor_device, self.index = host, module, tensor_device, index
        self.torch_module: Any = torch_module or getattr(module, "torch_cuda", None)
        self.runtime = module.cuda.runtime
        self.runtime.setDevice(index)
        name = self.runtime.getDeviceProperties(index)["name"]
        self.name: str = name.decode() if isinstance(name, bytes) else name
        self.watchdog = Watchdog(getattr(host, "timeout_s", 60.0))
        self._buffers: list[Any] = [None] * RING
        self._turns = [-1] * RING
        self._next_turn = itertools.count()
        # All at once: allocating pinned memory waits for the GPU, so behind a hold it would wait for the time-out.
        self._words = Words(self._pinned(Words.SHAPE, Words.DTYPE))
        self._zeros: dict[int, Any] = {}
        self._torch_device: TorchDevice | None = None
        compiled = module.RawModule(code=SOURCE)
        self.kernels: dict[str, Any] = {kernel: compiled.get_function(kernel) for kernel in KERNELS}
        self._cycles_per_ns = self._calibrate()

    def Stream(self, *, priority: int = 0) -> CupyStream:
        """Raises UsageError for a priority that the device doesn't have; CUDA would take the nearest in silence."""
        self.runtime.setDevice(self.index)
        raw = self.module.cuda.Stream(non_blocking=True, priority=priority)
        if priority != 0 and raw.priority != priority:
            raise UsageError(f"stream priority {priority}: the nearest that {self.name} has is {raw.priority}")
        return CupyStream(self, raw)

    def Event(self, *, enable_timing: bool = False, blocking: bool = False) -> CupyEvent:
        return CupyEvent(self, self.module.cuda.Event(block=blocking, disable_timing=not enable_timing))

    def current_stream(self) -> CupyStream:
        return CupyStream(self, self.module.cuda.get_current_stream())

    @contextmanager
    def stream(self, stream: CupyStream) -> Iterator[CupyStream]:
        """Make `stream` current for this thread, in CuPy and in torch."""
        self.runtime.setDevice(self.index)
        with stream.raw:
            if self.torch_module is None:
                yield stream
            else:
                with self.torch_module.stream(stream.torch):
                    yield stream

    def range(self, name: str) -> Range:
        """A range in a profile (NVTX) of what the thread does within."""
        return Range(self.module.cuda.nvtx.RangePush, self.module.cuda.nvtx.RangePop, name)

    def gpu_state(self) -> GpuState | None:
        """Clocks, power and throttling now; None where NVML is absent or doesn't know this GPU."""
        facts = self.runtime.getDeviceProperties(self.index)
        if "pciBusID" not in facts:
            return None
        bus_id = f"{facts['pciDomainID']:08x}:{facts['pciBusID']:02x}:{facts['pciDeviceID']:02x}.0"
        return gpu_state(None, bus_id)

    def synchronize(self) -> None:
        self.runtime.setDevice(self.index)
        self.watchdog.watch(f"all work of {self.name}", self.runtime.deviceSynchronize)

    def busy_ns(self) -> None:
        """Only the GPU knows."""

    def to_host(self, values: Any, *, nbytes: int, pinned: bool = True) -> TorchCopy | Any:
        """Enqueue a copy of `values`, a tensor of torch or an array; a pageable one blocks. None: `nbytes` zeros."""
        array = self._zero_bytes(nbytes) if values is None else self.module.asarray(values)
        if not pinned:
            import numpy

            pageable = numpy.empty(array.shape, array.dtype)
            return self.watchdog.watch("a pageable copy", lambda: array.get(out=pageable))
        turn = next(self._next_turn)
        slot = turn % RING
        buffer = self._buffers[slot]
        if buffer is None or buffer.shape != array.shape or buffer.dtype != array.dtype:
            buffer = self._buffers[slot] = self._pinned(array.shape, array.dtype)
        self._turns[slot] = turn
        array.get(out=buffer, blocking=False)
        return TorchCopy(buffer, self._turns, turn)

    def spin(self, ns: int) -> None:
        """Enqueue a kernel of `ns` on the current stream."""
        self.kernels[SPIN](*ONE, self.spin_arguments(ns))

    def spin_arguments(self, ns: int) -> tuple[int, int]:
        """What the kernel takes to last `ns`: cycles at the clock of the calibration, and when it gives up, in ns."""
        return round(ns * self._cycles_per_ns), _SHORTEST_CAP_NS + _CAP_FACTOR * ns

    def timestamp(self) -> Timestamp:
        """Enqueue a reading of the GPU's global timer on the current stream."""
        slot = self._words.take()
        self.kernels[TIMESTAMP](*ONE, (slot.address,))
        return Timestamp(slot)

    def hold(self, timeout_ns: int) -> Hold:
        """Hold the current stream until `release()`, or for `timeout_ns`, so that what follows is enqueued behind it.

        Before the release, wait for nothing behind it, launch no kernel for the first time (loading one waits for the
        GPU), and keep below the 1,000 launches or so at which one blocks: each of them ends with the time-out.
        """
        slot = self._words.take()
        self.kernels[HOLD](*ONE, (timeout_ns, slot.address, slot.address + 8))
        return Hold(slot)

    def model(self, spec: StepSpec) -> TorchModel:
        """torch's transformer where the spec has an architecture, on the shared stream, else spins of its durations.

        Raises Unavailable without a CUDA torch for it, and when it doesn't fit the memory that is free.
        """
        if spec.architecture is None:
            return CupySpinModel(self, spec)
        if self.torch_module is None:
            raise Unavailable(
                f"{spec.architecture.name} runs as torch kernels, and torch sees no GPU; "
                f"install a CUDA build of torch, {INSTEAD}"
            )
        if self._torch_device is None:
            self._torch_device = TorchDevice(
                self.host, module=self.torch_module, tensor_device=self.tensor_device, index=self.index
            )
        return self._torch_device.model(spec)

    def prepare(self, work: Callable[[], None], *, graph: bool) -> Callable[[], None]:
        """Warm CuPy `work` up on a side stream; returns it, or the replay of its graph, which uses the current stream.

        Not for torch ops under a graph: torch has to know of a capture, or it reuses the memory that a replay writes.
        """
        current, side = self.current_stream(), self.Stream()
        side.wait_stream(current)
        with self.stream(side):
            for _ in range(WARM_UP):
                work()
        current.wait_stream(side)
        if not graph:
            return work
        with self.stream(side):
            side.raw.begin_capture()
            try:
                work()
            finally:
                captured = side.raw.end_capture()
        replay: Callable[[], None] = captured.launch
        return replay

    def _pinned(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array of zeros in pinned host memory."""
        import numpy

        nbytes = numpy.dtype(dtype).itemsize * int(numpy.prod(shape, dtype=numpy.int64))
        array = numpy.ndarray(shape, dtype, buffer=self.module.cuda.alloc_pinned_memory(nbytes))
        array[...] = 0
        return array

    def _zero_bytes(self, nbytes: int) -> Any:
        if nbytes not in self._zeros:
            self._zeros[nbytes] = self.module.zeros(nbytes, "uint8")
        return self._zeros[nbytes]

    def _calibrate(self) -> float:
        """SM cycles per ns of the global timer. Also runs every kernel once: the first launch of one loads it."""
        slot, never = self._words.take(), 60 * 10**9
        self.kernels[SPIN](*ONE, (_SETTLE_CYCLES, never))
        self.kernels[SPIN_BETWEEN](*ONE, (_CYCLES, never, slot.address))
        stamp, hold = self.timestamp(), self.hold(0)
        self.current_stream().synchronize()
        ns = slot[1] - slot[0]
        if ns <= 0 or not stamp.ns or hold.timed_out is None:
            raise RuntimeError("its kernels wrote no times into pinned memory")
        return _CYCLES / ns


def open_cupy(host: Host, index: int = 0) -> CupyDevice:
    """The CUDA GPU of this index. Raises Unavailable, in one line, saying what is missing and what to do."""
    cupy = import_cupy()
    runtime = cupy.cuda.runtime
    if runtime.is_hip:
        raise Unavailable("this CuPy is built for ROCm, where it has no graphs; use real+torch")
    check_driver(runtime.driverGetVersion(), runtime.runtimeGetVersion())
    try:
        count = runtime.getDeviceCount()
    except RuntimeError as error:
        raise Unavailable(f"CuPy sees no GPU: {advised(error)}, {INSTEAD}") from error
    if not 0 <= index < count:
        raise Unavailable(f"there is no GPU {index}: CuPy sees {count}, numbered from 0")
    torch_module = torch_cuda()
    try:
        return CupyDevice(
            host,
            module=cupy,
            torch_module=torch_module,
            tensor_device=f"cuda:{index}" if torch_module else "cpu",
            index=index,
        )
    except (RuntimeError, OSError, cupy.cuda.compiler.CompileException) as error:
        raise Unavailable(f"GPU {index} does not answer CuPy: {advised(error)}") from error
