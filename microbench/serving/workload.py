"""The requests of a serving benchmark: how long they are, when they come, and how many are let in at once."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from microbench.errors import UsageError

Ints = NDArray[np.int64]

MOST_PROMPTS = 100_000
LONGEST = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What SGLang's `bench_serving --dataset-name random` sends, by the same rule and the same random draws.

    random_input, random_output: lengths are uniform in max(1, int(N * ratio))..N and int(N * ratio)..N tokens.
    random_range_ratio: 0 spreads them over the whole range, 1 makes all equal.
    request_rate: mean arrivals a second with exponential gaps; inf: all at once.
    max_concurrency: at most so many requests are under way; None: no limit.
    seed: 1 is that benchmark's default, so the same seed gives the lengths it printed the totals of.
    Raises UsageError for what can't be drawn.
    """

    num_prompts: int
    random_input: int
    random_output: int
    random_range_ratio: float = 0.0
    request_rate: float = math.inf
    max_concurrency: int | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        _check("num-prompts", self.num_prompts, 1, MOST_PROMPTS)
        _check("random-input", self.random_input, 1, LONGEST)
        _check("random-output", self.random_output, 1, LONGEST)
        _check("random-range-ratio", self.random_range_ratio, 0, 1)
        _check("seed", self.seed, 0, 2**32 - 1)
        if self.max_concurrency is not None:
            _check("max-concurrency", self.max_concurrency, 1, MOST_PROMPTS)
        if not self.request_rate >= 1e-3:  # also refuses NaN
            raise UsageError(f"request-rate {self.request_rate:g}: must be at least 0.001 requests a second, or inf")

    def draw(self) -> Requested:
        """The requests, the same ones every time."""
        rng = np.random.RandomState(self.seed)  # the legacy generator, because the benchmark uses it
        n, ratio = self.num_prompts, self.random_range_ratio
        inputs = rng.randint(max(int(self.random_input * ratio), 1), self.random_input + 1, size=n)
        outputs = rng.randint(int(self.random_output * ratio), self.random_output + 1, size=n)
        arrivals = np.zeros(n, dtype=np.int64)
        if math.isfinite(self.request_rate):
            gaps = rng.exponential(1.0 / self.request_rate, size=n - 1)
            arrivals[1:] = np.cumsum(gaps * 1e9).astype(np.int64)
        return Requested(inputs.astype(np.int64), outputs.astype(np.int64), arrivals)


@dataclass(frozen=True)
class Requested:
    """One entry a request: prompt tokens, output tokens asked for, and arrival in ns after the start.

    A request for 0 tokens still gets one, because the engine samples after the prefill before it looks.
    """

    input_lens: Ints
    output_lens: Ints
    arrival_ns: Ints

    @property
    def produced(self) -> Ints:
        """Tokens that the engine produces for each."""
        return np.maximum(self.output_lens, 1)


class Client:
    """Sends the requests in order, each when its time has come and one of the concurrent places is free."""

    def __init__(self, arrival_ns: Sequence[int], max_concurrency: int | None) -> None:
        self._arrival_ns = list(arrival_ns)
        self._next = 0
        self._unlimited = max_concurrency is None
        self._free_since_ns = [0] * min(max_concurrency or 0, len(self._arrival_ns))
        """When each free place became free; a heap."""

    def next_ns(self) -> int | None:
        """When the next request is sent; None when there is none, or no place is free."""
        if self._next == len(self._arrival_ns) or not (self._unlimited or self._free_since_ns):
            return None
        place_ns = 0 if self._unlimited else self._free_since_ns[0]
        return max(self._arrival_ns[self._next], place_ns)

    def send_due(self, now_ns: int) -> list[tuple[int, int]]:
        """(request, sent at) of all that were sent up to now and not yet returned."""
        sent: list[tuple[int, int]] = []
        while (at := self.next_ns()) is not None and at <= now_ns:
            if not self._unlimited:
                heapq.heappop(self._free_since_ns)
            sent.append((self._next, at))
            self._next += 1
        return sent

    def ended(self, count: int, now_ns: int) -> None:
        """So many requests got their last token."""
        if not self._unlimited:
            for _ in range(count):
                heapq.heappush(self._free_since_ns, now_ns)


def _check(option: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # also refuses NaN
        raise UsageError(f"{option} {value}: must be between {low:g} and {high:g}")
