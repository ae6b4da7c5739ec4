"""A GPU through torch.cuda (CUDA, or ROCm under the same names). Twin of `devices.sim`.

A wait inside the driver can't be interrupted, so each is watched (`devices.watchdog`) for longer than the host's
time-out: `synchronize` of events, streams and the device, the read-back of a plan, a pageable copy, and the launches of
a forward, which block once about 1,000 are pending.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from microbench.devices.refusals import INSTEAD, advice, no_gpu, shortened, vendor
from microbench.devices.spec import StepSpec
from microbench.devices.torch_model import SpinStep, TorchModel
from microbench.devices.watchdog import Watchdog, watched
from microbench.errors import Unavailable, UsageError
from microbench.nvml import GpuState, gpu_state, torch_ids
from microbench.protocols import Host

RING = 16
"""Pinned buffers. A scheduler that overlaps has two copies unread, one of many steps as many; the rest is spare."""
WARM_UP = 3
"""Runs before a capture: libraries choose their kernels and take their workspace on the first ones."""
_FIRST_CYCLES, _MOST_CYCLES = 10_000, 10**12
"""Spun to calibrate, four times as many each time, until a spin lasts a millisecond. What a cycle is, is the GPU's: of
the SM clock on CUDA, of a fixed 100 MHz clock on some AMD cards."""
_SETTLE_MS = 25.0
"""Spun before the two that are compared: until the clock is up and the rest enqueued."""


class TorchCopy:
    """Values on their way into a pinned buffer, which until then holds what was copied there before."""

    def __init__(self, buffer: Any, turns: list[int], turn: int) -> None:
        self._buffer, self._turns, self._turn = buffer, turns, turn

    def tolist(self) -> list[int]:
        """Raises RuntimeError when `RING` later copies were enqueued: the buffer is theirs now."""
        if self._turns[self._turn % RING] != self._turn:
            raise RuntimeError(f"this copy was read too late: its buffer was reused after {RING} more copies")
        values: list[int] = self._buffer.tolist()
        return values


class Range:
    """A named range in a profile (NVTX, rocTX), nested by thread; may be entered again and again."""

    def __init__(self, push: Callable[[str], Any], pop: Callable[[], Any], name: str) -> None:
        self._push, self._pop, self._name = push, pop, name

    def __enter__(self) -> None:
        self._push(self._name)

    def __exit__(self, *error: object) -> None:
        self._pop()


class TorchDevice:
    """Device `index` of `module` (torch.cuda, or an object with its names), which becomes this thread's current one.

    Streams and events are the module's own, so what they cost is torch's: only `synchronize` has a time-out around it,
    the host's, past which `watchdog.end` is called. Launches cost what they cost here; the launch costs of a StepSpec
    are for a modelled GPU.

    torch keeps the current device by thread. On an index other than 0, tasks on further threads work inside `stream()`,
    which makes the stream's device current: `with device.stream(device.current_stream())` at least.
    """

    modelled = False

    def __init__(self, host: Host, *, module: Any = None, tensor_device: str = "cuda", index: int = 0) -> None:
        if module is None:
            import torch.cuda

            module = torch.cuda
        self.host, self.module, self.tensor_device, self.index = host, module, tensor_device, index
        module.set_device(index)
        self.name: str = module.get_device_name(index)
        self.watchdog = Watchdog(getattr(host, "timeout_s", 60.0))
        self._event_kind = watched(type(module.Event()), self.watchdog)
        self._stream_kind = watched(type(module.current_stream(index)), self.watchdog)
        self._push, self._pop = _profiler_ranges(module)
        self._buffers: list[Any] = [None] * RING
        self._turns = [-1] * RING
        self._next_turn = itertools.count()
        self._zeros: dict[int, Any] = {}
        self._cycles_per_ns = self._calibrate()

    def priority_range(self) -> tuple[int, int]:
        """The least and the greatest stream priority, for example (0, -5): the lower number goes first."""
        least, greatest = self.module.Stream.priority_range()
        return least, greatest

    def Stream(self, *, priority: int = 0) -> Any:
        """Raises UsageError for a priority that the device doesn't have; torch would take the nearest in silence."""
        if priority != 0:
            least, greatest = self.priority_range()
            if not greatest <= priority <= least:
                raise UsageError(f"stream priority {priority}: {self.name} has {greatest} (goes first) to {least}")
        return self._watched(self.module.Stream(device=self.index, priority=priority))

    def Event(self, *, enable_timing: bool = False, blocking: bool = False) -> Any:
        event = self.module.Event(enable_timing=enable_timing, blocking=blocking)
        event.__class__ = self._event_kind
        return event

    def current_stream(self) -> Any:
        return self._watched(self.module.current_stream(self.index))

    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.module.stream(stream)
        return context

    def range(self, name: str) -> Range:
        """A range in a profile of what the thread does within; costs two calls where no profiler listens."""
        return Range(self._push, self._pop, name)

    def gpu_state(self) -> GpuState | None:
        """Clocks, power and throttling now; None where NVML is absent or doesn't know this GPU, as on AMD."""
        uuid, bus_id = torch_ids(self.module.get_device_properties(self.index))
        return gpu_state(uuid, bus_id) if uuid or bus_id else None

    def notes(self) -> tuple[str, ...]:
        """What every figure of this GPU must be read with: that it is a slice, or shared."""
        facts = gpu_facts(self.module, self.index)
        slice_of = f"MIG slice {facts['mig']}" if facts["mig"] else ""
        return tuple(note for note in (slice_of, "shared through MPS" if facts["mps"] else "") if note)

    def synchronize(self) -> None:
        self.watchdog.watch(self.name, self.module.synchronize, self.index)

    def busy_ns(self) -> None:
        """Only the GPU knows."""

    def to_host(self, values: Any, *, nbytes: int, pinned: bool = True) -> Any:
        """Enqueue a copy of the tensor `values`; a pageable one blocks. None: `nbytes` zeros, to copy just anything."""
        if values is None:
            values = self._zero_bytes(nbytes)
        if not pinned:
            return self.watchdog.watch("a pageable copy", values.cpu)
        turn = next(self._next_turn)
        slot = turn % RING
        buffer = self._buffers[slot]
        if buffer is None or buffer.shape != values.shape or buffer.dtype != values.dtype:
            import torch

            # Only a GPU's values need pinned memory, and only with one can it be had.
            buffer = torch.empty(values.shape, dtype=values.dtype, pin_memory=values.is_cuda)
            self._buffers[slot] = buffer
        self._turns[slot] = turn
        buffer.copy_(values, non_blocking=True)
        return TorchCopy(buffer, self._turns, turn)

    def _zero_bytes(self, nbytes: int) -> Any:
        if nbytes not in self._zeros:
            import torch

            self._zeros[nbytes] = torch.zeros(nbytes, dtype=torch.uint8, device=self.tensor_device)
        return self._zeros[nbytes]

    def spin(self, ns: int) -> None:
        """Enqueue a kernel of `ns` on the current stream."""
        self.module._sleep(self.cycles(ns))

    def cycles(self, ns: int) -> int:
        """What `_sleep` takes to last `ns`, at the clock of the calibration."""
        return round(ns * self._cycles_per_ns)

    def model(self, spec: StepSpec) -> TorchModel:
        """A transformer where the spec has an architecture, else spins of its durations.

        Raises Unavailable when weights, KV cache and buffers don't fit the memory that is free.
        """
        architecture, batch, context = spec.architecture, spec.batch, spec.context
        if architecture is None:
            return TorchModel(self, spec, SpinStep(self, spec))
        from synthetic_models.torch_kernels import TransformerStep, memory_bytes

        needed = memory_bytes(architecture, batch=batch, context=context)
        self.module.empty_cache()
        free, _ = self.module.mem_get_info(self.index)
        if needed > free:
            raise Unavailable(
                f"{architecture.name} at batch {batch} and context {context} needs {needed / 1e9:.1f} GB, "
                f"{self.name} has {free / 1e9:.1f} GB free; take a smaller model, batch or context, or free memory"
            )
        step = TransformerStep(architecture, batch=batch, context=context, device=self.tensor_device)
        return TorchModel(self, spec, step)

    def prepare(self, work: Callable[[], None], *, graph: bool) -> Callable[[], None]:
        """Warm `work` up on a side stream; returns it, or the replay of its graph, which uses the current stream."""
        module, current, side = self.module, self.current_stream(), self.Stream()
        side.wait_stream(current)
        with self.stream(side):
            for _ in range(WARM_UP):
                work()
        current.wait_stream(side)
        if not graph:
            return work
        captured = module.CUDAGraph()
        with module.graph(captured, stream=side):
            work()
        replay: Callable[[], None] = captured.replay
        return replay

    def _watched(self, stream: Any) -> Any:
        # torch makes a new object for the current stream each time, so it is not made as one of the watched class but
        # becomes one, which takes no more than setting a field.
        stream.__class__ = self._stream_kind
        return stream

    def _calibrate(self) -> float:
        """Cycles of `_sleep` per ns, from the difference of two spins, so that what each kernel adds drops out.

        Raises Unavailable where a spin doesn't last.
        """
        start, middle, end = (self.Event(enable_timing=True) for _ in range(3))
        sleep, cycles, lasts_ms = self.module._sleep, _FIRST_CYCLES, 0.0
        sleep(cycles)  # loads the kernel
        while lasts_ms < 1 and cycles < _MOST_CYCLES:
            cycles *= 4
            start.record()
            sleep(cycles)
            end.record()
            end.synchronize()
            lasts_ms = start.elapsed_time(end)
        if lasts_ms >= 1:
            sleep(round(cycles * _SETTLE_MS / lasts_ms))
            start.record()
            sleep(cycles)
            middle.record()
            sleep(3 * cycles)
            end.record()
            end.synchronize()
            more_ms = middle.elapsed_time(end) - start.elapsed_time(middle)
            if more_ms > 0:
                return float(2 * cycles / more_ms / 1e6)
        raise Unavailable(
            f"{self.name}: torch.cuda._sleep doesn't last as long as it is told to; use another torch build"
        )


