"""SGLang 0.4.0.post1's host work: output that is rebuilt and serialised in full every step.

Shape after managers/schedule_batch.py and managers/scheduler.py of that version (Apache-2.0), written anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from microbench.engines import sglang
from microbench.engines.requests import STOP_TOKEN, RequestBatch


class Request(sglang.Request):
    """One request of this version: fewer fields, one finish check, text offsets from the whole sequence."""

    fields = 39
    sampling_fields = 18

    def __init__(self, rid: str, prompt: list[int], output: list[int], max_tokens: int, stream: bool) -> None:
        self.version = self.completion_tokens = 0
        self.image_inputs = self.lora_path = None
        super().__init__(rid, prompt, output, max_tokens, stream)

    def check_finished(self, accepted: int = 1) -> None:
        if self.finished():
            return
        if self.to_abort:
            self.finished_reason = sglang.Finish("abort", 0)
            return
        if len(self.output_ids) >= self.sampling.max_new_tokens:
            self.finished_reason = sglang.Finish("length", self.sampling.max_new_tokens)
            return
        token = self.output_ids[-1]
        matched = False
        if self.sampling.stop_token_ids:
            matched = token in self.sampling.stop_token_ids
        if self.tokenizer is not None:
            matched |= token == STOP_TOKEN
        if matched and not self.sampling.ignore_eos:
            self.finished_reason = sglang.Finish("matched", token)
            return
        if len(self.sampling.stop_strings) > 0 and self.sampling.stop_strings[0] in self.decoded_text:
            self.finished_reason = sglang.Finish("matched", token)


@dataclass
class TokenMessage:
    """What goes to the detokenizer: one entry a request in every list."""

    rids: list[str] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    decoded_texts: list[str] = field(default_factory=list)
    decode_ids: list[list[int]] = field(default_factory=list)
    read_offsets: list[int] = field(default_factory=list)
    skip_special_tokens: list[bool] = field(default_factory=list)
    spaces_between_special_tokens: list[bool] = field(default_factory=list)
    meta_info: list[dict[str, Any]] = field(default_factory=list)
    finished_reasons: list[sglang.Finish | None] = field(default_factory=list)
    no_stop_trim: list[bool] = field(default_factory=list)


class Work(sglang.SglangWork):
    """The engine's step on the host."""

    request_class = Request

    def schedule(self) -> RequestBatch | None:
        self.receive()
        return super().schedule()

    def worker_batch(self, batch: RequestBatch) -> RequestBatch:
        taken = super().worker_batch(batch)
        taken.image_inputs = [r.image_inputs for r in batch.reqs]  # type: ignore[attr-defined]
        return taken

    def process(self, batch: RequestBatch, tokens: Sequence[int]) -> None:
        for i, (request, token) in enumerate(zip(batch.reqs, tokens, strict=True)):
            if request.is_retracted:
                continue
            if self.overlap and request.finished():
                self.dead_rows += 1
                self.free_slot(batch, i)
                continue
            request.completion_tokens += 1
            request.output_ids.append(token)
            request.check_finished()
            if request.finished():
                self.free_slot(batch, i)
            if request.return_logprob:
                request.logprobs.append(token)
            if request.grammar is not None:
                request.grammar.accept_token(token)
        self.processed(batch)

    def stream(self, batch: RequestBatch) -> None:
        message = TokenMessage()
        for request in batch.reqs:
            if not (request.streams or request.finished()) or request.finish_sent:
                continue
            request.finish_sent = request.finished()
            message.rids.append(request.rid)
            message.finished_reasons.append(request.finished_reason)
            message.versions.append(request.version)
            message.decoded_texts.append(request.decoded_text)
            ids, offset = request.all_ids_to_detokenize()
            message.decode_ids.append(ids)
            message.read_offsets.append(offset)
            message.skip_special_tokens.append(request.sampling.skip_special_tokens)
            message.spaces_between_special_tokens.append(request.sampling.spaces_between_special_tokens)
            message.no_stop_trim.append(request.sampling.no_stop_trim)
            message.meta_info.append(
                {
                    "prompt_tokens": len(request.prompt_ids),
                    "completion_tokens": len(request.output_ids),
                    "completion_tokens_wo_jump_forward": request.completion_tokens,
                    "cached_tokens": request.cached_tokens,
                    "finish_reason": None if request.finished_reason is None else request.finished_reason.to_json(),
                }
            )
        if message.rids:
            self.send(message)
