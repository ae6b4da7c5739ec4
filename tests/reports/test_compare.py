"""Ratios of two runs, and what speaks against them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microbench.errors import UsageError
from microbench.reports import Reading, Report, compare, read_reports, select_run
from microbench.reports.metrics import better, of_key, of_label, unit

FOLDER = Path(__file__).parent / "blocks"


def report(metrics: dict[str, float], **more: object) -> Report:
    fields = {"source": "f", "run": 1, "line": 1, "tool": "t", "layout": "block", **more}
    return Report(metrics=metrics, units={name: unit(name) for name in metrics}, **fields)  # type: ignore[arg-type]


def test_the_founding_pair() -> None:
    on, off = (select_run(read_reports(FOLDER / f"sglang-2558-overlap-{w}.txt"), None) for w in ("on", "off"))
    found = {c.metric: c for c in compare(on, off).changes}
    assert len(found) == 20
    assert round(found["duration"].ratio or 0, 2) == 1.16 and found["duration"].verdict == "worse"
    assert round(found["median_tpot_ms"].ratio or 0, 2) == 1.12
    assert round(found["median_itl_ms"].ratio or 0, 2) == 1.15
    assert found["request_throughput"].verdict == "worse" and (found["request_throughput"].ratio or 9) < 1
    assert found["total_output_tokens"].verdict == "" and found["completed"].verdict == "same"
    assert compare(on, off).remarks == ()


def test_what_only_one_has_and_what_differs_is_named() -> None:
    on = report(
        {"duration": 2.0, "p99_itl_ms": 1.0, "completed": 9}, settings={"max_concurrency": "64"}, truncated=True
    )
    off = report({"duration": 1.0, "mean_ttft_ms": 0.0, "completed": 10}, settings={"max_concurrency": "16"}, tool="u")
    found = compare(on, off)
    assert (found.only_on, found.only_off) == (("p99_itl_ms",), ("mean_ttft_ms",))
    assert found.remarks == (
        "on is cut off",
        "measured with two tools: on t, off u",
        "max_concurrency differs: on 64, off 16",
        "not the same work: completed on 9, off 10",
    )


def test_nothing_in_common_and_zero() -> None:
    with pytest.raises(UsageError, match="f and f have no metric in common"):
        compare(report({"duration": 1.0}), report({"completed": 1.0}))
    (change,) = compare(report({"mean_ttft_ms": 1.0}), report({"mean_ttft_ms": 0.0})).changes
    assert change.ratio is None and change.verdict == "worse"


def test_which_run() -> None:
    first, second = report({"duration": 1.0}), report({"duration": 2.0})
    assert select_run(Reading("f", (first,)), None) is first
    assert select_run(Reading("f", (first, first)), None) is first
    assert select_run(Reading("f", (first, second)), 2) is second
    for reading, run, message in (
        (Reading("f", (first, second)), None, "f: 2 runs in one file; say which, such as --run 1, or --run 1,2"),
        (Reading("f", (first, second)), 3, "f: there is no run 3; the last is 2"),
        (Reading("f", (first,)), 0, "f: there is no run 0; the last is 1"),
        (Reading("f", (), ("the file is empty",)), None, "f: the file is empty"),
    ):
        with pytest.raises(UsageError) as caught:
            select_run(reading, run)
        assert str(caught.value) == message


@given(on=st.floats(1e-6, 1e9), off=st.floats(1e-6, 1e9), name=st.sampled_from(["duration", "output_throughput"]))
def test_swapping_the_sides_turns_the_verdict(on: float, off: float, name: str) -> None:
    (there,) = compare(report({name: on}), report({name: off})).changes
    (back,) = compare(report({name: off}), report({name: on})).changes
    assert there.ratio and back.ratio and there.ratio * back.ratio == pytest.approx(1)
    turned = {"better": "worse", "worse": "better", "same": "same"}
    assert back.verdict == turned[there.verdict]


@pytest.mark.parametrize(
    ("label", "key", "way"),
    [
        ("Mean TTFT (ms):", "mean_ttft_ms", "lower"),
        ("P99.9 ITL (ms)", "p99.9_itl_ms", "lower"),
        ("Median E2E Latency (ms)", "median_e2e_latency_ms", "lower"),
        ("P50 E2EL (ms)", "median_e2el_ms", "lower"),
        ("Benchmark duration (s)", "duration", "lower"),
        ("Output token throughput (tok/s)", "output_throughput", "higher"),
        ("Total Token throughput (tok/s)", "total_token_throughput", "higher"),
        ("Successful requests", "completed", "higher"),
        ("Failed requests", "failed", "lower"),
        ("Total generated tokens", "total_output_tokens", None),
        ("Concurrency", "concurrency", None),
        ("Accept length", "accept_length", "higher"),
    ],
)
def test_labels_and_keys_meet_in_one_name(label: str, key: str, way: str | None) -> None:
    found = of_label(label)
    assert found is not None and found[0] == of_key(key) and better(found[0]) == way


@pytest.mark.parametrize(
    "label", ["", ":", "TTFT (ms)", "Mean TTFT", "Mean TTFT (us)", "My Mean TTFT (ms)", "P TTFT (ms)"]
)
def test_labels_that_nobody_prints_are_unknown(label: str) -> None:
    assert of_label(label) is None