def _profiler_ranges(module: Any) -> tuple[Callable[[str], Any], Callable[[], Any]]:
    """Push and pop of the module's profiler ranges; calls that do nothing in a build without."""
    try:
        push, pop = module.nvtx.range_push, module.nvtx.range_pop
        push("microbench")
        pop()
    except (AttributeError, RuntimeError):
        return lambda name: None, lambda: None
    return push, pop


def open_torch(host: Host, index: int = 0) -> TorchDevice:
    """The GPU of this index. Raises Unavailable, in one line, saying what is missing and what to do."""
    try:
        import torch
    except ImportError:
        raise Unavailable(f"torch is not installed; install it with CUDA, {INSTEAD}") from None
    backend: Any = torch.backends.cuda
    if not backend.is_built():
        raise Unavailable(f"torch {torch.__version__} was built without CUDA; install a CUDA build, {INSTEAD}")
    hip: str | None = torch.version.hip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    if not available:
        text = "\n".join(str(warning.message) for warning in caught)
        raise Unavailable(no_gpu(text, hip=hip, built_for=torch.version.cuda))
    count = torch.cuda.device_count()
    if not 0 <= index < count:
        name = vendor(hip).variables[0]
        limited = f" with {name}={os.environ[name]}" if name in os.environ else ""
        raise Unavailable(f"there is no GPU {index}: torch sees {count}{limited}, numbered from 0")
    try:
        return TorchDevice(host, tensor_device=f"cuda:{index}", index=index)
    except RuntimeError as error:
        do = advice(str(error), f"check {vendor(hip).tool}")
        raise Unavailable(f"GPU {index} does not answer: {shortened(error)}; {do}") from error


