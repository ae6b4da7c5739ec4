"""An engine's host work as prices on a host's clock: no requests, no tokens. Real twin: `engines.requests`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from microbench.engines.prices import HostProfile, Price
from microbench.engines.workload import Workload
from microbench.protocols import Batch, Host


@dataclass(frozen=True)
class PricedIds:
    """Token ids of which only the cost of reading them is known."""

    work: PricedWork

    def tolist(self) -> list[int]:
        self.work._pay("read")
        return []


@dataclass(frozen=True)
class PricedBatch:
    """A batch of which only the size is known."""

    size: int
    work: PricedWork
    input_ids: Any = None
    seq_lens: Any = None

    def next_ids(self) -> PricedIds:
        self.work._pay("answer")
        return PricedIds(self.work)


class PricedWork:
    """Charges each piece of one engine's step to the host."""

    def __init__(self, host: Host, profile: HostProfile, engine: str, workload: Workload, *, overlap: bool) -> None:
        self.host, self.workload, self.overlap = host, workload, overlap
        self.prices: Mapping[str, Price] = profile.prices[engine]
        self.prompt_tokens = sum(workload.prompt_lengths())
        self.batch = PricedBatch(workload.requests, self)
        self.rewind()

    def rewind(self) -> None:
        self.output_tokens = self.workload.generated * self.workload.requests

    def schedule(self) -> PricedBatch:
        self._pay("schedule")
        return self.batch

    def advance(self) -> PricedBatch:
        self._pay("advance")
        return self.batch

    def outputs(self, batch: Batch, ids: Any) -> None:
        pass

    def futures(self, batch: Batch) -> None:
        self._pay("futures")

    def snapshot(self, batch: Batch) -> Batch:
        return batch

    def resolve(self, batch: Batch) -> None:
        self._pay("resolve")

    def publish(self, batch: Batch, ids: Any) -> None:
        self._pay("publish")

    def process(self, batch: Batch, tokens: Sequence[int]) -> None:
        self._pay("process")
        self.output_tokens += batch.size

    def stream(self, batch: Batch) -> None:
        if self.workload.stream:
            self._pay("build")
            self._pay("serialise", atomic=True)

    def close(self) -> None:
        pass

    def _pay(self, piece: str, *, atomic: bool = False) -> None:
        price = self.prices.get(piece)
        if price is None:
            return
        held = price.held_ns(self.batch.size, self.prompt_tokens, self.output_tokens)
        if not price.releases:
            self.host.spend(held, atomic=atomic)
            return
        if atomic:
            self.host.spend(held, atomic=True)
            held = 0
        each = held // (price.releases + 1)
        for _ in range(price.releases):
            self.host.spend(each, price.free_ns)
        self.host.spend(held - each * price.releases)
