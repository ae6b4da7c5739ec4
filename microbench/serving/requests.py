"""An engine's real Python work on a changing batch: real requests, tensors and messages. Priced twin: `serving.priced`.

`ContinuousBatching` decides in both. Real here is what an engine does with the decision: the input ids of prompts, KV
slots, future ids, the result loop, the streamed message. Deciding costs what that class costs, about 0.1 ms a step, and
not what an engine's own policy does. Imports torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from microbench.engines import EngineProfile, Workload, real_work
from microbench.engines.requests import VOCABULARY, RequestBatch
from microbench.protocols import Host
from microbench.serving.batching import ContinuousBatching, Step
from microbench.serving.work import ServingBatch, ServingWork
from microbench.serving.workload import Client, Ints


@dataclass(eq=False, kw_only=True)
class RealBatch(ServingBatch):
    """A step and the engine's own batch of it. settled: the rows whose results count."""

    inner: Any
    rows: Any
    settled: Any = None

    def next_ids(self) -> Any:
        self.inner.input_ids = self.input_ids
        return self.inner.next_ids()


class RealServing(ServingWork):
    """Does the engine's work on real requests; close it after use."""

    def __init__(
        self,
        host: Host,
        engine: EngineProfile,
        batching: ContinuousBatching,
        client: Client,
        *,
        overlap: bool,
        device: str,
        seed: int,
    ) -> None:
        n, longest = len(batching.prompt), int((batching.prompt + batching.produced).max())
        workload = Workload(requests=n, max_prompt=1, generated=0)
        self.engine = real_work(engine, workload, overlap=overlap, device=device)
        rng = np.random.default_rng(seed)
        self.requests = [
            self.engine.make_request(f"r{i}", rng.integers(10, VOCABULARY, length).tolist(), [], tokens)
            for i, (length, tokens) in enumerate(zip(batching.prompt.tolist(), batching.produced.tolist(), strict=True))
        ]
        self.engine.req_to_token = torch.zeros((n, longest + 2), dtype=torch.int32, device=device)
        self._next_input = torch.zeros(n, dtype=self.engine.token_dtype, device=device)
        self._device = device
        super().__init__(host, batching, client, overlap=overlap)
        self._slots()

    def form(self, step: Step, *, again: bool = False) -> RealBatch:
        engine = self.engine
        if not again:
            engine.receive()
        inner = RequestBatch([self.requests[i] for i in step.rows.tolist()], engine)
        rows = torch.from_numpy(step.rows).to(self._device)
        if len(engine.free_slots) < step.query.sum():
            self._slots()
        if step.prefill:
            self._fill(inner, step)
        else:
            slots = engine.free_slots[: len(step.rows)].to(self._device, non_blocking=True)
            engine.free_slots = engine.free_slots[len(step.rows) :]
            inner.input_ids, inner.slots = self._next_input[rows], slots
            inner.seq_lens = torch.from_numpy(step.context.astype(np.int32)).to(self._device)
            engine.req_to_token[rows, inner.seq_lens - 1] = slots
        inner.rows = rows
        taken = inner if again else engine.worker_batch(inner)
        return RealBatch(step=step, inner=taken, rows=rows, input_ids=taken.input_ids, seq_lens=taken.seq_lens)

    def outputs(self, batch: ServingBatch, ids: Any) -> None:
        if isinstance(batch, RealBatch):
            self._next_input[batch.rows] = ids

    def futures(self, batch: ServingBatch) -> Any:
        return self.engine.futures(batch.inner) if isinstance(batch, RealBatch) else None

    def resolve(self, batch: ServingBatch) -> None:
        if isinstance(batch, RealBatch):
            self.engine.resolve(batch.inner)

    def publish(self, batch: ServingBatch, ids: Any) -> None:
        if isinstance(batch, RealBatch):
            self.engine.publish(batch.inner, ids)

    def results(self, batch: ServingBatch, step: Step, tokens: Sequence[int]) -> None:
        assert isinstance(batch, RealBatch)
        inner, counts = batch.inner, self.batching.counts(step)
        settled = inner
        if not counts.all():
            kept = np.flatnonzero(counts).tolist()
            settled = RequestBatch([inner.reqs[i] for i in kept], self.engine)
            settled.slots, settled.rows = inner.slots[kept], inner.rows[kept] if inner.rows is not None else None
            tokens = [tokens[i] for i in kept]
        batch.settled = settled
        self.engine.process(settled, tokens)

    def send(self, batch: ServingBatch, told: Ints) -> None:
        assert isinstance(batch, RealBatch)
        self.engine.stream(batch.settled)

    def close(self) -> None:
        self.engine.close()

    def _fill(self, inner: Any, step: Step) -> None:
        """Inputs of a prefill, as lists that become tensors; the modelled GPU looks at each row's last token only."""
        engine = self.engine
        pieces = [
            (r.prompt_ids + r.output_ids)[context - query : context]
            for r, query, context in zip(inner.reqs, step.query.tolist(), step.context.tolist(), strict=True)
        ]
        flat: list[int] = sum(pieces, [])  # noqa: RUF017  as the engine does it
        tokens = torch.tensor(flat, dtype=engine.token_dtype).to(self._device, non_blocking=True)
        slots = engine.free_slots[: len(flat)].to(self._device, non_blocking=True)
        engine.free_slots = engine.free_slots[len(flat) :]
        start = 0
        for row, query, context in zip(step.rows.tolist(), step.query.tolist(), step.context.tolist(), strict=True):
            engine.req_to_token[row, context - query : context] = slots[start : start + query]
            start += query
        last = torch.from_numpy(np.cumsum(step.query) - 1).to(self._device)
        inner.input_ids, inner.slots = tokens[last], slots[last]
        inner.seq_lens = torch.tensor(step.context.tolist(), dtype=torch.int32).to(self._device, non_blocking=True)

    def _slots(self) -> None:
        """A pool with all slots that nobody holds; their numbers mean nothing to a modelled GPU."""
        self.engine.free_slots = torch.arange(1, self.batching.limits.kv_tokens + 1, dtype=torch.int32)
