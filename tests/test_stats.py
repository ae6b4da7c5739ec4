"""Statistics: exact values, refusals, and properties against brute-force definitions."""

from __future__ import annotations

import itertools
import json
import math
import random
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from microbench.stats import (
    MIN_PAIRS,
    Crossover,
    CrossoverState,
    Interval,
    Ratio,
    Verdict,
    bootstrap_median,
    crossover,
    gain,
    median,
    narrow_enough,
    order_interval,
    paired_ratio,
    percentile,
    samples_needed,
    summary,
    verdict,
)

ROOT = Path(__file__).resolve().parent.parent
PAYS, LOSES, EQUAL, INCONCLUSIVE = Verdict.PAYS, Verdict.LOSES, Verdict.EQUAL, Verdict.INCONCLUSIVE

step_times_ns = st.lists(st.integers(1, 10**9), min_size=1, max_size=60)
pairs_ns = st.lists(st.tuples(st.integers(1, 10**9), st.integers(1, 10**9)), min_size=1, max_size=60)
positive = st.floats(1e-3, 1e3)
quick = settings(deadline=None, max_examples=60)


def split(pairs: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [base for base, _ in pairs], [other for _, other in pairs]


def test_import_stays_light() -> None:
    code = "import sys, microbench.stats; print([m for m in ('numpy', 'pandas', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Median and percentiles


@given(step_times_ns)
@quick
def test_median_is_that_of_the_standard_library(samples: list[int]) -> None:
    assert median(samples) == statistics.median(samples)


def test_numpy_arrays_and_generators_are_samples_too() -> None:
    assert median(np.array([3, 1, 2])) == 2.0
    assert median(x for x in (4, 1)) == 2.5


@pytest.mark.parametrize(
    ("p", "confidence", "needed"),
    [
        (0.5, 0.95, 1),
        (0.9, 0.95, 29),
        (0.1, 0.95, 29),
        (0.95, 0.95, 59),
        (0.99, 0.95, 299),
        (0.999, 0.95, 2995),
        (0.9, 0.99, 44),
        (0.95, 0.99, 90),
        (0.99, 0.99, 459),
        (0.999, 0.99, 4603),
    ],
)
def test_samples_needed(p: float, confidence: float, needed: int) -> None:
    assert samples_needed(p, confidence=confidence) == needed


@given(st.floats(0.01, 0.99), st.integers(1, 400))
@quick
def test_percentile_gate_is_the_chance_that_all_samples_miss_the_tail(p: float, n: int) -> None:
    assume(p != 0.5)
    tail = max(p, 1 - p)
    assume(not math.isclose(tail**n, 0.05, rel_tol=1e-9))
    allowed = percentile(range(n), p) is not None
    assert allowed == (tail**n <= 0.05)


def test_percentile_gate_opens_at_exactly_the_needed_count() -> None:
    assert percentile(range(298), 0.99) is None
    assert percentile(range(299), 0.99) == pytest.approx(0.99 * 298)
    assert percentile([7], 0.5) == 7


@given(
    st.lists(st.integers(-(10**9), 10**9), min_size=59, max_size=90), st.sampled_from([0.05, 0.1, 0.3, 0.5, 0.9, 0.95])
)
@quick
def test_percentile_interpolates_like_numpy(samples: list[int], p: float) -> None:
    assert percentile(samples, p) == pytest.approx(float(np.percentile(samples, 100 * p)))


@pytest.mark.parametrize("p", [0, 1, 50, 99, -0.1, math.nan])
def test_percentile_takes_a_fraction(p: float) -> None:
    with pytest.raises(ValueError) as caught:
        percentile([1, 2, 3], p)
    assert str(caught.value) == f"p must be a fraction between 0 and 1, got {p}"


@pytest.mark.parametrize(
    ("samples", "line"),
    [
        ([], "samples: no samples"),
        ([1, math.nan], "samples: sample 1 is nan"),
        ([math.inf], "samples: sample 0 is inf"),
        ([1, 2, -math.inf], "samples: sample 2 is -inf"),
    ],
)
def test_bad_samples_are_refused(samples: list[float], line: str) -> None:
    for function in (median, bootstrap_median, summary, lambda s: percentile(s, 0.9)):
        with pytest.raises(ValueError) as caught:
            function(samples)
        assert str(caught.value) == line


def test_summary() -> None:
    few = summary([5, 1, 3])
    assert (few.n, few.median, few.p10, few.p90, few.p99) == (3, 3, None, None, None)
    assert few.low <= 3 <= few.high
    some = summary(range(1, 101))
    assert some.p10 == pytest.approx(10.9)
    assert some.p90 == pytest.approx(90.1)
    assert some.p99 is None
    assert summary(range(300)).p99 == pytest.approx(0.99 * 299)


# Bootstrap


@given(step_times_ns, st.floats(0.01, 0.999), st.integers(1, 300), st.integers(0, 5))
@quick
def test_bootstrap_interval_holds_the_median(samples: list[int], confidence: float, resamples: int, seed: int) -> None:
    interval = bootstrap_median(samples, confidence=confidence, resamples=resamples, seed=seed)
    assert min(samples) <= interval.low <= statistics.median(samples) <= interval.high <= max(samples)


@given(step_times_ns, st.randoms())
@quick
def test_bootstrap_ignores_order_and_repeats_with_its_seed(samples: list[int], rng: random.Random) -> None:
    shuffled = list(samples)
    rng.shuffle(shuffled)
    assert bootstrap_median(samples) == bootstrap_median(shuffled) == bootstrap_median(samples)


@given(step_times_ns, st.floats(0.5, 0.9), st.floats(0.9, 0.999))
@quick
def test_bootstrap_widens_with_confidence(samples: list[int], less: float, more: float) -> None:
    narrow, wide = bootstrap_median(samples, confidence=less), bootstrap_median(samples, confidence=more)
    assert wide.low <= narrow.low and narrow.high <= wide.high


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_bootstrap_has_the_distribution_of_drawing_every_place(n: int) -> None:
    """Against all n ** n resamples: the quantiles at each confidence agree within the noise of 40000 draws."""
    samples = [2.0**k for k in range(n)]
    exact = sorted(statistics.median(draw) for draw in itertools.product(samples, repeat=n))
    for confidence in (0.5, 0.8, 0.95):
        found = bootstrap_median(samples, confidence=confidence, resamples=40_000)
        tail = (1 - confidence) / 2
        for end, share in ((found.low, tail), (found.high, 1 - tail)):
            below = sum(value < end for value in exact) / len(exact)
            upto = sum(value <= end for value in exact) / len(exact)
            assert below - 0.01 <= share <= upto + 0.01


def test_bootstrap_covers_the_true_median_about_as_often_as_it_says() -> None:
    rng = random.Random(1)
    runs = 300
    hits = 0
    for _ in range(runs):
        interval = bootstrap_median([rng.lognormvariate(0, 0.5) for _ in range(25)], resamples=400)
        hits += interval.low <= 1 <= interval.high
    assert 0.90 <= hits / runs <= 0.995


def test_bootstrap_refuses_bad_options() -> None:
    with pytest.raises(ValueError, match=r"^confidence must be a fraction between 0 and 1, got 95$"):
        bootstrap_median([1], confidence=95)
    with pytest.raises(ValueError, match=r"^resamples must be at least 1, got 0$"):
        bootstrap_median([1], resamples=0)


def test_interval_and_ratio_refuse_what_they_are_not() -> None:
    for low, high in ((2, 1), (math.nan, 1), (0, math.inf)):
        with pytest.raises(ValueError, match=f"^not an interval: low {low}, high {high}$"):
            Interval(low, high)
    for value, low, high, n in ((1, 1.1, 1.2, 9), (1, 0, 2, 9), (math.nan, 1, 1, 9), (1, 1, 1, 0), (1, 1, math.inf, 9)):
        with pytest.raises(ValueError, match=r"^not a ratio: "):
            Ratio(value, low, high, n)


# Paired ratio


@given(pairs_ns)
@quick
def test_ratio_is_the_median_over_pairs(pairs: list[tuple[int, int]]) -> None:
    base, other = split(pairs)
    ratio = paired_ratio(base, other)
    assert ratio.value == statistics.median(o / b for b, o in pairs)
    assert ratio.low <= ratio.value <= ratio.high
    assert ratio.n == len(pairs)


@given(pairs_ns, st.integers(-40, 40))
@quick
def test_ratio_does_not_change_with_the_unit(pairs: list[tuple[int, int]], power: int) -> None:
    base, other = split(pairs)
    scale = 2.0**power  # exact, so the ratios must be exactly the same
    assert paired_ratio([b * scale for b in base], [o * scale for o in other]) == paired_ratio(base, other)


@given(pairs_ns, st.integers(-20, 20))
@quick
def test_ratio_scales_with_the_other_side(pairs: list[tuple[int, int]], power: int) -> None:
    base, other = split(pairs)
    one, scaled = paired_ratio(base, other), paired_ratio(base, [o * 2.0**power for o in other])
    assert (scaled.value, scaled.low, scaled.high) == tuple(x * 2.0**power for x in (one.value, one.low, one.high))


def test_pairing_removes_drift_that_both_sides_share() -> None:
    rng = random.Random(3)
    drift = [10**6 * (1 + index / 50) for index in range(200)]
    base = [d * rng.uniform(0.99, 1.01) for d in drift]
    other = [0.9 * d * rng.uniform(0.99, 1.01) for d in drift]
    ratio = paired_ratio(base, other)
    assert ratio.value == pytest.approx(0.9, abs=0.005)
    assert verdict(ratio) is PAYS
    assert ratio.gain == pytest.approx(0.1, abs=0.005)
    assert ratio.gain_interval == Interval(1 - ratio.high, 1 - ratio.low)
    assert ratio.interval == Interval(ratio.low, ratio.high)


@pytest.mark.parametrize(
    ("base", "other", "line"),
    [
        ([1, 2], [1], "pairs need equal lengths: base has 2, other has 1"),
        ([], [], "base: no samples"),
        ([1, math.nan], [1, 1], "base: sample 1 is nan"),
        ([1, 1], [math.inf, 1], "other: sample 0 is inf"),
        ([0, 1], [1, 1], "base: sample 0 is 0, not positive"),
        ([1, 1], [1, -2.5], "other: sample 1 is -2.5, not positive"),
    ],
)
def test_bad_pairs_are_refused(base: list[float], other: list[float], line: str) -> None:
    with pytest.raises(ValueError) as caught:
        paired_ratio(base, other)
    assert str(caught.value) == line


def test_gain_is_positive_where_overlap_is_faster() -> None:
    assert gain(0.75) == 0.25
    assert gain(1.5) == -0.5


# Verdict


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.5, 0.9, PAYS),
        (0.97, 0.99, PAYS),
        (0.98, 1.02, EQUAL),
        (0.985, 0.995, EQUAL),
        (1.0, 1.0, EQUAL),
        (1.01, 1.03, LOSES),
        (1.1, 1.2, LOSES),
        (0.9, 1.0, INCONCLUSIVE),
        (1.0, 1.1, INCONCLUSIVE),
        (0.9, 1.1, INCONCLUSIVE),
        (0.99, 1.03, INCONCLUSIVE),
    ],
)
def test_verdict(low: float, high: float, expected: Verdict) -> None:
    assert verdict(Interval(low, high)) is expected
    assert verdict(Ratio((low + high) / 2, low, high, MIN_PAIRS)) is expected


