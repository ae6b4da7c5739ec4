"""The kernels of one step, with their work counted by formula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from .architectures import Architecture
from .batches import Batch

Kind = Literal["embedding", "norm", "gemm", "rope", "kv_write", "attention", "combine", "activation", "sampling"]

SAMPLING_LAUNCHES: Final = 10


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One launch site: `launches` equal launches that together do this work.

    `read_bytes` and `write_bytes` are the traffic to GPU memory when every operand is moved once; `weight_bytes` is
    the part of `read_bytes` that is weights. A GEMM multiplies m*k by k*n; for other kinds m, n and k are 0.
    """

    name: str
    kind: Kind
    flops: int
    read_bytes: int
    write_bytes: int
    weight_bytes: int = 0
    launches: int = 1
    m: int = 0
    n: int = 0
    k: int = 0


@dataclass(frozen=True, kw_only=True)
class StepKernels:
    """The kernels of one step. `layer` runs `layers` times between `before` and `after`; then `sampling`."""

    before: tuple[Kernel, ...]
    layer: tuple[Kernel, ...]
    layers: int
    after: tuple[Kernel, ...]
    sampling: tuple[Kernel, ...]

    def in_order(self) -> tuple[Kernel, ...]:
        """All kernels in launch order; the layers share the same Kernel objects."""
        return self.before + self.layer * self.layers + self.after + self.sampling


def decode_step(architecture: Architecture, batch: Batch) -> tuple[Kernel, ...]:
    """The kernels of a step in which every row decodes one token, in launch order, sampling last.

    A layer takes 12 launches (14 with QK norm). Raises ValueError if a row has more than one query token.
    """
    if not batch.is_decode:
        raise ValueError("a decode step has one query token per row; use prefill_step")
    return step_kernels(architecture, batch).in_order()


def prefill_step(architecture: Architecture, batch: Batch) -> tuple[Kernel, ...]:
    """The kernels of a step over whole prompts, chunks of prompts, or a mix with decode rows, in launch order.

    Attention is one launch over all rows, so a layer takes 11 launches (13 with QK norm). The last token of each row is
    sampled.
    """
    return _step(architecture, batch, split_kv=False).in_order()


def step_kernels(architecture: Architecture, batch: Batch) -> StepKernels:
    """The kernels of a step by part, as `decode_step` if every row has one query token, else as `prefill_step`."""
    return _step(architecture, batch, split_kv=batch.is_decode)


def _step(a: Architecture, batch: Batch, *, split_kv: bool) -> StepKernels:
    tokens, rows, size = batch.query_tokens, batch.size, a.dtype_bytes
    qk_norm = (_norm("qk_norm", tokens * (a.heads + a.kv_heads), a.head_dim, size, vectors=2),) if a.qk_norm else ()
    return StepKernels(
        before=(_embedding(tokens, a.hidden, size),),
        layer=(
            _fused_norm("attention_norm", tokens, a.hidden, size),
            gemm("qkv", tokens, a.qkv_width, a.hidden, size=size, bias=a.qkv_bias),
            *qk_norm,
            _rope(tokens, a),
            _kv_write(tokens, a),
            *_attention(batch, a, split_kv=split_kv),
            gemm("o", tokens, a.hidden, a.q_width, size=size),
            _fused_norm("mlp_norm", tokens, a.hidden, size),
            gemm("gate_up", tokens, 2 * a.intermediate, a.hidden, size=size),
            _activation(tokens, a.intermediate, size),
            gemm("down", tokens, a.hidden, a.intermediate, size=size),
        ),
        layers=a.layers,
        after=(
            _fused_norm("final_norm", tokens, a.hidden, size),
            gemm("lm_head", rows, a.vocab, a.hidden, size=size),
        ),
        sampling=(_sampling(rows, a.vocab, size),),
    )


def gemm(name: str, m: int, n: int, k: int, *, size: int, bias: bool = False) -> Kernel:
    """A matrix product: 2mnk FLOPs, (nk + mk) elements read and mn written, of `size` bytes; a bias adds n and mn."""
    weights = (n * k + n * bias) * size
    return Kernel(
        name=name, kind="gemm", flops=2 * m * n * k + m * n * bias,
        read_bytes=weights + m * k * size, write_bytes=m * n * size, weight_bytes=weights, m=m, n=n, k=k,
    )  # fmt: skip


