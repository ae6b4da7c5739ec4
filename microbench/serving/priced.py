"""An engine's host work on a changing batch, as prices on a host's clock. Real twin: `serving.requests`.

What makes a modelled GPU's answer up (the piece `answer`) costs a real host time, but no engine, so it isn't charged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from microbench.engines.prices import Price
from microbench.protocols import Host
from microbench.serving.batching import ContinuousBatching, Step
from microbench.serving.work import ServingBatch, ServingWork
from microbench.serving.workload import Client, Ints


@dataclass(frozen=True)
class PricedIds:
    """Token ids of which only the cost of reading them is known."""

    batch: PricedBatch

    def tolist(self) -> list[int]:
        self.batch.work.pay("read", self.batch)
        return []


@dataclass(eq=False, kw_only=True)
class PricedBatch(ServingBatch):
    """A step, and the tokens of its requests that prices depend on."""

    work: PricedServing
    prompt_tokens: int
    output_tokens: int

    def next_ids(self) -> PricedIds:
        return PricedIds(self)


class PricedServing(ServingWork):
    """Charges each piece of a step to the host; an idle turn is free."""

    def __init__(
        self, host: Host, prices: Mapping[str, Price], batching: ContinuousBatching, client: Client, *, overlap: bool
    ) -> None:
        super().__init__(host, batching, client, overlap=overlap)
        self.prices = prices

    def form(self, step: Step, *, again: bool = False) -> PricedBatch:
        prompt, output = int(self.batching.prompt[step.rows].sum()), int(self.batching.done[step.rows].sum())
        batch = PricedBatch(step=step, work=self, prompt_tokens=prompt, output_tokens=output)
        self.pay("advance" if again else "schedule", batch)
        return batch

    def futures(self, batch: ServingBatch) -> Any:
        self.pay("futures", batch)

    def resolve(self, batch: ServingBatch) -> None:
        self.pay("resolve", batch)

    def publish(self, batch: ServingBatch, ids: Any) -> None:
        self.pay("publish", batch)

    def results(self, batch: ServingBatch, step: Step, tokens: Sequence[int]) -> None:
        self.pay("process", batch)

    def send(self, batch: ServingBatch, told: Ints) -> None:
        assert isinstance(batch, PricedBatch)
        batch.output_tokens = int(self.batching.done[told].sum())
        self.pay("build", batch)
        self.pay("serialise", batch, atomic=True)

    def pay(self, piece: str, batch: ServingBatch, *, atomic: bool = False) -> None:
        """Spend what a piece of work costs for this batch."""
        price = self.prices.get(piece)
        if price is None or not isinstance(batch, PricedBatch):
            return
        held_ns = price.held_ns(batch.size, batch.prompt_tokens, batch.output_tokens)
        if atomic or not price.releases:
            self.host.spend(held_ns, atomic=atomic)
            held_ns = 0
        each_ns = held_ns // (price.releases + 1)
        for _ in range(price.releases):
            self.host.spend(each_ns, price.free_ns)
        self.host.spend(held_ns - each_ns * price.releases)
