"""One decode step of an architecture as real torch kernels, with random weights. Imports torch only when built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .architectures import Architecture

if TYPE_CHECKING:
    import torch

EPSILON: Final = 1e-6
ROPE_BASE: Final = 10_000.0
PAGE: Final = 16
"""The cache is as long as the context rounded up to this: SDPA would copy a mask of other lengths in every layer."""
WORKSPACE_BYTES: Final = 128 * 2**20
"""What cuBLAS takes on top: up to 32 MiB (on Hopper) for each stream that it is used on."""


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """Weights of one layer, and its part of the cache twice: flat to be written by slot, by head to be attended to."""

    attention_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    qk_norm: torch.Tensor | None
    output: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    key_slots: torch.Tensor
    value_slots: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor


class TransformerStep:
    """One decode step over static buffers, so that `run` can be captured as a CUDA graph.

    Up to `batch` rows, one new token each. A row's token stands at position seq_len - 1, clipped to the cache; its key
    and value go there, and it attends to all before it. The kernels read the whole cache of the row and mask the rest.
    Weights and cache are random numbers that `seed` decides on one device and dtype, scaled to keep activations near 1;
    no two layers share weights, so none is found in the L2 cache. dtype is bfloat16 unless given. Raises ValueError for
    an odd head_dim, which RoPE can't rotate.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        batch: int,
        context: int,
        device: str = "cuda",
        dtype: torch.dtype | None = None,
        seed: int = 0,
    ) -> None:
        import torch

        a = architecture
        if a.head_dim % 2:
            raise ValueError(f"head_dim of {a.name} must be even for RoPE, not {a.head_dim}")
        self.architecture, self.rows, self.context = a, batch, cache_tokens(context)
        dtype = dtype or torch.bfloat16
        generator = torch.Generator(device).manual_seed(seed)

        def normal(*shape: int, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
            return torch.empty(shape, device=device, dtype=dtype).normal_(mean, std, generator=generator)

        def matrix(outputs: int, inputs: int) -> torch.Tensor:
            return normal(outputs, inputs, std=inputs**-0.5)

        def norm(*shape: int) -> torch.Tensor:
            return normal(*shape, mean=1.0, std=0.1)

        self.embedding = matrix(a.vocab, a.hidden)
        self.head = self.embedding if a.tied_embeddings else matrix(a.vocab, a.hidden)
        self.final_norm = norm(a.hidden)
        self.cache = normal(a.layers, 2, batch, self.context, a.kv_heads, a.head_dim)
        self.layers = []
        for keys, values in self.cache:
            self.layers.append(
                _Layer(
                    attention_norm=norm(a.hidden),
                    qkv=matrix(a.qkv_width, a.hidden),
                    qkv_bias=normal(a.qkv_width, std=0.1) if a.qkv_bias else None,
                    qk_norm=norm(2, a.head_dim) if a.qk_norm else None,
                    output=matrix(a.hidden, a.q_width),
                    mlp_norm=norm(a.hidden),
                    gate_up=matrix(2 * a.intermediate, a.hidden),
                    down=matrix(a.hidden, a.intermediate),
                    key_slots=keys.flatten(0, 1),
                    value_slots=values.flatten(0, 1),
                    keys=keys.transpose(1, 2),
                    values=values.transpose(1, 2),
                )
            )
        self.tokens = torch.arange(self.context, device=device)
        half = torch.arange(0, a.head_dim, 2, device=device) / a.head_dim
        angles = self.tokens[:, None] * ROPE_BASE**-half
        # The sine carries the sign of "rotate half", which leaves a plain roll.
        self.cos = torch.cat((angles.cos(), angles.cos()), dim=-1).to(dtype)
        self.sin = torch.cat((-angles.sin(), angles.sin()), dim=-1).to(dtype)
        self.first_slot = torch.arange(batch, device=device) * self.context
        self.ids = torch.zeros(batch, device=device, dtype=torch.int64)
        self.seq_lens = torch.ones(batch, device=device, dtype=torch.int64)
        self.logits: torch.Tensor | None = None

    def forward(self, ids: torch.Tensor, seq_lens: torch.Tensor) -> None:
        """Enqueue a step for these rows: `load`, then `run`."""
        self.load(ids, seq_lens)
        self.run()

    def load(self, ids: torch.Tensor, seq_lens: torch.Tensor) -> None:
        """Copy the inputs of len(ids) rows into the static buffers; ids past the vocabulary wrap round."""
        import torch

        self.rows = n = len(ids)
        torch.remainder(ids, self.architecture.vocab, out=self.ids[:n])
        self.seq_lens[:n].copy_(seq_lens)

    def run(self) -> None:
        """Enqueue the forward over the loaded rows (at first all, with id 0 at position 0); leaves `logits`."""
        import torch
        from torch.nn import functional as F

        a, n = self.architecture, self.rows
        position = (self.seq_lens[:n] - 1).clamp_(0, self.context - 1)
        slots = self.first_slot[:n] + position
        cos, sin = self.cos[position, None], self.sin[position, None]
        later = self.tokens > position[:, None]
        mask = torch.zeros(later.shape, device=cos.device, dtype=cos.dtype).masked_fill_(later, float("-inf"))
        mask = mask[:, None, None]
        x = F.embedding(self.ids[:n], self.embedding)
        for layer in self.layers:
            h = F.rms_norm(x, (a.hidden,), layer.attention_norm, EPSILON)
            heads = F.linear(h, layer.qkv, layer.qkv_bias).view(n, a.heads + 2 * a.kv_heads, a.head_dim)
            qk, v = heads[:, : -a.kv_heads], heads[:, -a.kv_heads :]
            if layer.qk_norm is not None:
                q, k = qk[:, : a.heads], qk[:, a.heads :]
                q = F.rms_norm(q, (a.head_dim,), layer.qk_norm[0], EPSILON)
                qk = torch.cat((q, F.rms_norm(k, (a.head_dim,), layer.qk_norm[1], EPSILON)), dim=1)
            qk = torch.addcmul(qk * cos, qk.roll(a.head_dim // 2, -1), sin)
            layer.key_slots.index_copy_(0, slots, qk[:, a.heads :])
            layer.value_slots.index_copy_(0, slots, v)
            # The query heads that share a KV head stand in as its query tokens: the same sums as with enable_gqa, which
            # CUDA does under a mask only by copying keys and values out to every query head.
            q = qk[:, : a.heads].view(n, a.kv_heads, -1, a.head_dim)
            attended = F.scaled_dot_product_attention(q, layer.keys[:n], layer.values[:n], attn_mask=mask)
            x = x + F.linear(attended.reshape(n, a.q_width), layer.output)
            h = F.rms_norm(x, (a.hidden,), layer.mlp_norm, EPSILON)
            gate, up = F.linear(h, layer.gate_up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        self.logits = F.linear(F.rms_norm(x, (a.hidden,), self.final_norm, EPSILON), self.head)

    def sample(self) -> torch.Tensor:
        """Enqueue greedy sampling of the loaded rows; a new int64 tensor. Raises ValueError before the first `run`."""
        if self.logits is None:
            raise ValueError("nothing to sample from: run a forward first")
        return self.logits[: self.rows].argmax(dim=-1)


def cache_tokens(context: int) -> int:
    """Tokens of cache a row takes for a context of this many."""
    return -(-context // PAGE) * PAGE


def memory_bytes(architecture: Architecture, *, batch: int, context: int) -> int:
    """Bytes that a TransformerStep in bfloat16 takes: weights, cache, tables, and the most it needs while it runs."""
    a, tokens = architecture, cache_tokens(context)
    cache = 2 * a.layers * batch * tokens * a.kv_width
    tables = 2 * tokens * a.head_dim
    row = a.vocab + 4 * a.intermediate + 4 * a.qkv_width + 4 * a.hidden + 2 * tokens
    return 2 * (a.parameters + cache + tables + batch * row) + WORKSPACE_BYTES
