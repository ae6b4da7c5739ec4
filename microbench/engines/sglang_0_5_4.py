"""SGLang 0.5.4's host work: only new ids are built and sent; the finish check has more steps.

Shape after managers/schedule_batch.py and scheduler_output_processor_mixin.py of that version (Apache-2.0),
written anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from microbench.engines.requests import STOP_TOKEN, VOCABULARY, RequestBatch, RequestWork
from microbench.engines.sglang_0_4_0 import SURROUNDING_TOKENS, Finish, Sampling


class Request:
    """One request with the state that is read or written each step."""

    def __init__(self, rid: str, prompt: list[int], output: list[int], max_tokens: int, stream: bool) -> None:
        self.rid, self.prompt_ids, self.output_ids = rid, prompt, output
        self.sampling = Sampling(max_tokens)
        self.streams = stream
        self.finished_reason: Finish | None = None
        self.finish_sent = False
        self.finished_len: int | None = None
        self.to_abort = self.is_retracted = self.return_logprob = self.return_hidden_states = False
        self.grammar = self.tokenizer = self.multimodal_inputs = self.lora_id = None
        self.eos_token_ids = {STOP_TOKEN}
        self.stop_regex: tuple[str, ...] = ()
        self.cached_tokens = self.send_token_offset = self.send_decode_id_offset = 0
        self.decoded_text = ""
        self.http_worker = None
        self.surr_offset: int | None = None
        self.read_offset: int | None = None
        self.surr_and_decode_ids: list[int] = []
        self.seen_output = 0

    def rewind(self, generated: int) -> None:
        """Forget the tokens after the first `generated`."""
        del self.output_ids[generated:]
        self.finished_reason, self.finish_sent = None, False
        self.surr_offset = self.read_offset = None
        self.send_token_offset = self.send_decode_id_offset = self.seen_output = 0
        self.finished_len = None

    def finished(self) -> bool:
        return self.finished_reason is not None

    @property
    def ids_through_stop(self) -> list[int]:
        return self.output_ids if self.finished_len is None else self.output_ids[: self.finished_len]

    def check_finished(self, accepted: int = 1) -> None:
        if self.finished():
            return
        if self.to_abort:
            self.finished_reason = Finish("abort", 0)
            return
        if len(self.output_ids) >= self.sampling.max_new_tokens:
            self.finished_reason = Finish("length", self.sampling.max_new_tokens)
            self.finished_len = self.sampling.max_new_tokens
            return
        if self.grammar is not None:
            return
        new = self.output_ids[-accepted:]
        if self._token_finish(new) or self._vocabulary_finish(new):
            return
        self._string_finish()

    def _token_finish(self, new: list[int]) -> bool:
        if self.sampling.ignore_eos:
            return False
        for i, token in enumerate(new):
            if token in self.sampling.stop_token_ids or token in self.eos_token_ids:
                self.finished_reason = Finish("matched", token)
                self.finished_len = len(self.output_ids) - len(new) + i + 1
                return True
        return False

    def _vocabulary_finish(self, new: list[int]) -> bool:
        for i, token in enumerate(new):
            if token > VOCABULARY or token < 0:
                self.finished_reason = Finish("matched", token)
                self.finished_len = len(self.output_ids) - len(new) + i + 1
                return True
        return False

    def _string_finish(self) -> bool:
        if len(self.sampling.stop_strings) > 0 or len(self.stop_regex) > 0:
            return any(stop in self.decoded_text for stop in self.sampling.stop_strings)
        return False

    def holds_back(self) -> bool:
        """True while the text so far may be the start of a stop string."""
        return bool(self.sampling.stop_strings) and self.decoded_text[-1:] == self.sampling.stop_strings[0][:1]

    def ids_to_detokenize(self) -> tuple[list[int], int]:
        output = self.ids_through_stop
        if self.surr_offset is None or self.read_offset is None:
            self.read_offset = len(self.prompt_ids)
            self.surr_offset = max(self.read_offset - SURROUNDING_TOKENS, 0)
            self.surr_and_decode_ids = self.prompt_ids[self.surr_offset :] + output
        else:
            self.surr_and_decode_ids.extend(output[self.seen_output :])
        self.seen_output = len(output)
        return self.surr_and_decode_ids, self.read_offset - self.surr_offset


@dataclass
class TokenMessage:
    """What goes to the detokenizer: one entry a request in every list."""

    rids: list[str] = field(default_factory=list)
    http_workers: list[Any] = field(default_factory=list)
    finished_reasons: list[dict[str, Any] | None] = field(default_factory=list)
    decoded_texts: list[str] = field(default_factory=list)
    decode_ids: list[list[int]] = field(default_factory=list)
    read_offsets: list[int] = field(default_factory=list)
    output_ids: list[list[int]] = field(default_factory=list)
    skip_special_tokens: list[bool] = field(default_factory=list)
    spaces_between_special_tokens: list[bool] = field(default_factory=list)
    no_stop_trim: list[bool] = field(default_factory=list)
    prompt_tokens: list[int] = field(default_factory=list)
    completion_tokens: list[int] = field(default_factory=list)
    cached_tokens: list[int] = field(default_factory=list)


@dataclass
class BatchSampling:
    """The batch's sampling state, copied for each forward because scheduling changes it meanwhile."""

    temperatures: torch.Tensor
    top_ps: torch.Tensor | None = None
    top_ks: torch.Tensor | None = None
    min_ps: torch.Tensor | None = None
    is_all_greedy: bool = True
    grammars: list[Any] | None = None
    logit_bias: torch.Tensor | None = None


