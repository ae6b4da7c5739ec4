"""A CUDA GPU through torch: its own streams, events, graphs and pinned copies. Twin of `devices.sim`."""

from __future__ import annotations

import itertools
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from microbench.devices.spec import StepSpec
from microbench.errors import Unavailable
from microbench.protocols import Batch, Host

RING = 4
"""Pinned buffers. An overlapping scheduler has two copies unread at most; the rest is for those who look later."""
WARM_UP = 3
"""Runs before a capture: libraries choose their kernels and take their workspace on the first ones."""
_SETTLE, _SHORT, _LONG = 50_000_000, 2_000_000, 6_000_000
"""Cycles spun to calibrate: until the clock is up and the rest enqueued, then the two that are compared."""


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


class Step(Protocol):
    """The kernels of a decode step. `run` enqueues the same work on the same memory each time."""

    def load(self, ids: Any, seq_lens: Any) -> None: ...

    def run(self) -> None: ...

    def sample(self) -> Any:
        """The sampled ids, or None where the batch knows them."""
        ...


class SpinStep:
    """Kernels that spin for given durations and compute nothing."""

    def __init__(self, device: TorchDevice, spec: StepSpec) -> None:
        self._sleep = device.module._sleep
        self._forward = [device.cycles(ns) for ns in spec.forward_ns]
        self._sample = [device.cycles(ns) for ns in spec.sample_ns]

    def load(self, ids: Any, seq_lens: Any) -> None:
        """Spins read nothing."""

    def run(self) -> None:
        for cycles in self._forward:
            self._sleep(cycles)

    def sample(self) -> None:
        for cycles in self._sample:
            self._sleep(cycles)


class TorchModel:
    """A step launched kernel by kernel, or, where the spec has a graph, captured and replayed."""

    def __init__(self, device: TorchDevice, spec: StepSpec, step: Step) -> None:
        self._step, self._plan_sync = step, spec.plan_sync
        self._run = device.prepare(step.run, graph=spec.graph is not None)
        # The host frees and reuses a batch's tensors in the order of its own stream, not of the one that reads them.
        self._alive: deque[tuple[Any, Any]] = deque(maxlen=2)

    def plan(self, batch: Batch) -> None:
        if self._plan_sync:
            batch.seq_lens.cpu()

    def forward(self, batch: Batch) -> None:
        self._alive.append((batch.input_ids, batch.seq_lens))
        self._step.load(batch.input_ids, batch.seq_lens)
        self._run()

    def sample(self, batch: Batch) -> Any:
        ids = self._step.sample()
        return batch.next_ids() if ids is None else ids.to(batch.input_ids.dtype)


class TorchDevice:
    """Device `index` of `module` (torch.cuda, or an object with its names), which becomes the current one.

    Streams and events are the module's own, so what they cost is torch's. Launches cost what they cost here; the launch
    costs of a StepSpec are for a modelled GPU. On an index other than 0, tasks on further threads work inside
    `stream()`, because torch keeps the current device by thread.
    """

    modelled = False

    def __init__(self, host: Host, *, module: Any = None, tensor_device: str = "cuda", index: int = 0) -> None:
        if module is None:
            import torch.cuda

            module = torch.cuda
        self.host, self.module, self.tensor_device, self.index = host, module, tensor_device, index
        module.set_device(index)
        self.name: str = module.get_device_name(index)
        self._buffers: list[Any] = [None] * RING
        self._turns = [-1] * RING
        self._next_turn = itertools.count()
        self._cycles_per_ns = self._calibrate()

    def Stream(self, *, priority: int = 0) -> Any:
        return self.module.Stream(device=self.index, priority=priority)

    def Event(self, *, enable_timing: bool = False, blocking: bool = False) -> Any:
        return self.module.Event(enable_timing=enable_timing, blocking=blocking)

    def current_stream(self) -> Any:
        return self.module.current_stream(self.index)

    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.module.stream(stream)
        return context

    def synchronize(self) -> None:
        self.module.synchronize(self.index)

    def busy_ns(self) -> None:
        """Only the GPU knows."""

    def to_host(self, values: Any, *, nbytes: int, pinned: bool = True) -> Any:
        """Enqueue a copy of the tensor `values` (`nbytes` is for its modelled twin); a pageable one blocks."""
        if not pinned:
            return values.cpu()
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

    def _calibrate(self) -> float:
        """Cycles of `_sleep` per ns, from the difference of two spins, so that what each kernel adds drops out."""
        start, middle, end = (self.Event(enable_timing=True) for _ in range(3))
        self.module._sleep(_SETTLE)
        start.record()
        self.module._sleep(_SHORT)
        middle.record()
        self.module._sleep(_LONG)
        end.record()
        end.synchronize()
        return float((_LONG - _SHORT) / (middle.elapsed_time(end) - start.elapsed_time(middle)) / 1e6)


def open_torch(host: Host, index: int = 0) -> TorchDevice:
    """The CUDA GPU of this index. Raises Unavailable, in one line, saying what is missing and what to do."""
    instead = "or measure on a modelled GPU (real+sim:a100-80g)"
    try:
        import torch
    except ImportError:
        raise Unavailable(f"torch is not installed; install it with CUDA, {instead}") from None
    backend: Any = torch.backends.cuda
    if not backend.is_built():
        raise Unavailable(f"torch {torch.__version__} was built without CUDA; install a CUDA build, {instead}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    if not available:
        why = f": {_first_line(caught[0].message)}" if caught else ""
        raise Unavailable(f"torch sees no GPU{why}; check nvidia-smi and CUDA_VISIBLE_DEVICES, {instead}")
    count = torch.cuda.device_count()
    if not 0 <= index < count:
        raise Unavailable(f"there is no GPU {index}: torch sees {count}, numbered from 0")
    try:
        return TorchDevice(host, tensor_device=f"cuda:{index}", index=index)
    except RuntimeError as error:
        raise Unavailable(f"GPU {index} does not answer: {_first_line(error)}; check nvidia-smi") from error


def gpu_facts(module: Any) -> dict[str, str | int | None]:
    """The current device: name, memory in bytes, compute capability, CUDA of driver and runtime; None where unknown."""
    import torch

    properties = module.get_device_properties(module.current_device())
    driver = runtime = None
    if module is torch.cuda:
        runtime = torch.version.cuda
        # Not in torch's public interface, and absent from builds without CUDA.
        version = getattr(torch._C, "_cuda_getDriverVersion", lambda: None)()
        driver = f"{version // 1000}.{version % 1000 // 10}" if version else None
    return {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "capability": f"{properties.major}.{properties.minor}",
        "cuda_driver": driver,
        "cuda_runtime": runtime,
    }


def _first_line(message: object) -> str:
    return str(message).strip().split("\n")[0].rstrip(".")
