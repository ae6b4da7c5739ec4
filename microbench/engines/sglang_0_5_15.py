"""SGLang 0.5.15's host work: token lists a request, more counters a request, arrays instead of lists of ids.

Shape after managers/schedule_batch.py, scheduler_components/batch_result_processor.py and output_streamer.py of that
version (Apache-2.0), written anew. Times of the request travel with every message, as a pickle inside it. Assumed: its
msgpack encoding costs what pickling the same fields does.
"""

from __future__ import annotations

import pickle
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from microbench.engines import sglang, sglang_0_5_4
from microbench.engines.requests import RequestBatch


class Times:
    """When things happened to a request; sent as a few constants where tracing is off."""

    def __init__(self) -> None:
        self.last_decode_finish_time = 0.0
        self.enable_metrics = self.tracing = False

    def decoded(self) -> None:
        self.last_decode_finish_time = time.perf_counter()

    def __getstate__(self) -> dict[str, Any]:
        return {"disagg_mode": None, "enable_metrics": False, "trace_ctx": {"tracing_enable": False}, "offset": 0.0}


class Request(sglang.Request):
    """One request of this version."""

    fields = 126
    sampling_fields = 30
    prompt_ids: Any
    output_ids: Any

    def __init__(self, rid: str, prompt: list[int], output: list[int], max_tokens: int, stream: bool) -> None:
        self.decode_batch_idx = self.kv_committed_len = self.kv_allocated_len = 0
        self.reasoning_tokens = self.retraction_count = 0
        self.cached_device = self.cached_host = self.cached_storage = 0
        self.image_tokens = self.audio_tokens = self.video_tokens = 0
        self.require_reasoning = self.return_routed_experts = self.return_indexer_topk = False
        self.times = Times()
        super().__init__(rid, prompt, output, max_tokens, stream)
        self.prompt_ids, self.output_ids = array("q", prompt), array("q", output)

    def cached_details(self) -> dict[str, int] | None:
        """Where the cached part of the prompt came from, or None."""
        if self.cached_device > 0 or self.cached_host > 0 or self.cached_storage > 0:
            return {"device": self.cached_device, "host": self.cached_host}
        if self.cached_tokens > 0:
            return {"device": self.cached_tokens, "host": 0}
        return None


@dataclass(slots=True)
class Outputs:
    """What goes to the detokenizer: one entry a request in every list."""

    rids: list[str] = field(default_factory=list)
    http_workers: list[Any] = field(default_factory=list)
    finished: list[dict[str, Any] | None] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    decode_ids: list[Any] = field(default_factory=list)
    read_offsets: list[int] = field(default_factory=list)
    output_ids: list[Any] = field(default_factory=list)
    options: list[tuple[bool, bool, bool]] = field(default_factory=list)
    prompt_tokens: list[int] = field(default_factory=list)
    reasoning_tokens: list[int] = field(default_factory=list)
    completion_tokens: list[int] = field(default_factory=list)
    cached_tokens: list[int] = field(default_factory=list)
    cached_details: list[dict[str, int] | None] = field(default_factory=list)
    media_tokens: list[tuple[int, int, int]] = field(default_factory=list)
    retractions: list[int] = field(default_factory=list)
    times: Any = field(default_factory=list)

    def accept(self, request: Request) -> None:
        """Add what a request has to send."""
        self.rids.append(request.rid)
        self.http_workers.append(request.http_worker)
        self.finished.append(request.finished_reason.to_json() if request.finished_reason else None)
        self.texts.append(request.decoded_text)
        ids, offset = request.ids_to_detokenize()
        self.decode_ids.append(ids[request.send_decode_id_offset :])
        output = request.ids_through_stop
        request.send_decode_id_offset = len(ids)
        self.read_offsets.append(offset)
        self.output_ids.append(output[request.send_token_offset :])
        request.send_token_offset = len(output)
        sampling = request.sampling
        self.options.append(
            (sampling.skip_special_tokens, sampling.spaces_between_special_tokens, sampling.no_stop_trim)
        )
        self.prompt_tokens.append(len(request.prompt_ids))
        self.reasoning_tokens.append(request.reasoning_tokens)
        self.completion_tokens.append(len(output))
        self.cached_tokens.append(request.cached_tokens)
        self.cached_details.append(request.cached_details())
        self.media_tokens.append((request.image_tokens, request.audio_tokens, request.video_tokens))
        self.retractions.append(request.retraction_count)
        self.times.append(request.times)


def encoded(ids: array[int]) -> tuple[str, bytes]:
    """An array as the encoder's hook writes it."""
    return ids.typecode, ids.tobytes()


class Work(sglang_0_5_4.Work):
    """The engine's step on the host."""

    request_class = Request
    disaggregated_offload = False

    def _move_on(self, batch: RequestBatch) -> None:
        super()._move_on(batch)
        for request in batch.reqs:
            request.decode_batch_idx += 1
            request.kv_committed_len += 1
            request.kv_allocated_len += 1

    def process(self, batch: RequestBatch, tokens: Sequence[int]) -> None:
        accepted = [[token] for token in tokens]
        for i, request in enumerate(batch.reqs):
            if self.overlap and (request.finished() or request.is_retracted):
                self.dead_rows += 1
                self.free_slot(batch, i)
                continue
            new = accepted[i]
            speculates = not self.speculation.is_none()
            request.output_ids.extend(new)
            self._count_reasoning(request, new)
            request.times.decoded()
            request.check_finished(len(new))
            self._release(request, batch, i)
            if request.return_logprob:
                request.logprobs.extend(new)
            if request.return_hidden_states:
                request.hidden_states.extend(new)
            if request.grammar is not None and not speculates:
                request.grammar.accept_token(new[0])
        self.processed(batch)

    def _count_reasoning(self, request: Request, new: list[int]) -> None:
        if request.require_reasoning:
            request.reasoning_tokens += len(new)

    def _release(self, request: Request, batch: RequestBatch, i: int) -> None:
        if self.disaggregated_offload:
            return
        if request.finished():
            self.free_slot(batch, i)

    def stream(self, batch: RequestBatch) -> None:
        reqs = batch.reqs
        with_hidden_states = any(r.return_hidden_states for r in reqs)
        with_experts = any(r.return_routed_experts for r in reqs)
        with_topk = any(r.return_indexer_topk for r in reqs)
        outputs = Outputs()
        for request in reqs:
            if request.finished() and request.finish_sent:
                continue
            if request.finished():
                request.finish_sent = True
            elif not self.streams_now(request):
                continue
            outputs.accept(request)
        if outputs.rids:
            outputs.times = pickle.dumps(outputs.times)
            self.send((outputs, with_hidden_states, with_experts, with_topk))

    def send(self, message: Any) -> None:
        """Its encoder calls back for every array, and writes the rest by itself."""
        outputs = message[0]
        outputs.decode_ids = [encoded(ids) for ids in outputs.decode_ids]
        outputs.output_ids = [encoded(ids) for ids in outputs.output_ids]
        super().send(message)