@given(positive, positive)
@quick
def test_verdict_is_antisymmetric_outside_the_tolerance(one: float, two: float) -> None:
    """Which side is the base must not matter, except that 1 +- 2 % is not the inverse of itself."""
    low, high = sorted((one, two))
    assume(low != 1 != high)
    there, back = verdict(Interval(low, high)), verdict(Interval(1 / high, 1 / low))
    assume(EQUAL not in (there, back))
    assert back is {PAYS: LOSES, LOSES: PAYS, INCONCLUSIVE: INCONCLUSIVE}[there]


@given(positive, positive, positive)
@quick
def test_a_wider_interval_never_reverses_a_verdict(one: float, two: float, three: float) -> None:
    low, middle, high = sorted((one, two, three))
    narrow, wide = verdict(Interval(low, middle)), verdict(Interval(low, high))
    assert {narrow, wide} != {PAYS, LOSES}


def test_too_few_pairs_say_nothing() -> None:
    ratio = paired_ratio([100] * (MIN_PAIRS - 1), [50] * (MIN_PAIRS - 1))
    assert ratio.low == ratio.high == 0.5
    assert verdict(ratio) is INCONCLUSIVE
    assert verdict(ratio, min_pairs=1) is PAYS
    assert verdict(paired_ratio([100] * MIN_PAIRS, [50] * MIN_PAIRS)) is PAYS
    assert 2.0 ** (1 - MIN_PAIRS) <= 0.05 < 2.0 ** (2 - MIN_PAIRS)