def _embedding(tokens: int, hidden: int, size: int) -> Kernel:
    """A gather: one row of the table and one 8-byte id per token."""
    rows = tokens * hidden * size
    return Kernel(
        name="embedding", kind="embedding", flops=0, read_bytes=rows + 8 * tokens, write_bytes=rows, weight_bytes=rows
    )


def _norm(name: str, rows: int, width: int, size: int, *, vectors: int) -> Kernel:
    """RMS norm in place, a launch for each of `vectors` weight vectors: 4 FLOPs per element, read and written once."""
    values, weights = rows * width, vectors * width * size
    return Kernel(
        name=name, kind="norm", flops=4 * values, read_bytes=values * size + weights, write_bytes=values * size,
        weight_bytes=weights, launches=vectors,
    )  # fmt: skip


def _fused_norm(name: str, tokens: int, hidden: int, size: int) -> Kernel:
    """Residual add and RMS norm: 5 FLOPs per element; reads x and the residual, writes both."""
    values, weights = tokens * hidden, hidden * size
    return Kernel(
        name=name, kind="norm", flops=5 * values, read_bytes=2 * values * size + weights,
        write_bytes=2 * values * size, weight_bytes=weights,
    )  # fmt: skip


def _rope(tokens: int, a: Architecture) -> Kernel:
    """Rotates queries and keys in place: 3 FLOPs per element, plus head_dim 4-byte sines and cosines per token."""
    values = tokens * (a.q_width + a.kv_width)
    return Kernel(
        name="rope", kind="rope", flops=3 * values, read_bytes=values * a.dtype_bytes + 4 * tokens * a.head_dim,
        write_bytes=values * a.dtype_bytes,
    )  # fmt: skip


def _kv_write(tokens: int, a: Architecture) -> Kernel:
    """Copies new keys, then new values, into the cache: two launches, and an 8-byte slot per token read by each."""
    moved = 2 * tokens * a.kv_width * a.dtype_bytes
    return Kernel(
        name="kv_write", kind="kv_write", flops=0, read_bytes=moved + 16 * tokens, write_bytes=moved, launches=2
    )


def _attention(batch: Batch, a: Architecture, *, split_kv: bool) -> tuple[Kernel, ...]:
    """QK^T and PV: 4 FLOPs per pair and query element; reads queries and the whole context's keys and values once.

    Split-KV (flash decoding) leaves its output in 4-byte partials that a second launch combines: one partial of
    head_dim + 1 values per token and head is counted, though more are made when the batch is too small for the GPU.
    """
    queries = batch.query_tokens * a.q_width
    partials = 4 * batch.query_tokens * a.heads * (a.head_dim + 1)
    attention = Kernel(
        name="attention", kind="attention", flops=4 * batch.attention_pairs * a.q_width,
        read_bytes=(queries + 2 * batch.context_tokens * a.kv_width) * a.dtype_bytes,
        write_bytes=partials if split_kv else queries * a.dtype_bytes,
    )  # fmt: skip
    if not split_kv:
        return (attention,)
    combine = Kernel(
        name="attention_combine", kind="combine", flops=3 * queries, read_bytes=partials,
        write_bytes=queries * a.dtype_bytes,
    )  # fmt: skip
    return attention, combine


def _activation(tokens: int, intermediate: int, size: int) -> Kernel:
    """SiLU(gate) * up: 5 FLOPs per element; reads two and writes one."""
    values = tokens * intermediate
    return Kernel(
        name="activation", kind="activation", flops=5 * values, read_bytes=2 * values * size, write_bytes=values * size
    )


def _sampling(rows: int, vocab: int, size: int) -> Kernel:
    """Top-p sampling in ten launches that pass over the logits four times.

    To 4 bytes, divide by temperature, softmax, choose: reads size + 12 and writes 12 bytes per logit, 8 FLOPs.
    Greedy sampling moves less.
    """
    logits = rows * vocab
    return Kernel(
        name="sampling", kind="sampling", flops=8 * logits, read_bytes=logits * (size + 12), write_bytes=logits * 12,
        launches=SAMPLING_LAUNCHES,
    )  # fmt: skip
