"""The requests of a run, as a value."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The requests of a run, all already prefilled.

    max_prompt: prompt lengths are uniform in 1..this, as in the founding benchmark.
    generated: output tokens each request already has when the run starts.
    output_tokens: (low, high) of the uniform number of tokens still to come, or None: no request ends.
    stream: every request streams its tokens.
    """

    requests: int
    max_prompt: int = 4096
    generated: int = 16
    output_tokens: tuple[int, int] | None = None
    stream: bool = True
    seed: int = 0

    def prompt_lengths(self) -> list[int]:
        """Prompt tokens of each request."""
        rng = random.Random(self.seed)
        return [rng.randint(1, self.max_prompt) for _ in range(self.requests)]

    def remaining_lengths(self) -> list[int] | None:
        """Output tokens each request still gets, or None when none ends."""
        if self.output_tokens is None:
            return None
        rng = random.Random(self.seed + 1)
        return [rng.randint(*self.output_tokens) for _ in range(self.requests)]
