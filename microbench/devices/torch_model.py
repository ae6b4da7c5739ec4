"""One decode step on a torch device: real kernels or spins, launched one by one or replayed as a graph."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from microbench.devices.spec import StepSpec
from microbench.protocols import Batch

if TYPE_CHECKING:
    from microbench.devices.torch_cuda import TorchDevice


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
        self._step, self._plan_sync, self._watch = step, spec.plan_sync, device.watchdog.watch
        self._planning, self._forwarding, self._sampling = (device.range(n) for n in ("plan", "forward", "sample"))
        self._run = device.prepare(step.run, graph=spec.graph is not None)
        # The host frees and reuses a batch's tensors in the order of its own stream, not of the one that reads them.
        self._alive: deque[tuple[Any, Any]] = deque(maxlen=2)

    def plan(self, batch: Batch) -> None:
        if self._plan_sync:
            with self._planning:
                self._watch("the read-back of a plan", batch.seq_lens.cpu)

    def forward(self, batch: Batch) -> None:
        with self._forwarding:
            self._alive.append((batch.input_ids, batch.seq_lens))
            self._step.load(batch.input_ids, batch.seq_lens)
            self._watch("room in the launch queue for a forward", self._run)

    def sample(self, batch: Batch) -> Any:
        with self._sampling:
            ids = self._step.sample()
            return batch.next_ids() if ids is None else ids.to(batch.input_ids.dtype)
