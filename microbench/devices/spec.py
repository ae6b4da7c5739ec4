"""What one decode step enqueues, as a value: kernel durations and what launching them costs the host."""

from __future__ import annotations

from dataclasses import dataclass

from synthetic_models import Architecture


@dataclass(frozen=True, kw_only=True)
class LaunchCost:
    """Host time of one launch in ns: Python with the GIL, then dispatch without it."""

    gil_ns: int
    free_ns: int

    @property
    def total_ns(self) -> int:
        return self.gil_ns + self.free_ns


@dataclass(frozen=True, kw_only=True)
class StepSpec:
    """One decode step. Durations in ns, one per kernel; `graph`: the forward is one replay instead of launches.

    plan_sync: planning waits for the stream to be idle (a blocking copy of the index pointers to the host).
    architecture, batch, context: what a CUDA device builds real kernels from; without an architecture it spins for
        the durations instead.
    """

    forward_ns: tuple[int, ...]
    sample_ns: tuple[int, ...]
    launch: LaunchCost
    sample_launch: LaunchCost
    graph: LaunchCost | None = None
    plan_sync: bool = False
    architecture: Architecture | None = None
    batch: int = 1
    context: int = 1

    @property
    def gpu_ns(self) -> int:
        """GPU time of the whole step."""
        return sum(self.forward_ns) + sum(self.sample_ns)

    @property
    def launch_ns(self) -> int:
        """Host time of all launches of the step with nobody in the way."""
        forward = self.graph.total_ns if self.graph else self.launch.total_ns * len(self.forward_ns)
        return forward + self.sample_launch.total_ns * len(self.sample_ns)


def even_kernels(total_ns: int, launches: int) -> tuple[int, ...]:
    """`launches` kernels of equal length that last `total_ns` together (the last takes the rounding)."""
    each = total_ns // launches
    return (each,) * (launches - 1) + (total_ns - each * (launches - 1),)


SAMPLE_NS = (20_000,) * 10
"""Sampling as SGLang does it with FlashInfer kernels: 10 launches, 0.2 ms at batch 500 and vocabulary 151,936
(0.42 to 0.55 ms with top-k/top-p by github.com/vllm-project/vllm/pull/40376; greedy is less)."""