def gpu_facts(module: Any, index: int | None = None) -> dict[str, str | int | None]:
    """What device `index` is (default: the current one); None where unknown or not so.

    name, memory_bytes, capability (compute capability, or the architecture of an AMD card), cuda_driver and
    cuda_runtime (versions), hip_runtime, mig (the profile of the slice this is), mps (where its clients connect).
    """
    import torch

    properties = module.get_device_properties(module.current_device() if index is None else index)
    driver = runtime = hip = mps = None
    if module is torch.cuda:
        runtime, hip = torch.version.cuda, torch.version.hip
        # Not in torch's public interface, and absent from builds without CUDA.
        version = getattr(torch._C, "_cuda_getDriverVersion", lambda: None)()
        driver = f"{version // 1000}.{version % 1000 // 10}" if version and not hip else None
        mps = mps_pipe()
    _, sliced, profile = str(properties.name).partition(" MIG ")
    return {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "capability": getattr(properties, "gcnArchName", None) or f"{properties.major}.{properties.minor}",
        "cuda_driver": driver,
        "cuda_runtime": runtime,
        "hip_runtime": hip,
        "mig": profile if sliced else None,
        "mps": mps,
    }


def mps_pipe(default: Path = Path("/tmp/nvidia-mps")) -> str | None:
    """The folder through which CUDA reaches an MPS daemon, which shares the GPU among processes; None without one.

    CUDA_MPS_PIPE_DIRECTORY, or the default of docs.nvidia.com/deploy/mps.
    """
    named = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
    folder = Path(named) if named else default
    return str(folder) if (folder / "control").exists() else None
