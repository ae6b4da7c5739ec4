"""The metrics against a case computed by hand, and the keys and layout that scripts read."""

from __future__ import annotations

import numpy as np
import pytest

from microbench.serving.metrics import block, metrics
from microbench.serving.work import Timeline
from microbench.serving.workload import Requested

BENCHMARK_KEYS = {
    "duration", "completed", "total_input_tokens", "total_output_tokens", "total_output_tokens_retokenized",
    "request_throughput", "input_throughput", "output_throughput", "mean_e2e_latency_ms", "median_e2e_latency_ms",
    "mean_ttft_ms", "median_ttft_ms", "std_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "median_tpot_ms", "std_tpot_ms",
    "p99_tpot_ms", "mean_itl_ms", "median_itl_ms", "std_itl_ms", "p99_itl_ms",
}  # fmt: skip


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def tiny() -> tuple[Requested, Timeline]:
    """Two requests: A sent at 0, tokens at 10, 30, 40 ms; B sent at 5 ms, its only token at 25 ms."""
    ms = 1_000_000
    timeline = Timeline.of(2)
    timeline.sent_ns[:] = [0, 5 * ms]
    timeline.token(ints(0), 10 * ms)
    timeline.token(ints(1), 25 * ms)
    timeline.token(ints(0), 30 * ms)
    timeline.token(ints(0), 40 * ms)
    return Requested(ints(100, 7), ints(3, 1), ints(0, 5 * ms)), timeline


def test_a_case_computed_by_hand() -> None:
    got = metrics(*tiny())
    assert set(got) >= BENCHMARK_KEYS
    expected = {
        "duration": 0.040, "completed": 2, "total_input_tokens": 107, "total_output_tokens": 4,
        "request_throughput": 50, "input_throughput": 2675, "output_throughput": 100,
        "mean_e2e_latency_ms": 30, "median_e2e_latency_ms": 30, "std_e2e_latency_ms": 10,
        "mean_ttft_ms": 15, "median_ttft_ms": 15, "p99_ttft_ms": 19.9,
        "mean_tpot_ms": 15, "p99_tpot_ms": 15, "std_tpot_ms": 0,  # of A alone: (40 - 10) / 2
        "mean_itl_ms": 15, "median_itl_ms": 15, "p99_itl_ms": 19.9,
    }  # fmt: skip
    assert {key: got[key] for key in expected} == pytest.approx(expected)


def test_a_request_for_no_token_counts_none_though_one_is_made() -> None:
    timeline = Timeline.of(1)
    timeline.sent_ns[:] = 0
    timeline.token(ints(0), 10)
    got = metrics(Requested(ints(4), ints(0), ints(0)), timeline)
    assert (got["total_output_tokens"], got["mean_tpot_ms"], got["mean_itl_ms"]) == (0, 0.0, 0.0)
    assert got["mean_ttft_ms"] == pytest.approx(1e-5)


def test_the_block_has_the_benchmarks_rows() -> None:
    row = metrics(*tiny()) | {"backend": "sglang", "request_rate": float("inf"), "max_concurrency": None}
    lines = [line.rstrip() for line in block(row).splitlines()]
    assert lines[0] == "============ Serving Benchmark Result ============"
    assert lines[-1] == "=" * 50
    values = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines) if value}
    assert values["Traffic request rate"] == "inf"
    assert values["Max request concurrency"] == "not set"
    assert values["Benchmark duration (s)"] == "0.04"
    assert values["P99 ITL (ms)"] == "19.90"
    assert len(values) == 23
