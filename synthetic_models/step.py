"""How long the GPU works on one step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .architectures import Architecture
from .batches import Batch
from .gpus import Gpu, kernel_ns
from .kernels import Kernel, step_kernels


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """GPU time of each launch of one step in ns, in launch order: the forward's, then those that sample."""

    forward_ns: tuple[int, ...]
    sample_ns: tuple[int, ...]

    @property
    def forward_total_ns(self) -> int:
        """GPU time of the forward."""
        return sum(self.forward_ns)

    @property
    def sample_total_ns(self) -> int:
        """GPU time of sampling."""
        return sum(self.sample_ns)

    @property
    def total_ns(self) -> int:
        """GPU time of the step, without gaps between launches."""
        return self.forward_total_ns + self.sample_total_ns


def step_time(architecture: Architecture, gpu: Gpu, batch: Batch) -> StepTime:
    """The modelled GPU time of one step of `batch`, decode or prefill; memory is not checked (see check_fits)."""
    step = step_kernels(architecture, batch)
    layers = _launches_ns(gpu, step.layer) * step.layers
    return StepTime(
        forward_ns=_launches_ns(gpu, step.before) + layers + _launches_ns(gpu, step.after),
        sample_ns=_launches_ns(gpu, step.sampling),
    )


def _launches_ns(gpu: Gpu, kernels: Iterable[Kernel]) -> tuple[int, ...]:
    durations: list[int] = []
    for kernel in kernels:
        each, rest = divmod(kernel_ns(gpu, kernel), kernel.launches)
        durations += [each + 1] * rest + [each] * (kernel.launches - rest)
    return tuple(durations)
