"""What serving work has in common on every host: requests come, batches are formed, results settled, tokens seen.

`priced` charges an engine's host work to a clock, `requests` really does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from microbench.errors import MicrobenchError
from microbench.protocols import Host
from microbench.serving.batching import ContinuousBatching, Step
from microbench.serving.workload import Client, Ints


@dataclass(eq=False)
class ServingBatch:
    """A step as schedulers see it. Without a step it is an idle turn: nothing could run until a result is settled.

    ended: requests that got their last token. sample_ns: what sampling takes on a modelled GPU.
    """

    step: Step | None
    ended: int = 0
    sample_ns: tuple[int, ...] = ()
    input_ids: Any = None
    seq_lens: Any = None

    @property
    def size(self) -> int:
        return len(self.step.rows) if self.step else 0

    def next_ids(self) -> Any:
        """The token ids a modelled GPU answers with; something with a `tolist`."""
        return np.zeros(self.size, dtype=np.int64)


@dataclass
class Timeline:
    """When each request was sent and got its first and last token, in ns after the start, and all gaps between tokens.

    -1 where it has not happened.
    """

    sent_ns: Ints
    first_ns: Ints
    last_ns: Ints
    gaps_ns: list[Ints] = field(default_factory=list)

    @classmethod
    def of(cls, requests: int) -> Timeline:
        sent, first, last = (np.full(requests, -1, dtype=np.int64) for _ in range(3))
        return cls(sent, first, last)

    def token(self, requests: Ints, at_ns: int) -> None:
        """Each of these requests got one more token."""
        last = self.last_ns[requests]
        self.gaps_ns.append(at_ns - last[last >= 0])
        self.first_ns[requests[last < 0]] = at_ns
        self.last_ns[requests] = at_ns


class ServingWork:
    """A `protocols.EngineWork` over continuous batching, but for the work itself, which subclasses do.

    A token counts as seen when its message was sent.
    """

    def __init__(self, host: Host, batching: ContinuousBatching, client: Client, *, overlap: bool) -> None:
        self.host, self.batching, self.client, self.overlap = host, batching, client, overlap
        self.timeline = Timeline.of(len(batching.prompt))
        self._start_ns = host.now_ns()
        self._unsettled = 0

    # -- what the subclasses do ------------------------------------------------------------------------------

    def form(self, step: Step, *, again: bool = False) -> ServingBatch:
        """Prepare the inputs of a step; `again`: of the same requests as the last one."""
        raise TypeError("a subclass forms batches")

    def results(self, batch: ServingBatch, step: Step, tokens: Sequence[int]) -> None:
        """Append tokens and check who finishes."""

    def send(self, batch: ServingBatch, told: Ints) -> None:
        """Build and send the message with the tokens of these requests."""

    def futures(self, batch: ServingBatch) -> Any:
        return None

    def outputs(self, batch: ServingBatch, ids: Any) -> None:
        pass

    def resolve(self, batch: ServingBatch) -> None:
        pass

    def publish(self, batch: ServingBatch, ids: Any) -> None:
        pass

    def close(self) -> None:
        pass

    # -- the same everywhere ---------------------------------------------------------------------------------

    def rewind(self) -> None:
        raise MicrobenchError("a replay runs once")

    def schedule(self) -> ServingBatch | None:
        """The next batch, after waiting for the next request when there is nothing else; None when all have ended."""
        while True:
            self._receive()
            step = self.batching.next()
            if step or self._unsettled or self.batching.all_finished:
                break
            when_ns = self.client.next_ns()
            if when_ns is None:
                raise MicrobenchError("no request can run, none is coming and no result is awaited")
            self.host.wait_until(self._start_ns + when_ns, "the next request")
        if step is None:
            return None if self.batching.all_finished else ServingBatch(None)
        self._unsettled += 1
        return self.form(step)

    def advance(self) -> ServingBatch:
        """The next decode step of the same requests without a look at them; an idle turn when there is none."""
        step = self.batching.again()
        if step is None:
            return ServingBatch(None)
        self._unsettled += 1
        return self.form(step, again=True)

    def snapshot(self, batch: ServingBatch) -> ServingBatch:
        return batch

    def process(self, batch: ServingBatch, tokens: Sequence[int]) -> None:
        if batch.step is None:
            return
        self.results(batch, batch.step, tokens)
        batch.ended = self.batching.settle(batch.step)
        self._unsettled -= 1

    def stream(self, batch: ServingBatch) -> None:
        if batch.step is None or batch.step.told is None or not len(batch.step.told):
            return
        self.send(batch, batch.step.told)
        seen_ns = self._now_ns()
        self.timeline.token(batch.step.told, seen_ns)
        self.client.ended(batch.ended, seen_ns)

    def _receive(self) -> None:
        """Requests sent since the last look join the queue."""
        sent = self.client.send_due(self._now_ns())
        for request, at_ns in sent:
            self.timeline.sent_ns[request] = at_ns
        self.batching.arrive(request for request, _ in sent)

    def _now_ns(self) -> int:
        return self.host.now_ns() - self._start_ns
