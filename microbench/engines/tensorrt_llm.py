"""TensorRT-LLM's PyExecutor on the host: lists of inputs a step, a response object a request.

Shape after tensorrt_llm/_torch/pyexecutor/py_executor.py (_executor_loop_overlap, _update_request_states,
_handle_responses) and model_engine.py (_prepare_tp_inputs) (Apache-2.0), written anew. Assumed: what those ask of C++
request objects costs what a Python attribute does, a KV block is added in C++ at the cost of a method call, a request
has 90 fields, and the responses are pickled on the loop's thread.
"""

from __future__ import annotations

import queue
from collections.abc import Sequence
from contextlib import suppress
from threading import Condition
from typing import Any

import torch

from microbench.engines.requests import STOP_TOKEN, RequestBatch, RequestWork, carry

IN_PROGRESS, TO_COMPLETE, COMPLETE = 1, 2, 3


class Request:
    """One request as the executor sees it."""

    def __init__(self, rid: str, prompt: list[int], output: list[int], max_tokens: int) -> None:
        self.rid, self.prompt_ids, self.output_ids, self.max_tokens = rid, prompt, output, max_tokens
        self.state = IN_PROGRESS
        self.slot: int | None = None
        self.decoding_iter = 0
        self.ignore_eos = True
        self.draft_tokens: list[int] = []
        self.stop_words: tuple[tuple[int, ...], ...] = ()
        self.scheduled_tokens = len(output)
        self.cached_tokens = 0
        self.is_dummy = self.timed_out = self.generation_only = self.return_perf_metrics = False
        carry(self, 90)

    def rewind(self, generated: int) -> None:
        """Forget the tokens after the first `generated`."""
        del self.output_ids[generated:]
        self.state, self.decoding_iter, self.slot = IN_PROGRESS, 0, None
        self.scheduled_tokens = generated

    def finished(self) -> bool:
        return self.state == COMPLETE

    def completes_next(self) -> bool:
        """Whether the step just launched brings the last token there is room for."""
        return self.scheduled_tokens >= self.max_tokens

    def create_response(self, streams: bool) -> dict[str, Any] | None:
        """What the client gets: the tokens not yet sent, and whether that is all."""
        if not streams and not self.finished():
            return None
        return {"output_token_ids": [self.output_ids[-1:]], "is_final": self.finished(), "sequence_index": 0}


class Work(RequestWork):
    """The executor's step on the host."""

    def make_request(self, rid: str, prompt: list[int], output: list[int], max_tokens: int) -> Request:
        return Request(rid, prompt, output, max_tokens)

    def rewind(self) -> None:
        super().rewind()
        self.new_requests: queue.Queue[Any] = queue.Queue()
        self.responses: dict[str, list[Any]] = {}
        self.response_cv = Condition()
        self.kv_tokens = {r.rid: len(r.prompt_ids) + len(r.output_ids) for r in self.all_requests}

    def unfinished(self, reqs: list[Any]) -> list[int]:
        with suppress(queue.Empty):
            self.new_requests.get_nowait()
        return [i for i, request in enumerate(reqs) if request.state == IN_PROGRESS]

    def _move_on(self, batch: RequestBatch) -> None:
        super()._move_on(batch)
        batch.reqs = sorted(batch.reqs, key=lambda request: int(request.slot is not None))
        for request in batch.reqs:
            self._add_kv_token(request)
            for _ in request.draft_tokens:
                self._add_kv_token(request)
            request.scheduled_tokens += 1

    def _add_kv_token(self, request: Request) -> None:
        self.kv_tokens[request.rid] += 1

    def worker_batch(self, batch: RequestBatch) -> RequestBatch:
        """The inputs as lists, then as tensors on their way to the device; and the states after this step."""
        rids, positions, cached, prompts, last_slots = [], [], [], [], []
        for row, request in enumerate(batch.reqs):
            if request.is_dummy:
                continue
            length = len(request.prompt_ids) + request.scheduled_tokens
            rids.append(request.rid)
            positions.append(length - 1)
            cached.append(length - 1)
            prompts.append(len(request.prompt_ids))
            last_slots.append(row if request.slot is None else request.slot)
            request.slot = row
        gather = list(range(len(rids)))
        for values in (positions, cached, prompts, last_slots, gather):
            torch.tensor(values, dtype=torch.int32).to(self.device, non_blocking=True)
        for request in batch.reqs:
            if request.state != COMPLETE and self.overlap and request.completes_next():
                request.state = TO_COMPLETE
        taken = RequestBatch(batch.reqs, self)
        taken.input_ids, taken.seq_lens, taken.slots = batch.input_ids, batch.seq_lens, batch.slots
        return taken

    def process(self, batch: RequestBatch, tokens: Sequence[int]) -> None:
        for i, (request, token) in enumerate(zip(batch.reqs, tokens, strict=True)):
            if request.state == COMPLETE:
                self.dead_rows += 1
                self.free_slot(batch, i)
                continue
            request.output_ids.append(token)
            if self._stops(request, token):
                request.state = COMPLETE
                self.free_slot(batch, i)
            request.decoding_iter += 1
        self.processed(batch)

    def _stops(self, request: Request, token: int) -> bool:
        if token == STOP_TOKEN and not request.ignore_eos:
            return True
        if len(request.output_ids) >= request.max_tokens:
            return True
        return any(tuple(request.output_ids[-len(word) :]) == word for word in request.stop_words)

    def stream(self, batch: RequestBatch) -> None:
        new: list[tuple[str, Any]] = []
        for request in batch.reqs:
            rid = request.rid
            if request.is_dummy or request.timed_out or request.generation_only:
                continue
            request.draft_tokens = request.draft_tokens if len(request.draft_tokens) > 0 else []
            if request.return_perf_metrics and request.decoding_iter >= 1:
                continue
            response = request.create_response(self.workload.stream)
            if response:
                response["cached_tokens"] = request.cached_tokens
                new.append((rid, response))
        if not new:
            return
        with self.response_cv:
            for rid, response in new:
                self.responses.setdefault(rid, []).append(response)
            self.response_cv.notify_all()
            waiting, self.responses = self.responses, {}
        self.send([r for of_request in waiting.values() for r in of_request])
