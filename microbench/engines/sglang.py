"""What SGLang's versions share on the host: request objects, finish checks, the way decode batches are filtered.

Shape after managers/schedule_batch.py and sampling/sampling_params.py of those versions (Apache-2.0), written anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from microbench.engines.requests import STOP_TOKEN, VOCABULARY, RequestBatch, RequestWork, carry

SURROUNDING_TOKENS = 5
"""Prompt tokens sent along so that the detokenizer can merge text at the seam."""


class Speculation(IntEnum):
    """The speculative algorithm, asked about several times a request and step."""

    NONE = 0
    EAGLE = 1

    def is_none(self) -> bool:
        return self == Speculation.NONE


@dataclass(frozen=True)
class Finish:
    """Why a request ended."""

    kind: str
    value: int

    def to_json(self) -> dict[str, Any]:
        return {"type": self.kind, self.kind: self.value}


class Sampling:
    """Sampling parameters; of `fields` in all, those that the result loop looks at by name."""

    def __init__(self, max_new_tokens: int, fields: int) -> None:
        self.max_new_tokens = max_new_tokens
        self.ignore_eos = True
        self.stop_token_ids: tuple[int, ...] = (STOP_TOKEN,)
        self.stop_strings: tuple[str, ...] = ()
        self.stop_regex: tuple[str, ...] = ()
        self.stream_interval: int | None = None
        self.skip_special_tokens = self.spaces_between_special_tokens = True
        self.no_stop_trim = False
        carry(self, fields)


class Request:
    """One request with the state that is read or written each step; versions subclass it.

    fields, sampling_fields: how many the version's own classes have.
    """

    fields = 92
    sampling_fields = 27

    def __init__(self, rid: str, prompt: list[int], output: list[int], max_tokens: int, stream: bool) -> None:
        self.rid, self.prompt_ids, self.output_ids = rid, prompt, output
        self.sampling = Sampling(max_tokens, self.sampling_fields)
        self.streams = stream
        self.finished_reason: Finish | None = None
        self.finish_sent = False
        self.finished_len: int | None = None
        self.to_abort = self.is_retracted = self.return_logprob = self.return_hidden_states = False
        self.grammar = self.tokenizer = self.multimodal_inputs = self.lora_id = self.http_worker = None
        self.eos_token_ids = {STOP_TOKEN}
        self.decoded_text = ""
        self.cached_tokens = self.send_token_offset = self.send_decode_id_offset = 0
        self.surr_offset: int | None = None
        self.read_offset: int | None = None
        self.surr_and_decode_ids: list[int] = []
        self.seen_output = 0
        carry(self, self.fields)

    def rewind(self, generated: int) -> None:
        """Forget the tokens after the first `generated`."""
        del self.output_ids[generated:]
        self.finished_reason, self.finish_sent, self.finished_len = None, False, None
        self.surr_offset = self.read_offset = None
        self.send_token_offset = self.send_decode_id_offset = self.seen_output = 0

    def finished(self) -> bool:
        return self.finished_reason is not None

    @property
    def ids_through_stop(self) -> list[int]:
        if self.finished_len is not None:
            return self.output_ids[: self.finished_len]
        return self.output_ids

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
        if self._token_finish(new):
            return
        if self._vocabulary_finish(new):
            return
        if self._string_finish():
            return

    def _token_finish(self, new: list[int]) -> bool:
        if self.sampling.ignore_eos:
            return False
        for i, token in enumerate(new):
            if token in self.sampling.stop_token_ids or token in self.eos_token_ids:
                self._finish_at(token, new, i)
                return True
        return False

    def _vocabulary_finish(self, new: list[int]) -> bool:
        for i, token in enumerate(new):
            if token > VOCABULARY or token < 0:
                self._finish_at(token, new, i)
                return True
        return False

    def _finish_at(self, token: int, new: list[int], i: int) -> None:
        self.finished_reason = Finish("matched", token)
        self.finished_len = len(self.output_ids) - len(new) + i + 1

    def _string_finish(self) -> bool:
        if len(self.sampling.stop_strings) > 0 or len(self.sampling.stop_regex) > 0:
            return any(stop in self.decoded_text for stop in self.sampling.stop_strings)
        return False

    def holds_back(self) -> bool:
        """True while the text so far may be the start of a stop string."""
        if not self.sampling.stop_strings:
            return False
        return self.decoded_text[-1:] == self.sampling.stop_strings[0][:1]

    def ids_to_detokenize(self) -> tuple[list[int], int]:
        """Ids from just before the prompt's end: a list that only grows."""
        first = self.surr_offset is None or self.read_offset is None
        output = self.ids_through_stop
        if first:
            self._start_detokenizing()
            self.surr_and_decode_ids = self.prompt_ids[self.surr_offset :] + output
        else:
            self.surr_and_decode_ids.extend(output[self.seen_output :])
        self.seen_output = len(output)
        return self.surr_and_decode_ids, self.read_offset - self.surr_offset  # type: ignore[operator]

    def all_ids_to_detokenize(self) -> tuple[list[int], int]:
        """The same, built from the whole sequence every time: what versions up to 0.4.9 do."""
        if self.surr_offset is None or self.read_offset is None:
            self._start_detokenizing()
        all_ids = self.prompt_ids + self.output_ids
        return all_ids[self.surr_offset :], self.read_offset - self.surr_offset  # type: ignore[operator]

    def _start_detokenizing(self) -> None:
        self.read_offset = len(self.prompt_ids)
        self.surr_offset = max(self.read_offset - SURROUNDING_TOKENS, 0)


