"""SGLang 0.4.9's host work: 0.5.4's bookkeeping, but every request's ids are still put together in full each step.

Only the new ones of them are sent. Shape after managers/schedule_batch.py, scheduler_output_processor_mixin.py and
tp_worker_overlap_thread.py of that version (Apache-2.0), written anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from microbench.engines import sglang
from microbench.engines.requests import RequestBatch
from microbench.engines.sglang_0_5_4 import BatchSampling


class Request(sglang.Request):
    """One request of this version; no check for tokens outside the vocabulary."""

    fields = 81
    sampling_fields = 24

    def _vocabulary_finish(self, new: list[int]) -> bool:
        return False


@dataclass
class TokenMessage:
    """What goes to the detokenizer: one entry a request in every list."""

    rids: list[str] = field(default_factory=list)
    finished_reasons: list[dict[str, Any] | None] = field(default_factory=list)
    decoded_texts: list[str] = field(default_factory=list)
    new_ids: list[list[int]] = field(default_factory=list)
    read_offsets: list[int] = field(default_factory=list)
    text_options: tuple[list[bool], list[bool], list[bool]] = field(default_factory=lambda: ([], [], []))
    counts: tuple[list[int], list[int], list[int]] = field(default_factory=lambda: ([], [], []))


class Work(sglang.SglangWork):
    """The engine's step on the host."""

    token_dtype = torch.int64
    request_class = Request

    def rewind(self) -> None:
        super().rewind()
        self.sampling = BatchSampling(torch.zeros(len(self.all_requests), device=self.device))

    def schedule(self) -> RequestBatch | None:
        self.receive()  # from the tokenizer
        self.receive()  # remote calls
        return super().schedule()

    def worker_batch(self, batch: RequestBatch) -> RequestBatch:
        taken = super().worker_batch(batch)
        taken.sampling = replace(self.sampling)  # type: ignore[attr-defined]
        return taken

    def stream(self, batch: RequestBatch) -> None:
        message = TokenMessage()
        skips_special, spaces, keeps_stop = message.text_options
        prompts, completions, cached = message.counts
        for request in batch.reqs:
            if request.finished():
                if request.finish_sent:
                    continue
                request.finish_sent = True
            elif not self.streams_now(request):
                continue
            message.rids.append(request.rid)
            message.finished_reasons.append(request.finished_reason.to_json() if request.finished_reason else None)
            message.decoded_texts.append(request.decoded_text)
            ids, offset = request.all_ids_to_detokenize()
            message.new_ids.append(ids[request.send_decode_id_offset :])
            request.send_decode_id_offset = len(ids)
            message.read_offsets.append(offset)
            request.send_token_offset = len(request.output_ids)
            sampling = request.sampling
            skips_special.append(sampling.skip_special_tokens)
            spaces.append(sampling.spaces_between_special_tokens)
            keeps_stop.append(sampling.no_stop_trim)
            prompts.append(len(request.prompt_ids))
            completions.append(len(request.output_ids))
            cached.append(request.cached_tokens)
        if message.rids:
            self.send(message)
