"""How long one launch of a class of kernels takes: one law, a few constants."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2


@dataclass(frozen=True, kw_only=True)
class KernelClass:
    """The constants of a class of kernels on one GPU.

    compute, memory: the shares of the peak FLOP/s and of the bandwidth that large kernels reach.
    floor_ns: what a launch takes however little it does: start, tail, dependent memory accesses.
    depth_ns: what each doubling of a GEMM's inner dimension beyond 64 adds to that.
    serial: how far the times of memory and of compute add up where neither dominates: 1 fully, near 0 only the longer
    one counts.
    ramp: how that work adds to the start: 1 on top of it; below 1 more, because bandwidth is reached only slowly.
    All shares are above 0 and at most 1.
    """

    compute: float
    memory: float
    floor_ns: int
    depth_ns: int = 0
    serial: float = 0.1
    ramp: float = 1.0

    def launch_ns(self, memory_ns: float, compute_ns: float, depth: int = 0) -> float:
        """ns of a launch that would take `memory_ns` and `compute_ns` at the datasheet's peaks.

        start = floor + depth_ns * log2(1 + depth / 64)
        work = (memory^p + compute^p)^(1/p) with p = 1 / serial: a roofline with a rounded ridge
        time = (start^ramp + work^ramp)^(1/ramp)
        """
        start = self.floor_ns + self.depth_ns * log2(1 + depth / 64)
        memory, compute = memory_ns / self.memory, compute_ns / self.compute
        longer, shorter = (memory, compute) if memory > compute else (compute, memory)
        work = longer * (1 + (shorter / longer) ** (1 / self.serial)) ** self.serial if shorter > 0 else longer
        if self.ramp == 1 or not work or not start:
            return start + work
        return float((start**self.ramp + work**self.ramp) ** (1 / self.ramp))
