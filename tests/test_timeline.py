"""Timelines: what threads and streams did is in order, and written as a trace that a viewer takes."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from microbench.advice import decode_case
from microbench.cli import main
from microbench.engines import engine
from microbench.perfetto import chrome_trace
from microbench.schedulers import SCHEDULERS
from microbench.target import parse_target
from microbench.timeline import Timeline, record
from synthetic_models import architecture, gpu


def timeline(scheduler: str, *, target: str = "virtual+sim:a100-80g", batch: int = 200) -> Timeline:
    case = decode_case(
        architecture("qwen2.5-0.5b"),
        gpu("a100-80g"),
        engine("sglang-0.4.0.post1"),
        batch=batch,
        context=256,
        target=parse_target(target),
    )
    return record(case, scheduler, steps=4)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("target", ["virtual+sim:a100-80g", "real+sim:a100-80g"])
def test_what_one_track_does_is_one_thing_at_a_time(scheduler: str, target: str) -> None:
    found = timeline(scheduler, target=target, batch=8)
    assert len(found.steps) >= 2
    by_track = defaultdict(list)
    for s in found.slices:
        assert s.start_ns <= s.end_ns
        if s.kind in ("host", "gpu"):
            by_track[s.track, s.kind].append(s)
    assert {kind for _, kind in by_track} == {"host", "gpu"}
    for slices in by_track.values():
        for one, other in pairwise(slices):
            assert one.end_ns <= other.start_ns
    for arrow in found.arrows:
        assert arrow.source_ns <= arrow.sink_ns
        assert arrow.source != arrow.sink


def test_a_threaded_design_hands_over_and_waits_for_the_gil() -> None:
    found = timeline("overlap_thread:attribute")
    assert {(a.source, a.sink) for a in found.arrows} >= {("scheduler", "forward"), ("forward", "scheduler")}
    assert any(s.kind == "gil" and s.track == "forward" for s in found.slices)
    assert not any(s.kind == "gil" for s in timeline("overlap_loop").slices)


def test_watching_changes_no_time_of_the_virtual_host() -> None:
    from microbench.case import instances

    case = decode_case(
        architecture("qwen2.5-0.5b"), gpu("a100-80g"), engine("sglang-0.4.0.post1"),
        batch=64, context=256, target=parse_target("virtual+sim:a100-80g"),
    )  # fmt: skip
    with instances(case, ["overlap_thread:attribute"]) as (plain,):
        window = plain.block(4, warm=3)
    found = record(case, "overlap_thread:attribute", steps=4, warm=3)
    assert found.steps[-1] - found.steps[0] == pytest.approx(window.step_ns * window.steps)


def test_the_trace_follows_the_rules_of_the_format() -> None:
    document = chrome_trace([timeline("run_to_completion"), timeline("overlap_thread:attribute")])
    events = json.loads(json.dumps(document, allow_nan=False))["traceEvents"]
    named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    flows = defaultdict(list)
    for e in events:
        assert {"ph", "pid", "tid", "name"} <= set(e)
        if e["ph"] == "X":
            assert e["ts"] >= 0
            assert e["dur"] >= 0
            assert (e["pid"], e["tid"]) in named
        if e["ph"] in "sf":
            flows[e["id"]].append(e)
    assert flows
    for start, finish in flows.values():
        assert (start["ph"], finish["ph"]) == ("s", "f")
        assert start["ts"] <= finish["ts"]


def test_the_command_writes_trace_and_figure(tmp_path: Path) -> None:
    arguments = ["trace", "--model", "qwen2.5-3b", "--gpu", "h100", "--batch", "32", "--out", str(tmp_path), "--json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert {Path(p).name for p in json.loads(result.stdout)["files"]} == {"trace.json", "timeline.png", "timeline.svg"}
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_a_real_gpu_is_left_to_a_profiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from microbench import target

    monkeypatch.setattr(target, "visible_gpu", lambda: gpu("h200"))
    arguments = ["--model", "qwen2.5-3b", "--gpu", "h200", "--batch", "1", "--out", str(tmp_path / "x")]
    result = CliRunner().invoke(main, ["trace", "--target", "real+torch", *arguments])
    assert result.exit_code == 2
    assert "only a profiler sees" in result.stderr
    assert not (tmp_path / "x").exists()
