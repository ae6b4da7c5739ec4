"""A minimal engine's host work, after nano-vllm: no streaming, per-sequence lists for the model's inputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from microbench.engines.requests import STOP_TOKEN, RequestBatch, RequestWork


class Request:
    """One sequence."""

    __slots__ = ("blocks", "done", "ignore_eos", "max_tokens", "output_ids", "prompt_ids", "rid")

    def __init__(self, rid: str, prompt: list[int], output: list[int], max_tokens: int) -> None:
        self.rid, self.prompt_ids, self.output_ids, self.max_tokens = rid, prompt, output, max_tokens
        self.ignore_eos, self.done = True, False
        self.blocks = list(range((len(prompt) + len(output)) // 256 + 1))

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.output_ids)

    def rewind(self, generated: int) -> None:
        """Forget the tokens after the first `generated`."""
        del self.output_ids[generated:]
        self.done = False

    def finished(self) -> bool:
        return self.done


class Work(RequestWork):
    """The engine's step on the host."""

    token_dtype = torch.int64

    def make_request(self, rid: str, prompt: list[int], output: list[int], max_tokens: int) -> Request:
        return Request(rid, prompt, output, max_tokens)

    def worker_batch(self, batch: RequestBatch) -> RequestBatch:
        taken = RequestBatch(batch.reqs, self)
        taken.input_ids, taken.seq_lens, taken.slots = batch.input_ids, batch.seq_lens, batch.slots
        positions, slot_mapping, context_lens = [], [], []
        for request in batch.reqs:
            positions.append(len(request) - 1)
            context_lens.append(len(request))
            slot_mapping.append(request.blocks[-1] * 256 + len(request) % 256)
        for values in (positions, slot_mapping, context_lens):
            torch.tensor(values, dtype=torch.int64).to(self.device, non_blocking=True)
        return taken

    def process(self, batch: RequestBatch, tokens: Sequence[int]) -> None:
        for i, (request, token) in enumerate(zip(batch.reqs, tokens, strict=True)):
            if request.done:
                self.dead_rows += 1
                self.free_slot(batch, i)
                continue
            request.output_ids.append(token)
            if (not request.ignore_eos and token == STOP_TOKEN) or len(request.output_ids) >= request.max_tokens:
                request.done = True
                self.free_slot(batch, i)
        self.processed(batch)

    def stream(self, batch: RequestBatch) -> None:
        """Nothing is streamed."""
