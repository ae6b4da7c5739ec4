"""How many tokens and requests fit beside the weights."""

from __future__ import annotations

from .architectures import Architecture
from .errors import DoesNotFit, short
from .gpus import Gpu


def kv_capacity_tokens(architecture: Architecture, gpu: Gpu, *, usable: float = 0.9) -> int:
    """Tokens of KV cache that fit: (memory * usable - weights) / KV bytes per token, 0 if the weights don't fit.

    `usable` is the share of memory the engine takes (vLLM's gpu_memory_utilization); activations and graphs must fit in
    the rest. Raises ValueError unless 0 < usable <= 1.
    """
    return max(0, _usable_bytes(gpu, usable) - architecture.weight_bytes) // architecture.kv_bytes_per_token


def max_batch(architecture: Architecture, gpu: Gpu, context: int, *, usable: float = 0.9) -> int:
    """Requests of `context` tokens whose KV cache fits at once. Raises ValueError unless context >= 1."""
    _check_positive("context", context)
    return kv_capacity_tokens(architecture, gpu, usable=usable) // context


def check_fits(architecture: Architecture, gpu: Gpu, n: int, context: int, *, usable: float = 0.9) -> None:
    """Raises DoesNotFit, saying how many do, if `n` requests of `context` tokens exceed the memory.

    Raises ValueError unless n and context are positive integers.
    """
    _check_positive("n", n)
    fit = max_batch(architecture, gpu, context, usable=usable)
    if n <= fit:
        return
    room = _usable_bytes(gpu, usable)
    why = ""
    if architecture.weight_bytes > room:
        why = f": the weights alone take {architecture.weight_bytes / 1e9:.1f} GB of {room / 1e9:.1f} GB usable"
    raise DoesNotFit(
        f"{architecture.name} on {gpu.name}: batch {n} at context {context} does not fit, at most batch {fit} does{why}"
    )


def _check_positive(name: str, value: int) -> None:
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} must be a positive integer, not {short(value)}")


def _usable_bytes(gpu: Gpu, usable: float) -> int:
    if not 0 < usable <= 1:
        raise ValueError(f"usable must be above 0 and at most 1, not {usable!r}")
    return int(gpu.memory_bytes * usable)
