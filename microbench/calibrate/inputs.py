"""Inputs of steps that run outside a scheduler."""

from __future__ import annotations

from typing import Any

from microbench.protocols import Device
from synthetic_models import Architecture

TINY = Architecture(
    name="tiny",
    layers=2,
    hidden=64,
    heads=4,
    kv_heads=2,
    head_dim=16,
    intermediate=128,
    vocab=512,
    tied_embeddings=True,
    qkv_bias=True,
)
"""For trying the code where kernels run on the CPU, and for checks of correctness on a GPU."""


class FixedBatch:
    """`size` rows of one context length, for steps outside a scheduler."""

    def __init__(self, device: Device, size: int, context: int) -> None:
        import torch

        self.size = size
        self.input_ids: Any = torch.ones(size, dtype=torch.int64, device=device.tensor_device)
        self.seq_lens: Any = torch.full((size,), context, dtype=torch.int64, device=device.tensor_device)

    def next_ids(self) -> Any:
        return self.input_ids
