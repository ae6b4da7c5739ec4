"""What a replay sends: the benchmark's lengths and arrivals, and the client's concurrency."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from microbench.errors import UsageError
from microbench.serving.founding import TRAFFIC
from microbench.serving.workload import Client, Traffic


def test_the_benchmarks_default_seed_draws_the_totals_that_were_published() -> None:
    drawn = TRAFFIC.draw()
    assert (int(drawn.input_lens.sum()), int(drawn.output_lens.sum())) == (1_026_288, 506_842)


def test_all_come_at_once_unless_there_is_a_rate() -> None:
    traffic = Traffic(num_prompts=50, random_input=8, random_output=8)
    assert not traffic.draw().arrival_ns.any()


def test_arrivals_are_a_poisson_process_of_the_rate() -> None:
    arrivals = Traffic(num_prompts=20_000, random_input=1, random_output=1, request_rate=50).draw().arrival_ns
    gaps = np.diff(arrivals) / 1e9
    assert arrivals[0] == 0
    assert (gaps >= 0).all()
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.03)
    assert gaps.std() == pytest.approx(1 / 50, rel=0.05)  # of an exponential: its mean


@given(ratio=st.floats(0, 1), longest=st.integers(1, 5000), n=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_lengths_stay_in_the_range_and_repeat_with_the_seed(ratio: float, longest: int, n: int, seed: int) -> None:
    traffic = Traffic(
        num_prompts=n, random_input=longest, random_output=longest, random_range_ratio=ratio, seed=seed, request_rate=2
    )
    drawn, again = traffic.draw(), traffic.draw()
    low = int(longest * ratio)
    assert len(drawn.input_lens) == len(drawn.output_lens) == len(drawn.arrival_ns) == n
    assert drawn.input_lens.min() >= max(low, 1)
    assert drawn.output_lens.min() >= low
    assert max(drawn.input_lens.max(), drawn.output_lens.max()) <= longest
    assert drawn.produced.min() >= 1
    for one, other in zip(vars(drawn).values(), vars(again).values(), strict=True):
        assert (one == other).all()


@pytest.mark.parametrize(
    "bad",
    [
        {"num_prompts": 0},
        {"num_prompts": 10**9},
        {"random_input": 0},
        {"random_output": -1},
        {"random_range_ratio": 1.5},
        {"random_range_ratio": math.nan},
        {"request_rate": 0.0},
        {"request_rate": -1.0},
        {"request_rate": math.nan},
        {"max_concurrency": 0},
        {"seed": -1},
        {"seed": 2**32},
    ],
)
def test_what_cannot_be_drawn_is_refused_by_name(bad: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(bad)).replace("_", "-")):
        Traffic(**{"num_prompts": 5, "random_input": 8, "random_output": 8} | bad)  # type: ignore[arg-type]


def test_a_full_client_sends_when_a_request_ends_and_counts_from_then() -> None:
    client = Client([0, 0, 5, 100], max_concurrency=2)
    assert client.send_due(50) == [(0, 0), (1, 0)]
    assert client.next_ns() is None
    client.ended(1, 60)
    assert client.next_ns() == 60
    assert client.send_due(59) == []
    assert client.send_due(61) == [(2, 60)]
    client.ended(2, 70)
    assert client.send_due(99) == []
    assert client.send_due(100) == [(3, 100)]
    assert client.next_ns() is None


def test_a_client_without_limit_sends_everything_that_is_due() -> None:
    client = Client([0, 10, 20], max_concurrency=None)
    assert client.send_due(10) == [(0, 0), (1, 10)]
    assert client.next_ns() == 20
