"""Measures what an engine's host work costs on this machine, and fits the prices of the virtual host."""

from __future__ import annotations

import platform
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from statistics import median
from typing import Any

import numpy as np

from microbench.engines import EngineProfile, Workload, real_work
from microbench.engines.prices import PIECES, HostProfile, Price
from microbench.hosts.real import RealHost

POINTS = ((500, 4096, 16), (500, 1024, 16), (500, 4096, 512), (160, 4096, 64), (32, 2048, 16), (4, 2048, 64))
"""(requests, longest prompt, tokens already generated) of the workloads the prices are fitted to."""

WARM = 2
LAUNCH_NS = 4_000_000
"""Launching between schedule and result, so that prices are those of a step and not of a loop that fits a cache."""

RELEASES = {"schedule": 3, "advance": 3, "resolve": 4, "answer": 5, "publish": 1, "futures": 1, "serialise": 1}
"""How often a piece gives the GIL up: dispatched torch calls, and the socket's send."""


def measure_prices(
    engine: EngineProfile, *, points: Sequence[tuple[int, int, int]] = POINTS, rounds: int = 8
) -> dict[str, Price]:
    """Fitted prices of `engine`'s pieces, from `rounds` steps at each point on one thread."""
    host = RealHost()
    rows: list[tuple[int, int, int]] = []
    measured: dict[str, list[float]] = {piece: [] for piece in PIECES}
    for requests, max_prompt, generated in points:
        workload = Workload(requests=requests, max_prompt=max_prompt, generated=generated)
        samples = time_pieces(engine, workload, rounds, before_result=lambda: _launch(host, LAUNCH_NS))
        rows.append((requests, sum(workload.prompt_lengths()), requests * (generated + rounds // 2)))
        for piece in PIECES:
            measured[piece].append(median(samples[piece]) if samples[piece] else 0.0)
    return {piece: _fit(rows, measured[piece], RELEASES.get(piece, 0)) for piece in PIECES}


def time_pieces(
    engine: EngineProfile, workload: Workload, rounds: int, *, before_result: Callable[[], None] = lambda: None
) -> dict[str, list[int]]:
    """ns of each piece of `rounds` steps on one thread; `before_result` runs where a scheduler launches or waits.

    Every step is both scheduled and advanced to, and the second one's batch is dropped: it has the same size.
    """
    samples: dict[str, list[int]] = defaultdict(list)
    clock = time.monotonic_ns
    work = real_work(engine, workload, overlap=True)
    sends: list[int] = []
    send = work.send

    def timed_send(message: Any) -> None:
        start = clock()
        send(message)
        sends.append(clock() - start)

    work.send = timed_send  # type: ignore[method-assign]

    def timed(piece: str, call: Callable[..., Any], *args: Any) -> Any:
        start = clock()
        result = call(*args)
        samples[piece].append(clock() - start)
        return result

    try:
        for step in range(rounds + WARM):
            if step == WARM:
                samples.clear()
            batch = timed("schedule", work.schedule)
            work.outputs(batch, timed("futures", work.futures, batch))
            snapshot = work.snapshot(batch)
            timed("resolve", work.resolve, batch)
            ids = timed("answer", batch.next_ids)
            timed("publish", work.publish, batch, ids)
            before_result()
            tokens = timed("read", ids.tolist)
            timed("process", work.process, snapshot, tokens)
            sends.clear()
            timed("build", work.stream, snapshot)
            samples["serialise"].append(sum(sends))
            samples["build"][-1] -= sum(sends)
        for _ in range(rounds):  # the next step of the same requests, as designs do that schedule once for several
            before_result()
            following = timed("advance", work.advance)
            work.outputs(following, following.next_ids())
    finally:
        work.close()
    return samples


def dispatch_factor(engine: EngineProfile, *, rounds: int = 8) -> float:
    """What the free part of launches takes in a step of 500 requests over what it was asked to; at least 1."""
    host, clock = RealHost(), time.thread_time_ns
    taken: list[float] = []
    gil_ns, free_ns, launches = 15_000, 10_000, 200

    def launch_all() -> None:
        start = clock()
        for _ in host.repeat(gil_ns, free_ns, launches):
            pass
        taken.append(((clock() - start) / launches - gil_ns) / free_ns)

    time_pieces(engine, Workload(requests=500), rounds, before_result=launch_all)
    return max(1.0, round(median(taken[WARM:]), 3))


def _launch(host: RealHost, total_ns: int) -> None:
    """Keep the core busy as launching does: Python with the GIL and small dispatched ops without it."""
    for _ in host.repeat(15_000, 10_000, total_ns // 25_000):
        pass


def _fit(rows: Sequence[tuple[int, int, int]], ns: Sequence[float], releases: int) -> Price:
    """Least squares of relative errors with coefficients >= 0, dropping the most negative one until none is."""
    free_ns = 2_000 if releases else 0
    y = np.maximum(np.asarray(ns) - releases * free_ns, 1.0)
    x = np.column_stack([np.ones(len(rows)), np.asarray(rows, dtype=float)])
    kept = [0, 1, 2, 3]
    while True:
        solution, *_ = np.linalg.lstsq(x[:, kept] / y[:, None], np.ones(len(y)), rcond=None)
        if (solution >= 0).all() or len(kept) == 1:
            break
        kept.pop(int(np.argmin(solution)))
    full = np.zeros(4)
    full[kept] = np.maximum(solution, 0)
    return Price(
        fixed=round(float(full[0]), 3),
        per_request=round(float(full[1]), 3),
        per_prompt_token=round(float(full[2]), 5),
        per_output_token=round(float(full[3]), 5),
        releases=releases,
        free_ns=free_ns,
    )


def measure_profile(engines: Sequence[EngineProfile], *, rounds: int = 8) -> HostProfile:
    """This machine's profile for the given engines."""
    from microbench.costs.floor import overshoot_ns, queue_ns
    from microbench.costs.handoff import signal_ns, wake_ns
    from microbench.environment import environment

    facts = environment()
    return HostProfile(
        machine=f"{facts.get('cpu_model')}, {facts.get('logical_cores')} cores, Python {platform.python_version()}",
        measured=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        wake_ns=wake_ns(after_ns=2_000_000, hand_overs=200),
        nap_wake_ns=wake_ns(after_ns=50_000),
        signal_ns=signal_ns(),
        overshoot_ns=overshoot_ns(),
        queue_ns=queue_ns(),
        dispatch_factor=dispatch_factor(engines[0]),
        prices={engine.name: measure_prices(engine, rounds=rounds) for engine in engines},
    )
