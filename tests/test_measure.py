"""Interleaved sampling, explanation and thresholds on the virtual host, where the answers are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from microbench import measure
from microbench.case import Case, what_if_spec
from microbench.devices.spec import LaunchCost
from microbench.engines import Workload, engine
from microbench.engines.prices import shipped_profile
from microbench.explain import deciding_cost, without_each_cost
from microbench.measure import Budget, sample
from microbench.stats import Verdict
from microbench.target import parse_target
from microbench.thresholds import thresholds
from microbench.trace import SEGMENTS, Trace, Window

MS = 1_000_000
LAUNCH = LaunchCost(gil_ns=15_000, free_ns=10_000)


def case(gpu_ms: float, *, launches: int = 288, requests: int = 100, host: str = "virtual", **changes: Any) -> Case:
    profile = engine("sglang-0.4.0.post1")
    spec = what_if_spec(profile, gpu_ns=round(gpu_ms * MS), launches=launches, launch=LAUNCH)
    return Case(
        target=parse_target(f"{host}+sim:a100-80g"),
        engine=profile,
        spec=replace(spec, **changes),
        workload=Workload(requests=requests),
    )


PAIR = ("run_to_completion", "overlap_thread:attribute")


def test_overlap_pays_where_the_gpu_is_slow_and_not_where_launching_is() -> None:
    assert sample(case(25), PAIR).verdict(*PAIR) is Verdict.PAYS
    assert sample(case(2.5), PAIR).verdict(*PAIR) in (Verdict.INCONCLUSIVE, Verdict.LOSES)


def test_computed_results_repeat_exactly_and_carry_the_models_error() -> None:
    one, two = sample(case(10), PAIR), sample(case(10), PAIR)
    assert one.step_ns(PAIR[1]) == two.step_ns(PAIR[1])
    ratio = one.ratio(*PAIR)
    assert ratio.low == pytest.approx(ratio.value * (1 - measure.MODEL_ERROR))
    assert ratio.high == pytest.approx(ratio.value * (1 + measure.MODEL_ERROR))


def test_gpu_busy_time_is_that_of_the_kernels() -> None:
    sampled = sample(case(10), PAIR)
    assert [sampled.busy_ns(name) for name in PAIR] == [10.2 * MS, 10.2 * MS]


class Scripted:
    """An instance whose blocks take given times and are interrupted where the script says so."""

    def __init__(self, name: str, times_ns: list[Any], order: list[str]) -> None:
        self.name, self.times, self.order = name, iter(times_ns), order

    def block(self, steps: int, *, warm: int) -> Window:
        if steps == 2:
            return window(1)
        self.order.append(self.name)
        at = next(self.times)
        if at is KeyboardInterrupt:
            raise KeyboardInterrupt
        return window(at)


def window(ns: float) -> Window:
    return Window(steps=1, step_ns=ns, host_ns=dict.fromkeys(SEGMENTS, 0.0), step_samples_ns=())


def interleave(a: list[Any], b: list[Any], **budget: Any) -> tuple[measure.Sampled, list[str]]:
    order: list[str] = []
    found = measure._interleave(
        [Scripted("a", a, order), Scripted("b", b, order)],  # type: ignore[list-item]
        Budget(seconds=3600, **budget),
        lambda share: None,
    )
    return found, order


def test_rounds_alternate_their_order() -> None:
    _, order = interleave([100, 200, 150], [90, 210, 160], max_rounds=3)
    assert order == ["a", "b", "b", "a", "a", "b"]


def test_sampling_stops_when_the_ratio_is_narrow() -> None:
    found, _ = interleave([100] * 40, [90] * 40)
    assert len(found.blocks["a"]) == 9
    assert found.verdict("a", "b") is Verdict.PAYS


def test_too_few_pairs_are_inconclusive() -> None:
    found, _ = interleave([100] * 3, [90] * 3, max_rounds=3)
    assert found.verdict("a", "b") is Verdict.INCONCLUSIVE


def test_ctrl_c_keeps_the_full_rounds() -> None:
    found, _ = interleave([100, 100, 100], [90, 90, KeyboardInterrupt])
    assert [len(blocks) for blocks in found.blocks.values()] == [2, 2]


def test_ctrl_c_in_the_first_round_is_raised() -> None:
    with pytest.raises(KeyboardInterrupt):
        interleave([100], [KeyboardInterrupt])


def test_a_window_leaves_out_warm_up_and_the_drained_last_step() -> None:
    clock = iter([0, 100, 200, 210, 300, 320])
    trace = Trace(lambda: next(clock))
    lap = trace.track("scheduler")
    for end in (100, 200, 300, 400, 405):
        trace.step_done(end)
    trace.laps.clear()
    lap("launch", 0)  # ends at 0: before the window
    lap("launch", 60)  # ends at 100: the warm-up's
    lap("process", 150)  # 150 to 200
    lap("wait", 205)  # 205 to 210
    found = trace.window(1)
    assert (found.steps, found.step_ns) == (3, 100)
    assert found.host_ns == {"schedule": 0, "launch": 0, "wait": 5 / 3, "process": 50 / 3, "stream": 0}
    assert found.step_samples_ns == (100, 100, 100)


def test_too_few_steps_for_a_window_are_refused() -> None:
    trace = Trace(lambda: 0, steps=[1, 2, 3])
    with pytest.raises(ValueError, match="3 steps are too few to measure after 2 of warm-up"):
        trace.window(2)


def test_launches_decide_where_launching_is_the_bottleneck() -> None:
    gains = without_each_cost(case(5), *PAIR, shipped_profile())
    assert deciding_cost(gains) == "kernel launches"
    assert gains["kernel launches"] > gains["nothing"] + 0.1


def test_a_cost_that_changes_nothing_does_not_decide() -> None:
    assert deciding_cost({"nothing": 0.1, "kernel launches": 0.105, "GIL contention": 0.1}) == "none"
    assert deciding_cost({"nothing": 0.1, "kernel launches": 0.3, "GIL contention": -0.2}) == "GIL contention"


def row(model: str, parameters: int, ratio: float, verdict: str, batch: int = 200) -> dict[str, Any]:
    return {
        "part": "grid",
        "target": "virtual+sim:a100-80g",
        "engine": "sglang-0.4.0.post1",
        "launch_mode": "eager",
        "launch_us": 25.0,
        "batch": batch,
        "scheduler": PAIR[1],
        "model": model,
        "parameters": parameters,
        "modelled_gpu_step_ms": parameters / 1e8,
        "ratio": ratio,
        "ratio_low": ratio - 0.01,
        "ratio_high": ratio + 0.01,
        "verdict": verdict,
    }


def test_thresholds_bracket_the_model_size_and_name_the_flag() -> None:
    rows = [
        row("large", 3_000_000_000, 0.8, "pays"),
        row("small", 500_000_000, 1.1, "loses"),
        row("middle", 1_500_000_000, 0.9, "pays"),
    ]
    (entry,) = thresholds(rows, PAIR[1])["entries"]
    assert (entry["state"], entry["batch"]) == ("bracket", 200)
    assert entry["model_parameters"] == {"above": 500_000_000.0, "at_most": 1_500_000_000.0}
    assert entry["modelled_gpu_step_ms"] == {"above": 5.0, "at_most": 15.0}
    flags = {r["model"]: r["flag"] for r in entry["rungs"]}
    assert flags == {"small": "--disable-overlap-schedule", "middle": None, "large": None}
    assert entry["rungs"][0]["gain"] == -0.1


def test_thresholds_say_when_there_is_no_crossover() -> None:
    always = [row("a", 1, 0.9, "pays"), row("b", 2, 0.8, "pays")]
    never = [row("a", 1, 1.1, "loses", batch=500), row("b", 2, 1.2, "loses", batch=500)]
    states = [e["state"] for e in thresholds(always + never, PAIR[1])["entries"]]
    assert states == ["below_ladder", "not_reached"]
