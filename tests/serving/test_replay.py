"""Whole replays on the virtual host: conserved, repeatable, one step late where the scheduler is."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microbench.engines import engine
from microbench.errors import UsageError
from microbench.schedulers import SCHEDULERS
from microbench.serving import Replay, Replayed, Traffic, run_replay
from microbench.serving.founding import _fit_speed
from microbench.serving.kv import kv_tokens
from microbench.target import parse_target
from synthetic_models import architecture, gpu

SMALL = Traffic(num_prompts=12, random_input=300, random_output=20)


def replay(traffic: Traffic = SMALL, *, model: str = "qwen2.5-0.5b", target: str = "virtual+sim:a100-80g") -> Replay:
    return Replay(
        target=parse_target(target),
        engine=engine("sglang-0.4.0.post1"),
        architecture=architecture(model),
        traffic=traffic,
    )


def tokens(run: Replayed) -> int:
    """Tokens that were streamed: a first one each, and one a gap."""
    return int((run.timeline.first_ns >= 0).sum()) + sum(len(g) for g in run.timeline.gaps_ns)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_token_is_streamed_once_under_every_scheduler(name: str) -> None:
    run = run_replay(replay(), name)
    assert tokens(run) == int(SMALL.draw().produced.sum())
    assert run.counts["most_kv_tokens"] <= run.counts["kv_tokens"]
    assert (run.timeline.sent_ns <= run.timeline.first_ns).all()
    assert (run.timeline.first_ns <= run.timeline.last_ns).all()
    assert all((gaps > 0).all() for gaps in run.timeline.gaps_ns)


@pytest.mark.parametrize("name", ["run_to_completion", "overlap_thread:attribute", "overlap_loop"])
def test_the_same_seed_gives_the_same_run_to_the_nanosecond(name: str) -> None:
    traffic = replace(SMALL, request_rate=40.0, max_concurrency=5)
    one, other = run_replay(replay(traffic), name), run_replay(replay(traffic), name)
    assert one.metrics == other.metrics
    assert (one.timeline.last_ns == other.timeline.last_ns).all()
    assert run_replay(replay(replace(traffic, seed=2)), name).metrics != one.metrics


def test_dead_rows_come_from_the_calling_order() -> None:
    assert run_replay(replay(), "run_to_completion").counts["dead_rows"] == 0
    for name in ("overlap_thread:attribute", "overlap_loop"):
        assert run_replay(replay(), name).counts["dead_rows"] == SMALL.num_prompts


def test_overlap_settles_a_first_token_one_step_late() -> None:
    one = Traffic(num_prompts=1, random_input=64, random_output=50, random_range_ratio=1.0)
    off, on = run_replay(replay(one), "run_to_completion"), run_replay(replay(one), "overlap_loop")
    assert on.metrics["mean_ttft_ms"] > off.metrics["mean_ttft_ms"]
    assert on.metrics["mean_itl_ms"] < off.metrics["mean_itl_ms"]


def test_concurrency_bounds_the_batch_and_latency_counts_from_sending() -> None:
    run = run_replay(replay(replace(SMALL, max_concurrency=2)), "run_to_completion")
    line = run.timeline
    for at in line.sent_ns:
        assert ((line.sent_ns <= at) & (line.last_ns > at)).sum() <= 2
    assert run.metrics["mean_ttft_ms"] < run_replay(replay(), "run_to_completion").metrics["mean_ttft_ms"]


def test_requests_are_not_served_before_they_come() -> None:
    traffic = replace(SMALL, request_rate=3.0)
    run = run_replay(replay(traffic), "overlap_loop")
    assert run.metrics["duration"] > traffic.draw().arrival_ns[-1] / 1e9
    assert (run.timeline.first_ns > traffic.draw().arrival_ns).all()


def test_decode_batches_run_as_graphs_up_to_the_engines_limit_and_eagerly_past_it() -> None:
    few = run_replay(replay(), "run_to_completion").counts
    assert few["eager_decode_steps"] == 0
    assert few["graph_decode_steps"] > 0
    many = Traffic(num_prompts=170, random_input=8, random_output=4, random_range_ratio=1.0)
    counts = run_replay(replay(many), "run_to_completion").counts
    assert (counts["eager_decode_steps"], counts["graph_decode_steps"]) == (3, 0)


def test_a_slower_host_takes_longer_and_the_gpu_the_same() -> None:
    base = replay()
    slowed = run_replay(replace(base, host_speed=0.5), "run_to_completion")
    normal = run_replay(base, "run_to_completion")
    assert 1.3 < slowed.metrics["duration"] / normal.metrics["duration"] < 2.1
    assert slowed.busy_ns == normal.busy_ns


def test_a_real_host_is_slowed_too_and_cannot_be_made_faster() -> None:
    real = replay(replace(SMALL, num_prompts=6), target="real+sim:a100-80g")
    slowed, normal = (run_replay(replace(real, host_speed=s), "run_to_completion") for s in (0.1, 1.0))
    assert slowed.metrics["duration"] > 2 * normal.metrics["duration"]
    with pytest.raises(UsageError, match="not made 2 times as fast"):
        run_replay(replace(real, host_speed=2.0), "run_to_completion")


def test_a_speed_is_fitted_to_a_duration() -> None:
    assert _fit_speed(lambda speed: 10 + 30 / speed, 70.0) == pytest.approx(0.5, rel=1e-3)


def test_a_request_that_can_never_fit_is_refused_with_what_fits() -> None:
    fits = kv_tokens(architecture("llama-3.1-8b"), gpu("a10g"))
    traffic = Traffic(num_prompts=2, random_input=fits, random_output=1, random_range_ratio=1.0)
    with pytest.raises(UsageError, match=rf"longest request needs {fits + 2} tokens of KV cache, but {fits} fit"):
        run_replay(replay(traffic, model="llama-3.1-8b", target="virtual+sim:a10g"), "overlap_loop")
    ok = run_replay(
        replay(replace(traffic, random_input=fits - 2), model="llama-3.1-8b", target="virtual+sim:a10g"), "overlap_loop"
    )
    assert tokens(ok) == 2
    assert ok.counts["most_kv_tokens"] <= fits


@pytest.mark.parametrize("name", ["sglang-0.4.0.post1", "sglang-0.5.4", "minimal"])
def test_on_a_real_host_every_scheduler_gives_the_same_token_ids(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from microbench.serving import requests

    made: list[requests.RealServing] = []
    init = requests.RealServing.__init__

    def remember(self: requests.RealServing, *args: object, **options: object) -> None:
        init(self, *args, **options)  # type: ignore[arg-type]
        made.append(self)

    monkeypatch.setattr(requests.RealServing, "__init__", remember)
    traffic = Traffic(num_prompts=6, random_input=60, random_output=12, max_concurrency=4)
    point = replace(replay(traffic, target="real+sim:a100-80g"), engine=engine(name))
    for scheduler in ("run_to_completion", "overlap_thread:attribute", "overlap_loop"):
        run = run_replay(point, scheduler)
        assert tokens(run) == int(traffic.draw().produced.sum())
    ids = [[list(r.output_ids) for r in work.requests] for work in made]
    assert ids[0] == ids[1] == ids[2]
    assert [len(i) for i in ids[0]] == traffic.draw().produced.tolist()


def test_a_target_without_a_modelled_gpu_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a modelled GPU"):
        run_replay(replay(target="real+torch"), "overlap_loop")


@settings(max_examples=25, deadline=None)
@given(
    prompts=st.integers(1, 8),
    longest=st.integers(1, 60),
    output=st.integers(1, 12),
    rate=st.sampled_from([math.inf, 5.0, 1000.0]),
    limit=st.sampled_from([None, 1, 3]),
    seed=st.integers(0, 100),
)
def test_schedulers_produce_the_same_tokens(
    prompts: int, longest: int, output: int, rate: float, limit: int | None, seed: int
) -> None:
    traffic = Traffic(
        num_prompts=prompts,
        random_input=longest,
        random_output=output,
        request_rate=rate,
        max_concurrency=limit,
        seed=seed,
    )
    runs = [run_replay(replay(traffic), name) for name in ("run_to_completion", "overlap_thread", "overlap_loop")]
    assert {tokens(run) for run in runs} == {int(traffic.draw().produced.sum())}
    for run in runs:
        assert np.isfinite([v for v in run.metrics.values()]).all()