class Work(RequestWork):
    """The engine's step on the host."""

    token_dtype = torch.int64

    def make_request(self, rid: str, prompt: list[int], output: list[int], max_tokens: int) -> Request:
        return Request(rid, prompt, output, max_tokens, self.workload.stream)

    def rewind(self) -> None:
        super().rewind()
        self.lengths_cpu, self.lengths_at_first = self.batch.seq_lens.cpu(), self.batch.seq_lens.clone()
        self.sampling = BatchSampling(torch.zeros(len(self.all_requests), device=self.device))

    def _filter(self, batch: RequestBatch, keep: list[int]) -> None:
        super()._filter(batch, keep)
        indices = torch.tensor(keep, dtype=torch.int64)
        self.lengths_cpu = self.lengths_cpu[indices]
        self.lengths_at_first = self.lengths_at_first[indices.to(self.device)]

    def schedule(self) -> RequestBatch | None:
        self.receive()  # from the tokenizer
        self.receive()  # remote calls
        return super().schedule()

    def worker_batch(self, batch: RequestBatch) -> RequestBatch:
        """The batch the model gets: mirrors of the lengths, positions, a copy of the sampling state."""
        self.lengths_cpu = self.lengths_cpu + 1
        self.lengths_at_first = self.lengths_at_first + 1
        taken = RequestBatch(batch.reqs, self)
        taken.lengths_cpu = self.lengths_cpu  # type: ignore[attr-defined]
        taken.positions = torch.clamp(batch.seq_lens - 1, min=0).to(torch.int64)  # type: ignore[attr-defined]
        taken.sampling = replace(self.sampling)  # type: ignore[attr-defined]
        taken.input_ids, taken.seq_lens, taken.slots = batch.input_ids, batch.seq_lens, batch.slots
        taken.multimodal_inputs = [r.multimodal_inputs for r in batch.reqs]  # type: ignore[attr-defined]
        taken.lora_ids = [r.lora_id for r in batch.reqs]  # type: ignore[attr-defined]
        return taken

    def process(self, batch: RequestBatch, tokens: Sequence[int]) -> None:
        for i, (request, token) in enumerate(zip(batch.reqs, tokens, strict=True)):
            if self.overlap and (request.finished() or request.is_retracted):
                self.dead_rows += 1
                self.free_slot(batch, i)
                continue
            if request.is_retracted:
                continue
            request.output_ids.append(token)
            request.check_finished(1)
            if request.finished():
                self.free_slot(batch, i)
            if request.return_logprob:
                request.logprobs.append(token)
            if request.return_hidden_states:
                request.hidden_states.append(token)
            if request.grammar is not None:
                request.grammar.accept_token(token)
        self.tokens_out += len(batch.reqs)

    def stream(self, batch: RequestBatch) -> None:
        message = TokenMessage()
        for request in batch.reqs:
            if request.finished():
                if request.finish_sent:
                    continue
                request.finish_sent = True
            elif not request.streams or request.holds_back():
                continue
            message.rids.append(request.rid)
            message.http_workers.append(request.http_worker)
            message.finished_reasons.append(request.finished_reason.to_json() if request.finished_reason else None)
            message.decoded_texts.append(request.decoded_text)
            ids, offset = request.ids_to_detokenize()
            message.decode_ids.append(ids[request.send_decode_id_offset :])
            output = request.ids_through_stop
            request.send_decode_id_offset = len(ids)
            message.read_offsets.append(offset)
            message.output_ids.append(output[request.send_token_offset :])
            request.send_token_offset = len(output)
            message.skip_special_tokens.append(request.sampling.skip_special_tokens)
            message.spaces_between_special_tokens.append(request.sampling.spaces_between_special_tokens)
            message.no_stop_trim.append(request.sampling.no_stop_trim)
            message.prompt_tokens.append(len(request.prompt_ids))
            message.completion_tokens.append(len(output))
            message.cached_tokens.append(request.cached_tokens)
        if message.rids:
            self.send(message)
        self.free_collected()