def test_verdict_tolerance() -> None:
    assert verdict(Interval(0.96, 1.04), tolerance=0.05) is EQUAL
    assert verdict(Interval(1, 1), tolerance=0) is EQUAL
    for tolerance in (-0.1, 1, math.nan):
        with pytest.raises(ValueError, match=f"^tolerance must be at least 0 and below 1, got {tolerance}$"):
            verdict(Interval(1, 1), tolerance=tolerance)


def test_verdict_is_text() -> None:
    assert [str(v) for v in Verdict] == ["pays", "loses", "equal", "inconclusive"]
    assert json.dumps(Verdict.PAYS) == '"pays"'
    assert f"{Verdict.EQUAL}" == "equal"
    assert f"{CrossoverState.BELOW_LADDER}" == "below_ladder"


def test_narrow_enough() -> None:
    assert narrow_enough(Ratio(1, 0.99, 1.005, 10))
    assert not narrow_enough(Ratio(1, 0.98, 1.01, 10))
    assert narrow_enough(Ratio(1, 0.98, 1.01, 10), half_width=0.02)
    assert not narrow_enough(Ratio(1, 1, 1, MIN_PAIRS - 1))
    assert narrow_enough(Ratio(1, 1, 1, 1), min_pairs=1)
    with pytest.raises(ValueError, match=r"^half_width must be positive, got 0$"):
        narrow_enough(Ratio(1, 1, 1, 9), half_width=0)


