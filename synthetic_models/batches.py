"""The requests of one step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import lt, mul


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One row per request. Row i computes `query_lens[i]` new tokens, which attend to `context_lens[i]` tokens.

    The context includes the new tokens, so a whole prompt has query == context and a decode row has query 1. Raises
    ValueError for no rows, different lengths, anything but positive integers, and a context shorter than its query.
    """

    query_lens: tuple[int, ...]
    context_lens: tuple[int, ...]

    def __post_init__(self) -> None:
        for field in ("query_lens", "context_lens"):
            lens = getattr(self, field)
            if type(lens) is not tuple or set(map(type, lens)) != {int} or min(lens) < 1:
                raise ValueError(f"{field} must be a tuple of at least one positive integer")
        if len(self.query_lens) != len(self.context_lens):
            raise ValueError(f"{len(self.query_lens)} query_lens but {len(self.context_lens)} context_lens")
        if any(map(lt, self.context_lens, self.query_lens)):
            raise ValueError("context_lens include the new tokens, so none may be smaller than its query_lens")

    @classmethod
    def decode(cls, n: int, context: int) -> Batch:
        """`n` requests that each produce one token at a context of `context` tokens."""
        return cls(query_lens=(1,) * n, context_lens=(context,) * n)

    @classmethod
    def prefill(cls, n: int, length: int) -> Batch:
        """`n` whole prompts of `length` tokens."""
        return cls(query_lens=(length,) * n, context_lens=(length,) * n)

    @property
    def size(self) -> int:
        """Requests in the batch."""
        return len(self.query_lens)

    @cached_property
    def query_tokens(self) -> int:
        """Tokens that go through the layers."""
        return sum(self.query_lens)

    @cached_property
    def context_tokens(self) -> int:
        """Tokens whose keys and values are read."""
        return sum(self.context_lens)

    @cached_property
    def attention_pairs(self) -> int:
        """Pairs of a new token and a token it attends to, under a causal mask: sum of q*c - q*(q-1)/2."""
        squares: int = sum(map(mul, self.query_lens, self.query_lens))
        products: int = sum(map(mul, self.query_lens, self.context_lens))
        return products - (squares - self.query_tokens) // 2

    @cached_property
    def is_decode(self) -> bool:
        """Whether every row computes one token."""
        return self.query_tokens == self.size
