"""Measured points of a GPU, as the kernels that the model has for them, split into those to fit and those held out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final
from zlib import crc32

from microbench.validate.tables import Shape, measured
from synthetic_models import Architecture, Batch, step_kernels
from synthetic_models.kernels import Kernel, gemm

MIB: Final = 2**20
HEAD_DIMS: Final = (64, 128)
MOST_HEADS_PER_KV_HEAD: Final = 16
"""Up to Llama 3.1 405B. Above, some kernels leave their fast path and take up to five times as long."""
LEAST_CONTEXT: Final = 128
MOST_ROWS: Final = 1024


@dataclass(frozen=True, kw_only=True)
class Point:
    """What an operator took: `kernels` in turn took `ns`. `weights` marks the weights or heads that it belongs to."""

    shape: Shape
    weights: tuple[int, ...]
    kernels: tuple[Kernel, ...]
    ns: float
    kv_bytes: int = 0

    @property
    def held_out(self) -> bool:
        """Whether the fit never sees this point: half of the weight shapes and head counts, by a fixed hash.

        All batch sizes and contexts of a shape go the same way, so what is scored are shapes never seen.
        """
        return crc32(repr(self.weights).encode()) % 2 == 1


def points(folder: Path, gpu: str, operator: str) -> tuple[Point, ...]:
    """All points of an operator (see tables.OPERATORS) within what is modelled.

    Attention: head_dim 64 or 128, at most 16 query heads per KV head, at least 128 tokens, at most 1024 rows. A decode
    point takes the attention kernel and the one that combines its partials.
    """
    make = {"gemm": gemm_points, "decode attention": decode_points, "prefill attention": prefill_points}[operator]
    return tuple(make(sorted(measured(folder, gpu, operator).items())))


def gemm_points(rows: Iterable[tuple[Shape, float]]) -> Iterator[Point]:
    """The points of these shapes and ns."""
    for (m, n, k), ns in rows:
        yield Point(shape=(m, n, k), weights=(n, k), kernels=(gemm("gemm", m, n, k, size=2),), ns=ns)


def decode_points(rows: Iterable[tuple[Shape, float]]) -> Iterator[Point]:
    """The points of these shapes and ns that are modelled decode attention."""
    for shape, ns in rows:
        n, new, earlier, heads, kv_heads, head_dim = shape
        if new == 1 and earlier + 1 >= LEAST_CONTEXT and n <= MOST_ROWS and _modelled(heads, kv_heads, head_dim):
            attention = _attention(heads, kv_heads, head_dim, Batch.decode(n, earlier + 1))
            yield Point(
                shape=shape,
                weights=(heads, kv_heads, head_dim),
                kernels=attention,
                ns=ns,
                kv_bytes=4 * n * (earlier + 1) * kv_heads * head_dim,
            )


def prefill_points(rows: Iterable[tuple[Shape, float]]) -> Iterator[Point]:
    """The points of these shapes and ns that are modelled prefill attention."""
    for shape, ns in rows:
        n, new, earlier, heads, kv_heads, head_dim = shape
        if earlier == 0 and new >= LEAST_CONTEXT and n <= MOST_ROWS and _modelled(heads, kv_heads, head_dim):
            attention = _attention(heads, kv_heads, head_dim, Batch.prefill(n, new))
            yield Point(shape=shape, weights=(heads, kv_heads, head_dim), kernels=attention, ns=ns)


def _modelled(heads: int, kv_heads: int, head_dim: int) -> bool:
    return head_dim in HEAD_DIMS and heads % kv_heads == 0 and heads // kv_heads <= MOST_HEADS_PER_KV_HEAD


def _attention(heads: int, kv_heads: int, head_dim: int, batch: Batch) -> tuple[Kernel, ...]:
    step = step_kernels(_model(heads, kv_heads, head_dim), batch)
    return tuple(kernel for kernel in step.layer if kernel.kind in ("attention", "combine"))


@lru_cache(maxsize=512)
def _model(heads: int, kv_heads: int, head_dim: int) -> Architecture:
    return Architecture(
        name="measured attention", layers=1, hidden=64, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
        intermediate=64, vocab=64, tied_embeddings=True,
    )  # fmt: skip
