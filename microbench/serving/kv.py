"""How many tokens of KV cache an engine has beside a model's weights, and whether a workload can run in them."""

from __future__ import annotations

from microbench.errors import UsageError
from microbench.serving.batching import CLIP_RESERVED
from microbench.serving.workload import Requested
from synthetic_models import Architecture, Gpu, kv_capacity_tokens

STATIC_SHARE = 0.88
"""Share of GPU memory for weights and KV cache: `mem_fraction_static` on one GPU, server_args.py of SGLang
0.4.0.post1."""


def kv_tokens(architecture: Architecture, gpu: Gpu) -> int:
    """Tokens of KV cache that fit beside the weights; 0 when the weights don't fit."""
    return kv_capacity_tokens(architecture, gpu, usable=STATIC_SHARE)


def check_fits(requested: Requested, capacity: int, where: str) -> None:
    """Raises UsageError, with the tokens that fit, when some request could never be admitted.

    A request must fit alone: its prompt and what admission reserves for its output, and in the end all its tokens.
    """
    reserved = requested.input_lens + requested.produced.clip(max=CLIP_RESERVED)
    needed = max(int(reserved.max()) + 1, int((requested.input_lens + requested.produced).max()))
    if needed > capacity:
        raise UsageError(
            f"{where}: the longest request needs {needed} tokens of KV cache, but {capacity} fit beside the weights; "
            "ask for shorter ones or take a GPU with more memory"
        )