# Crossover


def decided(sizes: list[float], pays: tuple[bool, ...]) -> Crossover:
    """The definition, word for word, where every rung is decided."""
    starts = [k for k in range(len(pays)) if all(pays[k:])]
    if not starts:
        return Crossover(CrossoverState.NOT_ESTABLISHED if any(pays) else CrossoverState.NOT_REACHED)
    if starts[0] == 0:
        return Crossover(CrossoverState.BELOW_LADDER, upper=sizes[0])
    return Crossover(CrossoverState.BRACKET, lower=sizes[starts[0] - 1], upper=sizes[starts[0]])


def brute_force(rungs: list[tuple[float, Verdict]]) -> Crossover:
    """Decides the inconclusive rungs in every possible way and takes the union of the brackets."""
    sizes, verdicts = [size for size, _ in rungs], [v for _, v in rungs]
    if PAYS not in verdicts:
        return Crossover(CrossoverState.NOT_REACHED, lower=sizes[-1])
    if verdicts[-1] is not PAYS:
        return Crossover(CrossoverState.NOT_ESTABLISHED)
    choices = [{PAYS: [True], INCONCLUSIVE: [True, False]}.get(v, [False]) for v in verdicts]
    found = [decided(sizes, pays) for pays in itertools.product(*choices)]
    states = {one.state for one in found}
    if states == {CrossoverState.BELOW_LADDER}:
        return found[0]
    if states != {CrossoverState.BRACKET}:
        return Crossover(CrossoverState.NOT_ESTABLISHED)
    lower, upper = min(one.lower or 0 for one in found), max(one.upper or 0 for one in found)
    return Crossover(CrossoverState.BRACKET, lower=lower, upper=upper)


def test_crossover_is_the_brute_force_definition_on_every_short_ladder() -> None:
    for length in range(1, 6):
        for verdicts in itertools.product(Verdict, repeat=length):
            rungs = [(float(2**k), v) for k, v in enumerate(verdicts)]
            assert crossover(rungs) == brute_force(rungs), verdicts


