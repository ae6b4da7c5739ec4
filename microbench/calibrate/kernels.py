"""Times kernels of real decode steps one at a time on a CUDA device: GEMMs, attention and elementwise work.

Operands rotate through more memory than an L2 cache holds, as in a step, where no weight is read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from microbench.calibrate.fit import Point
from microbench.calibrate.timing import timed
from microbench.protocols import Device, Host
from synthetic_models import Architecture, Batch
from synthetic_models.kernels import Kernel, step_kernels

ROTATED_BYTES = 256 * 2**20
"""Past the largest L2 cache of the known GPUs (126 MB on B200) even when half of it stays."""
MOST_COPIES = 32
CALLS = 32


def gemm_points(host: Host, device: Device, models: Sequence[Architecture], batches: Sequence[int]) -> Iterator[Point]:
    """Every weight matrix of every model at every batch, one GEMM at a time."""
    import torch
    from torch.nn import functional as F

    where: dict[str, Any] = {"device": device.tensor_device, "dtype": torch.bfloat16}
    for kernel in _distinct(models, batches, "gemm"):
        copies = _copies(kernel.read_bytes)
        weights = [torch.randn(kernel.n, kernel.k, **where) for _ in range(copies)]
        x = torch.randn(kernel.m, kernel.k, **where)
        yield kernel, _each(host, device, [lambda w=w, x=x: F.linear(x, w) for w in weights])  # type: ignore[misc]


def attention_points(
    host: Host, device: Device, models: Sequence[Architecture], batches: Sequence[int], context: int
) -> Iterator[Point]:
    """Decode attention of a layer of every model at every batch, as the torch step calls it."""
    import torch
    from torch.nn import functional as F

    where: dict[str, Any] = {"device": device.tensor_device, "dtype": torch.bfloat16}
    for a in models:
        for n in batches:
            kernels = [k for k in step_kernels(a, Batch.decode(n, context)).layer if k.kind in ("attention", "combine")]
            whole = _together(kernels)
            copies = max(1, min(_copies(whole.read_bytes), 8))
            caches = [torch.randn(2, n, a.kv_heads, context, a.head_dim, **where) for _ in range(copies)]
            q = torch.randn(n, a.kv_heads, a.heads // a.kv_heads, a.head_dim, **where)
            mask = torch.zeros(n, 1, 1, context, **where)
            calls = [
                lambda c=c, q=q, m=mask: F.scaled_dot_product_attention(q, c[0], c[1], attn_mask=m) for c in caches
            ]
            yield whole, _each(host, device, calls)


def elementwise_points(
    host: Host, device: Device, models: Sequence[Architecture], batches: Sequence[int]
) -> Iterator[Point]:
    """The norms of every model at every batch."""
    import torch
    from torch.nn import functional as F

    where: dict[str, Any] = {"device": device.tensor_device, "dtype": torch.bfloat16}
    for a in models:
        for n in batches:
            norm = next(k for k in step_kernels(a, Batch.decode(n, 1)).layer if k.kind == "norm")
            x, weight = torch.randn(n, a.hidden, **where), torch.randn(a.hidden, **where)
            one = lambda x=x, weight=weight, a=a: F.rms_norm(x, (a.hidden,), weight, 1e-6)  # noqa: E731
            yield norm, _each(host, device, [one])


def _distinct(models: Sequence[Architecture], batches: Sequence[int], kind: str) -> list[Kernel]:
    """Kernels of one kind in decode steps, each shape once."""
    found: dict[tuple[int, int, int], Kernel] = {}
    for a in models:
        for n in batches:
            step = step_kernels(a, Batch.decode(n, 1))
            for k in (*step.layer, *step.after):
                if k.kind == kind:
                    found.setdefault((k.m, k.n, k.k), k)
    return list(found.values())


def _together(kernels: Sequence[Kernel]) -> Kernel:
    """One kernel with the work of all: what the device time of a call that launches several is held against."""
    from dataclasses import replace

    first, *rest = kernels
    return replace(
        first,
        flops=sum(k.flops for k in kernels),
        read_bytes=first.read_bytes + sum(k.read_bytes for k in rest),
        write_bytes=first.write_bytes + sum(k.write_bytes for k in rest),
    )


def _copies(nbytes: int) -> int:
    return max(2, min(ROTATED_BYTES // max(nbytes, 1) + 1, MOST_COPIES))


def _each(host: Host, device: Device, calls: Sequence[Callable[[], object]]) -> float:
    """ns of one call on the device: `CALLS` of them in turn between two events; 0 where none could be measured."""

    def work() -> None:
        for i in range(CALLS):
            calls[i % len(calls)]()

    return (timed(host, device, work, repeats=5).device_ns or 0.0) / CALLS
