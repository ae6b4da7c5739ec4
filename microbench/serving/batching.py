"""Continuous batching: which requests run in the next step, and which tokens and KV slots that gives them.

The rules are those of SGLang 0.4.0.post1 without a prefix cache: prefill first, prompts cut into chunks, a share of
the outputs still to come reserved at admission, the running request with the fewest tokens retracted when memory runs
out (sglang on PyPI, Apache-2.0: managers/scheduler.py, managers/schedule_policy.py, managers/schedule_batch.py).

`next` and `settle` may be called in any interleaving: what is known when the next batch is formed depends on which
results were settled before, and on nothing else. So a scheduler that settles step N-1 after it formed step N gets dead
rows and late admissions, and one that settles first gets none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from microbench.errors import MicrobenchError
from microbench.serving.workload import Ints

CLIP_RESERVED = 4096
"""Output tokens of one request that admission looks ahead."""
FIRST_RATIO, LEAST_RATIO, RATIO_STEPS = 0.7, 0.7 * 0.14, 600
"""Share of the outputs to come that is reserved for running requests: at first, at least, and decode steps between."""
RETRACT_STEPS = 20
"""Decode steps that must fit after requests were retracted."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """kv_tokens: KV slots. chunk_tokens, prefill_tokens: of one prefill step. running: requests at once.

    Defaults: server_args.py and model_runner.py of that version on a GPU with at least 25 GB.
    """

    kv_tokens: int
    chunk_tokens: int = 8192
    prefill_tokens: int = 16384
    running: int = 2048


@dataclass(eq=False)
class Step:
    """One batch. Row i: request `rows[i]` computes `query[i]` tokens and then attends to `context[i]`.

    emits: which rows sample a token that counts; a prompt cut short does not. epochs: of each request at the time.
    told: the requests that got a token, once it was settled.
    """

    prefill: bool
    rows: Ints
    query: Ints
    context: Ints
    emits: NDArray[np.bool_]
    epochs: Ints
    told: Ints | None = None


class ContinuousBatching:
    """The state of all requests, as arrays with an entry for each.

    skips_finishing: a request whose last token is in flight is left out of the next batch.
    produced: tokens each gets in all. done: tokens it has. slots: KV slots it holds. used: KV slots held in all.
    dead_rows, retractions: counted as they happen.
    """

    def __init__(self, prompt: Ints, produced: Ints, limits: Limits, *, skips_finishing: bool = False) -> None:
        n = len(prompt)
        self.prompt, self.produced, self.limits, self.skips_finishing = prompt, produced, limits, skips_finishing
        self.done, self.slots, self._epoch, self._coming, self._pending = (
            np.zeros(n, dtype=np.int64) for _ in range(5)
        )
        """_coming: tokens in unsettled batches. _pending: KV slots in those of them that decode."""
        self.finished = np.zeros(n, dtype=bool)
        self.used = self.most_used = self.dead_rows = self.retractions = 0
        self._waiting: list[int] = []
        self._running = np.zeros(0, dtype=np.int64)
        self._joining = np.zeros(0, dtype=np.int64)
        """Prefilled by the last batch: they decode from the next one on."""
        self._chunked: int | None = None
        self._full = False
        self._ratio = FIRST_RATIO

    @property
    def all_finished(self) -> bool:
        return bool(self.finished.all())

    def arrive(self, requests: Iterable[int]) -> None:
        """They wait from now on."""
        self._waiting.extend(requests)

    def next(self) -> Step | None:
        """The next batch, its KV slots taken; None when nothing can run now."""
        if len(self._joining):
            self._running = np.concatenate((self._running, self._joining))
            self._joining = self._joining[:0]
        if self._chunked is not None:
            self._full = False
        step = self._prefill() or self._decode() or self._prefill()
        if step is None:
            self._ratio = FIRST_RATIO
        return step

    # -- prefill ---------------------------------------------------------------------------------------------

    def _prefill(self) -> Step | None:
        if (self._full or not self._waiting) and self._chunked is None:
            return None
        if len(self._running) >= self.limits.running and self._chunked is None:
            self._full = True
            return None
        budget = _Budget(self, self._ratio)
        if (cut := self._chunked) is not None:
            left = self._left(cut)
            budget.take(cut, min(left, budget.chunk))
            self._chunked = cut if left > budget.queries[-1] else None
        taken = 0
        for request in self._waiting:
            if len(self._running) + len(budget.rows) >= self.limits.running:
                self._full = True
                break
            left = self._left(request)
            if not budget.fits(request, left):
                self._full = True
                break
            if budget.spent or (left > budget.inputs and budget.rows):
                break
            take = min(left, budget.chunk)
            budget.take(request, take)
            taken += 1
            if take < left:
                self._chunked = request
                break
            if budget.exhausted:
                self._full = True
                break
        del self._waiting[:taken]
        if not budget.rows:
            return None
        return self._begin_prefill(np.array(budget.rows), np.array(budget.queries))

    def _begin_prefill(self, rows: Ints, query: Ints) -> Step:
        self.slots[rows] += query
        self._grow(int(query.sum()))
        emits = np.ones(len(rows), dtype=bool) if self._chunked is None else rows != self._chunked
        self._joining = rows[emits]
        self._coming[self._joining] += 1
        return Step(True, rows, query, self.slots[rows], emits, self._epoch[rows])

    def _left(self, request: int) -> int:
        """Tokens still to prefill; those it produced before it was retracted are computed again."""
        return int(self.prompt[request] + self.done[request] - self.slots[request])

    # -- decode ----------------------------------------------------------------------------------------------

    def _decode(self) -> Step | None:
        before = len(self._running)
        rows = self._running = self._running[self._goes_on(self._running)]
        if not len(rows):
            self._full = False
            return None
        if self.free < len(rows):
            rows = self._running = self._retract(rows)
            if self.free < len(rows):
                return None
        else:
            self._ratio = max(self._ratio - (FIRST_RATIO - LEAST_RATIO) / RATIO_STEPS, LEAST_RATIO)
        if len(rows) < before:
            self._full = False
        return self._begin_decode(rows)

    def again(self) -> Step | None:
        """Another decode step of the running requests, without a look at them; None right after a prefill, or when
        memory has run out."""
        rows = self._running
        return self._begin_decode(rows) if len(rows) and not len(self._joining) and self.free >= len(rows) else None

    def _begin_decode(self, rows: Ints) -> Step:
        self.slots[rows] += 1
        self._pending[rows] += 1
        self._coming[rows] += 1
        self._grow(len(rows))
        ones = np.ones(len(rows), dtype=np.int64)
        return Step(False, rows, ones, self.slots[rows], ones.astype(bool), self._epoch[rows])

    def _goes_on(self, rows: Ints) -> NDArray[np.bool_]:
        goes_on: NDArray[np.bool_] = ~self.finished[rows]
        if self.skips_finishing:
            goes_on &= self.done[rows] + self._coming[rows] < self.produced[rows]
        return goes_on

    def _retract(self, rows: Ints) -> Ints:
        """Send running requests back to the queue, those with the fewest tokens first, until the rest can go on."""
        order = rows[np.lexsort((self.prompt[rows], -self.done[rows]))].tolist()
        gone: list[int] = []
        while len(order) > 1 and (not gone or self.free < len(order) * RETRACT_STEPS):
            request = order.pop()
            self.used -= int(self.slots[request])
            self.slots[request] = self._pending[request] = self._coming[request] = 0
            self._epoch[request] += 1
            gone.append(request)
        self.retractions += len(gone)
        self._waiting.extend(gone)
        kept = np.sort(np.array(order))
        tokens = int(self.done[kept].sum()) + RETRACT_STEPS * len(kept)
        self._ratio = min(1.0, tokens / int(self.produced[kept].sum()))
        return kept

    # -- results ---------------------------------------------------------------------------------------------

    def counts(self, step: Step) -> NDArray[np.bool_]:
        """Which rows' results an engine looks at: not those of prompts cut short or of requests retracted meanwhile."""
        counts: NDArray[np.bool_] = step.emits & (step.epochs == self._epoch[step.rows])
        return counts

    def settle(self, step: Step) -> int:
        """Give each row of a batch its token, free what finished requests hold; returns how many finished.

        A row whose request had already finished is dead: its slot is freed, nothing else. One whose request was
        retracted meanwhile counts for nothing.
        """
        rows = step.rows[self.counts(step)]
        over = self.finished[rows]
        self._coming[rows] -= 1
        if not step.prefill:
            self._pending[rows] -= 1
            dead = rows[over]
            self.slots[dead] -= 1
            self.used -= len(dead)
            self.dead_rows += len(dead)
        told = step.told = rows[~over]
        self.done[told] += 1
        ended = told[self.done[told] >= self.produced[told]]
        self.finished[ended] = True
        freed = self.slots[ended] - self._pending[ended]
        self.slots[ended] -= freed
        self.used -= int(freed.sum())
        return len(ended)

    @property
    def free(self) -> int:
        """KV slots nobody holds."""
        return self.limits.kv_tokens - self.used

    def _grow(self, slots: int) -> None:
        self.used += slots
        self.most_used = max(self.most_used, self.used)
        if self.free < 0:
            raise MicrobenchError(f"{self.used} KV slots were taken of {self.limits.kv_tokens}")


class _Budget:
    """What one prefill step may still take."""

    def __init__(self, batching: ContinuousBatching, ratio: float) -> None:
        running = batching._running
        to_come = np.minimum(batching.produced[running] - batching.done[running], CLIP_RESERVED)
        self._produced = batching.produced
        self._total = batching.free - float(to_come.sum()) * ratio
        self._now = batching.free
        self.inputs, self.chunk = batching.limits.prefill_tokens, batching.limits.chunk_tokens
        self.rows: list[int] = []
        self.queries: list[int] = []

    def fits(self, request: int, tokens: int) -> bool:
        """Whether `tokens` more of a request and its outputs fit into the memory not reserved for others."""
        return tokens + self._reserve(request) < self._total

    def take(self, request: int, tokens: int) -> None:
        self.rows.append(request)
        self.queries.append(tokens)
        self._total -= tokens + self._reserve(request)
        self._now -= tokens
        self.inputs -= tokens
        self.chunk -= tokens

    @property
    def exhausted(self) -> bool:
        return self._total <= 0 or self._now <= 0

    @property
    def spent(self) -> bool:
        return self.inputs <= 0 or self.chunk <= 0

    def _reserve(self, request: int) -> int:
        return min(int(self._produced[request]), CLIP_RESERVED)
