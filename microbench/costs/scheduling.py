"""Python scheduling: schedule (S), process (P) and stream (O) of an engine's real work against the batch size."""

from __future__ import annotations

from microbench.costs.cost import Cost
from microbench.engines import EngineProfile, Workload
from microbench.engines.pricing import time_pieces

BATCHES = (1, 8, 32, 128, 500)
SEGMENTS = {
    "schedule (S)": ("schedule", "futures"),
    "process (P)": ("read", "process"),
    "stream (O)": ("build", "serialise"),
}


def scheduling(engine: EngineProfile, batch: int, *, generated: int = 64, steps: int = 12) -> list[Cost]:
    """One row for each of S, P and O: one step on one thread, requests of the founding benchmark's length."""
    samples = time_pieces(engine, Workload(requests=batch, generated=generated), steps)
    return [
        Cost(
            group=f"Python scheduling, {engine.name}",
            variant=f"{name}, batch {batch}",
            samples_ns=tuple(sum(parts) for parts in zip(*(samples[p] for p in pieces), strict=True)),
            facts={"batch": float(batch)},
        )
        for name, pieces in SEGMENTS.items()
    ]
