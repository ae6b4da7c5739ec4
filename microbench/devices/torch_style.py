"""torch.cuda's names over a modelled GPU, so that code written for `torch.get_device_module()` runs on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any

from microbench.devices.sim import SimDevice, SimEvent, SimStream
from microbench.devices.spec import LaunchCost

FREE = LaunchCost(gil_ns=0, free_ns=0)


class SimulatedCuda:
    """A module-like object: streams, events, spins and graphs on the timelines of `device`.

    Tensors stay in host memory. Torch runs their ops when called, copies included, and these take no time on the
    timelines; `_sleep` and the replay of a graph do. A launch costs the host only the Python that makes it.
    `_sleep` counts cycles of 1 ns.
    """

    def __init__(self, device: SimDevice) -> None:
        self._device = device
        self._capturing: SimGraph | None = None
        self.Stream = _Streams(device)
        self.nvtx = SimpleNamespace(range_push=lambda msg: 0, range_pop=lambda: 0)

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def set_device(self, device: Any) -> None:
        """Nothing to choose: there is one device."""

    def get_device_name(self, device: Any = None) -> str:
        return self._device.name

    def get_device_properties(self, device: Any = None) -> SimpleNamespace:
        """Name and memory in bytes; a modelled GPU has no compute capability, which reads 0.0."""
        return SimpleNamespace(name=self._device.name, total_memory=self.mem_get_info()[1], major=0, minor=0)

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """Bytes free and in all, of the host: that is where the tensors are."""
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page

    def empty_cache(self) -> None:
        """Nothing is cached."""

    def Event(self, enable_timing: bool = False, blocking: bool = False) -> SimEvent:
        return self._device.Event(enable_timing=enable_timing, blocking=blocking)

    def current_stream(self, device: Any = None) -> SimStream:
        return self._device.current_stream()

    def stream(self, stream: SimStream) -> AbstractContextManager[SimStream]:
        return self._device.stream(stream)

    def synchronize(self, device: Any = None) -> None:
        self._device.synchronize()

    def CUDAGraph(self) -> SimGraph:
        return SimGraph(self._device)

    @contextmanager
    def graph(self, cuda_graph: SimGraph, stream: SimStream | None = None) -> Iterator[None]:
        """Capture what is enqueued on `stream` into `cuda_graph`. Tensor ops also run once while captured."""
        self._capturing = cuda_graph
        try:
            with self.stream(stream or self.Stream()), cuda_graph.capture():
                yield
        finally:
            self._capturing = None

    def _sleep(self, cycles: int) -> None:
        if self._capturing is None:
            self._device.launch(FREE, (cycles,))
        else:
            self._capturing.durations_ns.append(cycles)


class _Streams:
    """`torch.cuda.Stream`, which is called for a new one and asked for the range of priorities."""

    def __init__(self, device: SimDevice) -> None:
        self._device = device

    def __call__(self, device: Any = None, priority: int = 0) -> SimStream:
        return self._device.Stream(priority=priority)

    def priority_range(self) -> tuple[int, int]:
        """Least and greatest, as torch gives them for GPUs since Volta. A modelled GPU takes any and heeds none."""
        return 0, -3


class SimGraph:
    """What was captured: kernel durations, and tensor ops that a replay runs again on the same tensors."""

    def __init__(self, device: SimDevice) -> None:
        self._device = device
        self.durations_ns: list[int] = []
        self._ops: list[tuple[Any, Any, Any, Any]] = []

    def capture(self) -> AbstractContextManager[Any]:
        from torch.utils._python_dispatch import TorchDispatchMode

        ops = self._ops

        class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = func(*args, **(kwargs or {}))
                ops.append((func, args, kwargs or {}, result))
                return result

        return Recorder()  # type: ignore[no-untyped-call]

    def replay(self) -> None:
        """Enqueue the durations as one launch on the current stream, and bring the captured tensors up to date."""
        self._device.replay(FREE, self.durations_ns)
        for func, args, kwargs, captured in self._ops:
            result = func(*args, **kwargs)
            olds, news = (captured, result) if isinstance(result, (tuple, list)) else ((captured,), (result,))
            for old, new in zip(olds, news, strict=True):
                # Views and ops in place give the captured memory again.
                if hasattr(new, "data_ptr") and new.data_ptr() != old.data_ptr():
                    old.copy_(new)
