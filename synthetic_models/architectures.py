"""The shape of a dense decoder, and the shapes of well-known ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from .errors import UnknownName, short

# Far above any dense decoder published; a larger number is a mistake or an attack.
LIMITS: Final = {
    "layers": 1_000,
    "hidden": 2**18,
    "heads": 2**12,
    "kv_heads": 2**12,
    "head_dim": 2**12,
    "intermediate": 2**21,
    "vocab": 2**22,
    "dtype_bytes": 8,
}


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A decoder of `layers` equal layers: grouped-query attention with RoPE, then a gated MLP (three matrices).

    Widths are counted in elements; `dtype_bytes` is the size of a weight, an activation or a KV entry. Raises
    ValueError when a number is not a positive integer within reason, or `heads` is no multiple of `kv_heads`.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied_embeddings: bool
    qkv_bias: bool = False
    qk_norm: bool = False
    dtype_bytes: int = 2

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or not self.name.isprintable():
            raise ValueError(f"name must be printable text, not {short(self.name)}")
        for field, limit in LIMITS.items():
            value = getattr(self, field)
            if type(value) is not int or not 1 <= value <= limit:
                raise ValueError(f"{field} must be an integer from 1 to {limit}, not {short(value)}")
        for field in ("tied_embeddings", "qkv_bias", "qk_norm"):
            if type(getattr(self, field)) is not bool:
                raise ValueError(f"{field} must be True or False, not {short(getattr(self, field))}")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")

    @property
    def q_width(self) -> int:
        """Elements of all query heads of one token."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Elements of all key heads of one token, and of all value heads."""
        return self.kv_heads * self.head_dim

    @property
    def qkv_width(self) -> int:
        """Elements that the fused QKV projection puts out per token."""
        return self.q_width + 2 * self.kv_width

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer: QKV and its bias, output, gate, up and down projections, and the norms."""
        attention = self.hidden * self.qkv_width + self.q_width * self.hidden
        attention += self.qkv_width * self.qkv_bias + 2 * self.head_dim * self.qk_norm
        return attention + 3 * self.hidden * self.intermediate + 2 * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters; a tied embedding counts once."""
        tables = self.vocab * self.hidden * (1 if self.tied_embeddings else 2)
        return tables + self.layers * self.layer_parameters + self.hidden

    @property
    def weight_bytes(self) -> int:
        """Bytes of GPU memory that the weights take."""
        return self.parameters * self.dtype_bytes

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that the keys and values of one token take in all layers."""
        return 2 * self.layers * self.kv_width * self.dtype_bytes


def _qwen25(
    size: str,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    intermediate: int,
    vocab: int,
    *,
    head_dim: int = 128,
) -> Architecture:
    return Architecture(
        name=f"qwen2.5-{size}", layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
        intermediate=intermediate, vocab=vocab, tied_embeddings=vocab == 151936, qkv_bias=True,
    )  # fmt: skip


def _qwen3(size: str, layers: int, hidden: int, heads: int, intermediate: int, *, tied: bool) -> Architecture:
    return Architecture(
        name=f"qwen3-{size}", layers=layers, hidden=hidden, heads=heads, kv_heads=8, head_dim=128,
        intermediate=intermediate, vocab=151936, tied_embeddings=tied, qk_norm=True,
    )  # fmt: skip


def _llama(
    size: str, layers: int, hidden: int, heads: int, intermediate: int, *, head_dim: int = 128, tied: bool
) -> Architecture:
    return Architecture(
        name=f"llama-{size}", layers=layers, hidden=hidden, heads=heads, kv_heads=8, head_dim=head_dim,
        intermediate=intermediate, vocab=128256, tied_embeddings=tied,
    )  # fmt: skip


# Source: config.json of each model on huggingface.co (Qwen/Qwen2.5-*, Qwen/Qwen3-*, meta-llama/Llama-3.*).
ARCHITECTURES: Final = {
    model.name: model
    for model in (
        _qwen25("0.5b", 24, 896, 14, 2, 4864, 151936, head_dim=64),
        _qwen25("1.5b", 28, 1536, 12, 2, 8960, 151936),
        _qwen25("3b", 36, 2048, 16, 2, 11008, 151936),
        _qwen25("7b", 28, 3584, 28, 4, 18944, 152064),
        _qwen25("14b", 48, 5120, 40, 8, 13824, 152064),
        _qwen25("32b", 64, 5120, 40, 8, 27648, 152064),
        _qwen25("72b", 80, 8192, 64, 8, 29568, 152064),
        _qwen3("0.6b", 28, 1024, 16, 3072, tied=True),
        _qwen3("1.7b", 28, 2048, 16, 6144, tied=True),
        _qwen3("4b", 36, 2560, 32, 9728, tied=True),
        _qwen3("8b", 36, 4096, 32, 12288, tied=False),
        _llama("3.2-1b", 16, 2048, 32, 8192, head_dim=64, tied=True),
        _llama("3.2-3b", 28, 3072, 24, 8192, tied=True),
        _llama("3.1-8b", 32, 4096, 32, 14336, tied=False),
        _llama("3.1-70b", 80, 8192, 64, 28672, tied=False),
    )
}

_VARIANT: Final = re.compile(r"-(instruct|base|chat)(-\d{4})?$")


def architecture(name: str) -> Architecture:
    """The named architecture, in any case, also by its Hugging Face id (`Qwen/Qwen2.5-0.5B-Instruct`).

    Raises UnknownName.
    """
    if isinstance(name, str):
        key = _VARIANT.sub("", name.strip().lower().rsplit("/", 1)[-1]).removeprefix("meta-")
        if key in ARCHITECTURES:
            return ARCHITECTURES[key]
    raise UnknownName("architecture", name, ARCHITECTURES)
