"""vLLM V1's host work in its engine core process: token budgets, KV blocks and output objects a request.

Shape after vllm/v1/core/sched/scheduler.py (schedule, update_from_output), async_scheduler.py, v1/engine/core.py and
v1/worker/gpu_model_runner.py (Apache-2.0, repository at 00080ee), written anew. Assumed: the output's msgpack encoding
costs what pickling as many tuples does; a request has 45 fields; input preparation is five numpy passes over the batch.
"""

from __future__ import annotations

import queue
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from microbench.engines.requests import STOP_TOKEN, RequestBatch, RequestWork, carry

BLOCK_TOKENS = 16
MODEL_TOKENS = 1 << 17
STEP_TOKENS = 8192
RUNNING, STOPPED, LENGTH = "running", "stopped", "length"


class Request:
    """One request as the scheduler keeps it: all its ids twice over, blocks elsewhere."""

    def __init__(self, rid: str, prompt: list[int], output: list[int], max_tokens: int) -> None:
        self.rid, self.prompt_ids, self.output_ids, self.max_tokens = rid, prompt, output, max_tokens
        self.all_ids = prompt + output
        self.status = RUNNING
        self.stop_reason: int | None = None
        self.ignore_eos = True
        self.min_tokens = 0
        self.stop_token_ids: tuple[int, ...] = ()
        self.computed, self.placeholders = len(self.all_ids) - 1, 0
        self.speculated: list[int] = []
        self.events: list[Any] = []
        self.has_encoder_inputs = self.use_structured_output = False
        self.logprobs: int | None = None
        self.trace_headers = None
        self.cached_tokens = self.client = 0
        carry(self, 45)

    @property
    def tokens(self) -> int:
        return len(self.all_ids)

    def rewind(self, generated: int) -> None:
        """Forget the tokens after the first `generated`."""
        del self.output_ids[generated:]
        self.all_ids = self.prompt_ids + self.output_ids
        self.status, self.stop_reason = RUNNING, None
        self.computed, self.placeholders = len(self.all_ids) - 1, 0

    def finished(self) -> bool:
        return self.status != RUNNING

    def append(self, token: int) -> None:
        self.output_ids.append(token)
        self.all_ids.append(token)

    def take_events(self) -> list[Any] | None:
        if not self.events:
            return None
        events, self.events = self.events, []
        return events

    def check_stop(self) -> bool:
        if len(self.output_ids) < self.min_tokens:
            return False
        last = self.output_ids[-1]
        if not self.ignore_eos and last == STOP_TOKEN:
            self.status = STOPPED
            return True
        if last in self.stop_token_ids:
            self.status, self.stop_reason = STOPPED, last
            return True
        if self.tokens >= MODEL_TOKENS or len(self.output_ids) >= self.max_tokens:
            self.status = LENGTH
            return True
        return False


@dataclass(slots=True)
class Output:
    """One request's news of a step."""

    rid: str
    new_ids: list[int]
    finish_reason: str | None
    logprobs: Any
    stop_reason: int | None
    events: list[Any] | None
    trace_headers: Any
    cached_tokens: int

    def fields(self) -> tuple[Any, ...]:
        """As the encoder writes it: an array without names."""
        return self.rid, self.new_ids, self.finish_reason, self.logprobs, self.stop_reason, self.cached_tokens


