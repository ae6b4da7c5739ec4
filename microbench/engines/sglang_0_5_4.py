"""SGLang 0.5.4's host work: only new ids are built and sent; the finish check has more steps.

Shape after managers/schedule_batch.py and scheduler_output_processor_mixin.py of that version (Apache-2.0),
written anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from microbench.engines.requests import RequestBatch
from microbench.engines.sglang import SglangWork


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
    spec_verify_counts: list[int] = field(default_factory=list)


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


class Work(SglangWork):
    """The engine's step on the host."""

    token_dtype = torch.int64
    log_time_stats = False

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

    def _move_on(self, batch: RequestBatch) -> None:
        super()._move_on(batch)
        self.lengths_cpu = self.lengths_cpu + 1
        self.lengths_at_first = self.lengths_at_first + 1

    def worker_batch(self, batch: RequestBatch) -> RequestBatch:
        """The batch the model gets: mirrors of the lengths, positions, a copy of the sampling state."""
        taken = super().worker_batch(batch)
        taken.lengths_cpu = self.lengths_cpu  # type: ignore[attr-defined]
        taken.positions = torch.clamp(batch.seq_lens - 1, min=0).to(torch.int64)  # type: ignore[attr-defined]
        taken.sampling = replace(self.sampling)  # type: ignore[attr-defined]
        return taken

    def stream(self, batch: RequestBatch) -> None:
        message = TokenMessage()
        for request in batch.reqs:
            if self.is_multimodal_gen and request.to_abort:
                continue
            if request.finished():
                if request.finish_sent:
                    continue
                request.finish_sent = True
            elif not self.streams_now(request):
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
            if not self.speculation.is_none():
                message.spec_verify_counts.append(request.spec_verify_count)
            if request.return_hidden_states:
                message.output_ids.append(request.hidden_states)
            if request.finished() and self.log_time_stats:
                request.log_time_stats()
        if message.rids:
            self.send(message)
