"""mini-sglang's host work: the ids of a request are a tensor, and small torch calls a request prepare its inputs.

Shape after python/minisgl/scheduler/scheduler.py and core.py (github.com/sgl-project/mini-sglang at 04340ee, MIT),
written anew. Assumed: its msgpack encoding costs what pickling the same nested dicts does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from microbench.engines.requests import STOP_TOKEN, RequestBatch, RequestWork


class Request:
    """One request; `device_len` counts what is launched, so its end by length is known before its last token is."""

    def __init__(self, rid: str, prompt: list[int], output: list[int], max_tokens: int, row: int) -> None:
        self.rid, self.prompt_ids, self.max_tokens, self.row = rid, prompt, max_tokens, row
        self.ids = torch.tensor(prompt + output, dtype=torch.int32)
        self.ignore_eos, self.done = True, False
        self.cached_len, self.device_len = len(self.ids) - 1, len(self.ids)

    @property
    def output_ids(self) -> list[int]:
        return self.ids[len(self.prompt_ids) :].tolist()

    @property
    def can_decode(self) -> bool:
        return self.device_len - len(self.prompt_ids) < self.max_tokens

    @property
    def extend_len(self) -> int:
        return self.device_len - self.cached_len

    def rewind(self, generated: int) -> None:
        """Forget the tokens after the first `generated`."""
        self.ids = self.ids[: len(self.prompt_ids) + generated].clone()
        self.done = False
        self.cached_len, self.device_len = len(self.ids) - 1, len(self.ids)

    def finished(self) -> bool:
        return self.done

    def append(self, token: torch.Tensor) -> None:
        """Every id again, and the new one."""
        self.ids = torch.cat([self.ids, token])


@dataclass
class TokenReply:
    """What the detokenizer gets for one request."""

    rid: str
    token: int
    finished: bool


def encode(value: Any) -> Any:
    """A message as nested dicts that say their types."""
    if isinstance(value, list):
        return [encode(v) for v in value]
    if isinstance(value, (int, float, str, bool, bytes)):
        return value
    return {"__type__": type(value).__name__, **{name: encode(v) for name, v in vars(value).items()}}


class Work(RequestWork):
    """The engine's step on the host."""

    def make_request(self, rid: str, prompt: list[int], output: list[int], max_tokens: int) -> Request:
        return Request(rid, prompt, output, max_tokens, int(rid[1:]))

    def schedule(self) -> RequestBatch | None:
        self.receive()
        return super().schedule()

    def unfinished(self, reqs: list[Any]) -> list[int]:
        return [i for i, request in enumerate(reqs) if request.can_decode and not request.done]

    def worker_batch(self, batch: RequestBatch) -> RequestBatch:
        """Positions, where to read the inputs and where to write the outputs: filled request by request."""
        n = len(batch.reqs)
        positions = torch.empty(n, dtype=torch.int32)
        mapping = torch.empty(n, dtype=torch.int64)
        for i, request in enumerate(batch.reqs):
            torch.arange(request.cached_len, request.device_len, dtype=torch.int32, out=positions[i : i + 1])
        for i, request in enumerate(batch.reqs):
            mapping[i : i + request.extend_len].fill_(request.row)
        rows = torch.tensor([r.row for r in batch.reqs], dtype=torch.int64)
        ends = torch.tensor([r.device_len if r.can_decode else -1 for r in batch.reqs], dtype=torch.int64)
        for values in (positions, mapping, rows, ends):
            values.to(self.device, non_blocking=True)
        taken = RequestBatch(batch.reqs, self)
        taken.input_ids, taken.seq_lens, taken.slots = batch.input_ids, batch.seq_lens, batch.slots
        return taken

    def _move_on(self, batch: RequestBatch) -> None:
        super()._move_on(batch)
        for request in batch.reqs:
            request.cached_len = request.device_len
            request.device_len += 1

    def process(self, batch: RequestBatch, tokens: Sequence[int]) -> None:
        on_host = torch.tensor(tokens, dtype=torch.int32)
        replies: list[TokenReply] = []
        for i, request in enumerate(batch.reqs):
            if request.done:
                self.dead_rows += 1
                self.free_slot(batch, i)
                continue
            token = on_host[i]
            request.append(token.unsqueeze(0))
            next_token = int(token.item())
            finished = len(request.ids) - len(request.prompt_ids) >= request.max_tokens
            if not request.ignore_eos:
                finished |= next_token == STOP_TOKEN
            replies.append(TokenReply(request.rid, next_token, finished))
            if finished:
                request.done = True
                self.free_slot(batch, i)
        batch.news = replies
        self.processed(batch)

    def stream(self, batch: RequestBatch) -> None:
        replies = batch.news
        if not self.workload.stream:
            replies = [reply for reply in replies if reply.finished]
        if replies:
            self.send(encode(replies))
