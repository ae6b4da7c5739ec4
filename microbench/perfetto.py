"""Timelines as a Chrome trace, the JSON that Perfetto opens (Trace Event Format, Google, 2016)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from microbench.timeline import Timeline

LANE = {"host": 0, "wait": 1, "gil": 2, "gpu": 0}
"""Waits stand on tracks of their own below the task's, because a slice may only nest in another one."""
LANE_NAME = ("", ": waits", ": GIL waits")


def chrome_trace(timelines: Sequence[Timeline]) -> dict[str, Any]:
    """One process a scheduler; its threads are tasks, their waits and GPU streams. Times in us from the first slice."""
    events: list[dict[str, Any]] = []
    for pid, timeline in enumerate(timelines, 1):
        events += _process(pid, timeline)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"targets": "; ".join(f"{t.scheduler}: {t.target}, {t.says}" for t in timelines)},
    }


def _process(pid: int, timeline: Timeline) -> Iterable[dict[str, Any]]:
    origin = min((s.start_ns for s in timeline.slices), default=0)
    threads: dict[tuple[str, int], int] = {}

    def us(ns: int) -> float:
        return (ns - origin) / 1e3

    def tid(track: str, lane: int) -> int:
        return threads.setdefault((track, lane), len(threads) + 1)

    yield {
        "ph": "M", "name": "process_name", "pid": pid, "tid": 0,
        "args": {"name": f"{timeline.scheduler} ({timeline.target})"},
    }  # fmt: skip
    for s in timeline.slices:
        yield {
            "ph": "X", "name": s.name, "cat": s.kind, "pid": pid, "tid": tid(s.track, LANE[s.kind]),
            "ts": us(s.start_ns), "dur": (s.end_ns - s.start_ns) / 1e3,
        }  # fmt: skip
    for number, arrow in enumerate(timeline.arrows):
        common = {"name": arrow.name, "cat": "hand-off", "id": pid * 1_000_000 + number, "pid": pid}
        yield common | {"ph": "s", "tid": tid(arrow.source, 0), "ts": us(arrow.source_ns)}
        yield common | {"ph": "f", "bp": "e", "tid": tid(arrow.sink, 0), "ts": us(arrow.sink_ns)}
    for number, at in enumerate(timeline.steps):
        yield {"ph": "I", "name": f"step {number} done", "s": "p", "pid": pid, "tid": 0, "ts": us(at)}
    order = sorted(threads, key=lambda key: (key[0].startswith("GPU"), key))
    for place, (track, lane) in enumerate(order):
        number = threads[track, lane]
        name = {"name": track + LANE_NAME[lane]}
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": number, "args": name}
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": number, "args": {"sort_index": place}}