class SglangWork(RequestWork):
    """What the versions' steps share."""

    request_class: type[Request] = Request
    stream_interval = 1
    speculation = Speculation.NONE
    is_multimodal_gen = False

    def make_request(self, rid: str, prompt: list[int], output: list[int], max_tokens: int) -> Request:
        return self.request_class(rid, prompt, output, max_tokens, self.workload.stream)

    def unfinished(self, reqs: list[Any]) -> list[int]:
        being_prefilled: list[Any] = []
        return [i for i in range(len(reqs)) if not reqs[i].finished() and reqs[i] not in being_prefilled]

    def worker_batch(self, batch: RequestBatch) -> RequestBatch:
        """The batch the model gets: the tensors, and lists gathered from the requests."""
        taken = RequestBatch(batch.reqs, self)
        taken.input_ids, taken.seq_lens, taken.slots = batch.input_ids, batch.seq_lens, batch.slots
        taken.lora_ids = [r.lora_id for r in batch.reqs]  # type: ignore[attr-defined]
        return taken

    def streams_now(self, request: Request) -> bool:
        """Whether a request that has not ended is sent this step."""
        if not request.streams:
            return False
        interval = request.sampling.stream_interval or self.stream_interval
        due = (
            len(request.output_ids) % interval == 1
            if not self.is_multimodal_gen and interval > 1
            else len(request.output_ids) % interval == 0
        )
        return due and not request.holds_back()

    def process(self, batch: RequestBatch, tokens: Sequence[int]) -> None:
        """The result loop of 0.4.9 to 0.5.4."""
        for i, (request, token) in enumerate(zip(batch.reqs, tokens, strict=True)):
            if self.overlap and (request.finished() or request.is_retracted):
                self.dead_rows += 1
                self.free_slot(batch, i)
                continue
            if request.is_retracted:
                continue
            if self.speculation.is_none():
                request.output_ids.append(token)
            request.check_finished(1)
            if request.finished():
                self.free_slot(batch, i)
            if request.return_logprob and self.speculation.is_none():
                request.logprobs.append(token)
            if request.return_hidden_states:
                request.hidden_states.append(token)
            if request.grammar is not None and self.speculation.is_none():
                request.grammar.accept_token(token)
        self.processed(batch)