class Blocks:
    """The KV blocks of every request."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.of = {r.rid: list(range(-(-r.tokens // BLOCK_TOKENS))) for r in requests}

    def allocate(self, request: Request, new_tokens: int) -> list[int]:
        """Blocks newly given to a request for its next tokens; mostly none."""
        held = self.of[request.rid]
        needed = -(-(request.computed + new_tokens) // BLOCK_TOKENS) - len(held)
        if needed <= 0:
            return []
        new = list(range(len(held), len(held) + needed))
        held.extend(new)
        return new


class Work(RequestWork):
    """The engine core's step on the host."""

    def make_request(self, rid: str, prompt: list[int], output: list[int], max_tokens: int) -> Request:
        return Request(rid, prompt, output, max_tokens)

    def rewind(self) -> None:
        super().rewind()
        self.inbox: queue.Queue[Any] = queue.Queue()
        self.by_id = {r.rid: r for r in self.all_requests}
        self.blocks = Blocks(self.all_requests)
        self.row_of = {r.rid: i for i, r in enumerate(self.all_requests)}
        self.computed_cpu = np.array([r.computed for r in self.all_requests], dtype=np.int64)
        self.block_table = np.zeros((len(self.all_requests), MODEL_TOKENS // BLOCK_TOKENS), dtype=np.int32)

    def unfinished(self, reqs: list[Any]) -> list[int]:
        """The scheduling loop: every running request gets one token of the budget and, at times, a block."""
        while not self.inbox.empty():  # another thread would have put new requests there
            self.inbox.get_nowait()
        keep: list[int] = []
        budget = STEP_TOKENS
        self.scheduled: dict[str, int] = {}
        self.new_blocks: dict[str, list[int]] = {}
        for i, request in enumerate(reqs):
            if request.finished():
                continue
            if request.placeholders > 0 and len(request.output_ids) + request.placeholders >= request.max_tokens:
                continue
            new = request.tokens + request.placeholders + len(request.speculated) - request.computed
            new = min(new, budget, MODEL_TOKENS - 1 - request.computed)
            if request.has_encoder_inputs or new == 0:
                continue
            self.new_blocks[request.rid] = self.blocks.allocate(request, new)
            self.scheduled[request.rid] = new
            budget -= new
            keep.append(i)
        return keep

    def _move_on(self, batch: RequestBatch) -> None:
        super()._move_on(batch)
        for request in batch.reqs:
            request.computed += 1
            request.placeholders += 1

    def worker_batch(self, batch: RequestBatch) -> RequestBatch:
        """What the scheduler tells the model runner, and the runner's own state brought up to date from it."""
        rids = [r.rid for r in batch.reqs]
        computed = [r.computed for r in batch.reqs]
        for rid, count in zip(rids, computed, strict=True):
            row = self.row_of[rid]
            self.computed_cpu[row] = count
            for block in self.new_blocks[rid]:
                self.block_table[row, block] = block
        taken = RequestBatch(batch.reqs, self)
        taken.input_ids, taken.seq_lens, taken.slots = batch.input_ids, batch.seq_lens, batch.slots
        n = len(rids)
        rows = np.fromiter((self.row_of[rid] for rid in rids), dtype=np.int64, count=n)
        positions = self.computed_cpu[rows]
        slots = self.block_table[rows, positions // BLOCK_TOKENS] * BLOCK_TOKENS + positions % BLOCK_TOKENS
        for values in (np.arange(n + 1), positions, positions + 1, slots):
            torch.from_numpy(values).to(self.device, non_blocking=True)
        return taken

    def process(self, batch: RequestBatch, tokens: Sequence[int]) -> None:
        sampled = [[token] for token in tokens]
        outputs: list[Output] = []
        for i, of_batch in enumerate(batch.reqs):
            request = self.by_id.get(of_batch.rid)
            if request is None or request.finished():
                self.dead_rows += 1
                self.free_slot(batch, i)
                continue
            new_ids, stopped = self._update(request, sampled[i])
            if stopped:
                self.free_slot(batch, i)
            logprobs = None
            if request.logprobs is not None:
                logprobs = request.logprobs
            if request.use_structured_output:
                request.grammar.accept_tokens(new_ids)
            outputs.append(
                Output(
                    rid=request.rid,
                    new_ids=new_ids,
                    finish_reason=None if request.status == RUNNING else request.status,
                    logprobs=logprobs,
                    stop_reason=request.stop_reason,
                    events=request.take_events(),
                    trace_headers=request.trace_headers,
                    cached_tokens=request.cached_tokens,
                )
            )
        batch.news = outputs
        self.processed(batch)

    def _update(self, request: Request, new_ids: list[int]) -> tuple[list[int], bool]:
        stopped = False
        for count, token in enumerate(new_ids, 1):
            request.append(token)
            stopped = request.check_stop()
            if stopped:
                del new_ids[count:]
                break
        request.placeholders -= len(new_ids)
        return new_ids, stopped

    def stream(self, batch: RequestBatch) -> None:
        """Encode and send, which vLLM does in a thread of its own; a request that doesn't stream only its end."""
        outputs = batch.news
        if not self.workload.stream:
            outputs = [o for o in outputs if o.finish_reason is not None]
        if outputs:
            self.send([o.fields() for o in outputs])