@given(st.lists(st.sampled_from(list(Verdict)), min_size=1, max_size=9), st.sets(st.integers(1, 99), min_size=9))
@quick
def test_crossover_is_the_brute_force_definition(verdicts: list[Verdict], sizes: set[int]) -> None:
    rungs = [(float(size), v) for size, v in zip(sorted(sizes), verdicts, strict=False)]
    assert crossover(rungs) == brute_force(rungs)


@pytest.mark.parametrize(
    ("verdicts", "expected", "phrase"),
    [
        ([LOSES, EQUAL, PAYS, PAYS], Crossover(CrossoverState.BRACKET, 2, 4), "above 2, at most 4 tokens"),
        ([PAYS, LOSES, PAYS], Crossover(CrossoverState.BRACKET, 2, 4), "above 2, at most 4 tokens"),
        (
            [LOSES, INCONCLUSIVE, INCONCLUSIVE, PAYS],
            Crossover(CrossoverState.BRACKET, 1, 8),
            "above 1, at most 8 tokens",
        ),
        ([LOSES, PAYS, INCONCLUSIVE, PAYS], Crossover(CrossoverState.BRACKET, 1, 8), "above 1, at most 8 tokens"),
        (
            [PAYS, PAYS],
            Crossover(CrossoverState.BELOW_LADDER, None, 1),
            "at or below 1 tokens, the smallest size measured",
        ),
        (
            [LOSES, INCONCLUSIVE],
            Crossover(CrossoverState.NOT_REACHED, 2, None),
            "not shown to pay at any size up to 2 tokens",
        ),
        (
            [LOSES, PAYS, INCONCLUSIVE],
            Crossover(CrossoverState.NOT_ESTABLISHED),
            "not established: the sizes measured do not agree",
        ),
        (
            [INCONCLUSIVE, PAYS],
            Crossover(CrossoverState.NOT_ESTABLISHED),
            "not established: the sizes measured do not agree",
        ),
    ],
)
def test_crossover_states_and_phrases(verdicts: list[Verdict], expected: Crossover, phrase: str) -> None:
    found = crossover([(2**k, v) for k, v in enumerate(verdicts)])
    assert found == expected
    assert found.describe("tokens") == phrase


def test_crossover_phrases_show_numbers_as_people_write_them() -> None:
    found = Crossover(CrossoverState.BRACKET, 1.25, 8_000_000_000.0)
    assert found.describe("parameters") == "above 1.25, at most 8000000000 parameters"
    assert Crossover(CrossoverState.BELOW_LADDER, None, 3).describe("") == "at or below 3, the smallest size measured"


def test_crossover_takes_verdicts_as_text() -> None:
    assert crossover([(1, "loses"), (2, "pays")]) == Crossover(CrossoverState.BRACKET, 1, 2)  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("sizes", "line"),
    [
        ([], "a ladder needs at least one rung"),
        ([1, 1], "sizes of a ladder must increase strictly: 1 is followed by 1"),
        ([1, 4, 2.5], "sizes of a ladder must increase strictly: 4 is followed by 2.5"),
        ([1, math.nan], "sizes of a ladder must be finite"),
        ([1, math.inf], "sizes of a ladder must be finite"),
    ],
)
def test_bad_ladders_are_refused(sizes: list[float], line: str) -> None:
    with pytest.raises(ValueError) as caught:
        crossover([(size, PAYS) for size in sizes])
    assert str(caught.value) == line


@pytest.mark.parametrize(
    ("n", "low", "high"),
    [(1, 0, 0), (5, 0, 4), (6, 0, 5), (8, 0, 7), (9, 1, 7), (10, 1, 8), (20, 5, 14), (100, 39, 60)],
)
def test_the_order_interval_is_that_of_the_sign_test(n: int, low: int, high: int) -> None:
    # the published table of non-parametric 95 % limits of a median, ranks counted from 0
    assert order_interval(range(n)) == Interval(low, high)


@given(st.lists(st.floats(0.5, 2), min_size=1, max_size=40))
def test_a_paired_interval_is_never_narrower_than_the_order_interval(ratios: list[float]) -> None:
    found, ordered = paired_ratio([1.0] * len(ratios), ratios), order_interval(ratios)
    assert found.low <= ordered.low <= found.value <= ordered.high <= found.high
