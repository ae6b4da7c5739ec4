"""Statistics of step times: pure functions of samples, no clock and no file.

Samples may have any unit; step times are in nanoseconds. A ratio is overlap step time / base step time, so a ratio
below 1 (a positive gain) means that overlap is faster.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

MIN_PAIRS = 6
"""Fewest pairs that can carry a 95 % statement about a median: even the interval from the smallest to the largest of
n samples misses the true median with probability 2 ** (1 - n), which first drops below 5 % at n = 6."""


class Verdict(str, Enum):
    """What an interval of overlap / base step time says about overlap."""

    PAYS = "pays"
    LOSES = "loses"
    EQUAL = "equal"
    INCONCLUSIVE = "inconclusive"

    def __str__(self) -> str:
        return self.value


class CrossoverState(str, Enum):
    """Where the crossover lies relative to the ladder of sizes that was measured."""

    BRACKET = "bracket"
    BELOW_LADDER = "below_ladder"
    NOT_REACHED = "not_reached"
    NOT_ESTABLISHED = "not_established"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Interval:
    """A closed interval, in the unit of the samples; ValueError unless both ends are finite and low <= high."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError(f"not an interval: low {self.low}, high {self.high}")


@dataclass(frozen=True)
class Summary:
    """Median of n samples with its bootstrap interval [low, high]; a percentile is None where n is too small."""

    n: int
    median: float
    low: float
    high: float
    p10: float | None
    p90: float | None
    p99: float | None


@dataclass(frozen=True)
class Ratio:
    """Median of n paired ratios other / base and its bootstrap interval; ValueError unless 0 < low <= value <= high."""

    value: float
    low: float
    high: float
    n: int

    def __post_init__(self) -> None:
        if not (0 < self.low <= self.value <= self.high < math.inf and self.n >= 1):
            raise ValueError(f"not a ratio: value {self.value}, low {self.low}, high {self.high}, n {self.n}")

    @property
    def interval(self) -> Interval:
        """The interval of the ratio."""
        return Interval(self.low, self.high)

    @property
    def gain(self) -> float:
        """1 - ratio: the share of the base step time that is saved (positive: other is faster)."""
        return gain(self.value)

    @property
    def gain_interval(self) -> Interval:
        """The interval of the gain; its low end comes from the high end of the ratio."""
        return Interval(gain(self.high), gain(self.low))


@dataclass(frozen=True)
class Crossover:
    """The smallest size from which overlap pays at every larger size measured.

    bracket: above lower, at or below upper. below_ladder: at or below upper, the smallest rung (lower is None).
    not_reached: not shown up to lower, the largest rung (upper is None). not_established: both are None.
    """

    state: CrossoverState
    lower: float | None = None
    upper: float | None = None

    def describe(self, unit: str) -> str:
        """A short English phrase; `unit` follows each number, as in "above 1024, at most 2048 tokens"."""
        lower, upper = _number(self.lower), _number(self.upper)
        phrase = {
            CrossoverState.BRACKET: f"above {lower}, at most {upper} {unit}",
            CrossoverState.BELOW_LADDER: f"at or below {upper} {unit}, the smallest size measured",
            CrossoverState.NOT_REACHED: f"not shown to pay at any size up to {lower} {unit}",
            CrossoverState.NOT_ESTABLISHED: "not established: the sizes measured do not agree",
        }[self.state]
        return phrase.replace(" ,", ",").rstrip()


def _number(value: float | None) -> str:
    if value is None:
        return "?"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"


def _checked(samples: Iterable[float], *, name: str = "samples") -> list[float]:
    values = [float(sample) for sample in samples]
    if not values:
        raise ValueError(f"{name}: no samples")
    for index, value in enumerate(values):
        if not math.isfinite(value):
            raise ValueError(f"{name}: sample {index} is {value}")
    return values


def _middle(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def median(samples: Iterable[float]) -> float:
    """Median, in the unit of the samples; ValueError if there are none or one is NaN or infinite."""
    return _middle(sorted(_checked(samples)))


def samples_needed(p: float, *, confidence: float = 0.95) -> int:
    """Samples without which percentile p (a fraction) cannot be bounded at this confidence.

    The largest of n samples lies below percentile p with probability p ** n, so n >= ln(1 - confidence) / ln(p)
    (order statistics; MLPerf early stopping uses the same count). Below the median it is the smallest sample that must
    not lie above. The median itself always counts as allowed.
    """
    _check_fraction("p", p)
    _check_fraction("confidence", confidence)
    if p == 0.5:
        return 1
    return math.ceil(math.log(1 - confidence) / math.log(max(p, 1 - p)))


def percentile(samples: Iterable[float], p: float, *, confidence: float = 0.95) -> float | None:
    """Percentile p, a fraction between 0 and 1, in the unit of the samples; None with fewer than `samples_needed`.

    Interpolates linearly between order statistics (Hyndman and Fan type 7, the default of numpy).
    """
    ordered = sorted(_checked(samples))
    if len(ordered) < samples_needed(p, confidence=confidence):
        return None
    if p == 0.5:
        return _middle(ordered)
    place = p * (len(ordered) - 1)
    below = min(int(place), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return min(ordered[below] + (ordered[above] - ordered[below]) * (place - below), ordered[above])


def bootstrap_median(
    samples: Iterable[float], *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Percentile bootstrap interval of the median, in the unit of the samples; the same seed gives the same interval.

    Always holds the median of the samples. Has no width for one sample, and is too narrow for fewer than `MIN_PAIRS`.
    """
    _check_fraction("confidence", confidence)
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    return _bootstrap_sorted(sorted(_checked(samples)), confidence=confidence, resamples=resamples, seed=seed)


def _bootstrap_sorted(ordered: Sequence[float], *, confidence: float, resamples: int, seed: int) -> Interval:
    import numpy as np

    # A resample draws n places in the sorted samples, and only its middle place (or two) decides its median. A place is
    # floor(n * u) with u uniform, so the middle one follows from the order statistic u_(k) ~ Beta(k, n - k + 1): the
    # same distribution as drawing all n places, at a cost that does not grow with n.
    n = len(ordered)
    values = np.asarray(ordered, dtype=np.float64)
    random = np.random.default_rng(seed)
    if n % 2:
        k = (n + 1) // 2
        u = random.beta(k, k, resamples)
        medians = values[np.minimum((u * n).astype(np.int64), n - 1)]
    else:
        k = n // 2
        u = random.beta(k, k + 1, resamples)
        above = u + (1 - u) * random.beta(1, k, resamples)
        first = values[np.minimum((u * n).astype(np.int64), n - 1)]
        second = values[np.minimum((above * n).astype(np.int64), n - 1)]
        medians = (first + second) / 2
    medians.sort()
    tail = (1 - confidence) / 2
    low = float(medians[math.floor(tail * (resamples - 1))])
    high = float(medians[math.ceil((1 - tail) * (resamples - 1))])
    middle = _middle(ordered)
    return Interval(min(low, middle), max(high, middle))


def summary(samples: Iterable[float], *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0) -> Summary:
    """Count, median with its bootstrap interval, and the percentiles that n allows, in the unit of the samples."""
    values = _checked(samples)
    interval = bootstrap_median(values, confidence=confidence, resamples=resamples, seed=seed)
    p10, p90, p99 = (percentile(values, p) for p in (0.10, 0.90, 0.99))
    return Summary(len(values), median(values), interval.low, interval.high, p10, p90, p99)


def order_interval(samples: Iterable[float], *, confidence: float = 0.95) -> Interval:
    """The distribution-free interval of the median between two order statistics (that of the sign test).

    From the k-th smallest to the k-th largest sample, with the largest k whose binomial tail P(X < k), X ~ B(n, 1/2),
    is at most (1 - confidence) / 2; from the smallest to the largest where even those miss the confidence.
    """
    ordered = sorted(_checked(samples))
    n, k, tail = len(ordered), 0, 0.5 ** len(ordered)
    while tail <= (1 - confidence) / 2 and k < n // 2:
        k += 1
        tail += math.comb(n, k) * 0.5**n
    low = max(k - 1, 0)
    return Interval(ordered[low], ordered[n - 1 - low])


def paired_ratio(
    base: Iterable[float],
    other: Iterable[float],
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Ratio:
    """Median of other_i / base_i over the pairs, with a bootstrap interval that resamples pairs.

    The percentile bootstrap of a median is too narrow for few pairs, so the interval is widened to `order_interval`.

    ValueError if the two differ in length, are empty, or hold a NaN, an infinity, zero or a negative number.
    """
    base_values, other_values = list(base), list(other)
    if len(base_values) != len(other_values):
        raise ValueError(f"pairs need equal lengths: base has {len(base_values)}, other has {len(other_values)}")
    base_values, other_values = _checked(base_values, name="base"), _checked(other_values, name="other")
    for name, values in (("base", base_values), ("other", other_values)):
        for index, value in enumerate(values):
            if value <= 0:
                raise ValueError(f"{name}: sample {index} is {value:g}, not positive")
    ratios = [o / b for b, o in zip(base_values, other_values, strict=True)]
    interval = bootstrap_median(ratios, confidence=confidence, resamples=resamples, seed=seed)
    ordered = order_interval(ratios, confidence=confidence)
    return Ratio(median(ratios), min(interval.low, ordered.low), max(interval.high, ordered.high), len(ratios))


def gain(ratio: float) -> float:
    """1 - overlap / base step time: the share of the base step time that is saved (positive: overlap is faster)."""
    return 1 - ratio


def verdict(interval: Ratio | Interval, *, tolerance: float = 0.02, min_pairs: int = MIN_PAIRS) -> Verdict:
    """What an interval of overlap / base step time says.

    equal: it lies wholly within 1 - tolerance to 1 + tolerance, ends included. Otherwise pays: it lies wholly below 1;
    loses: wholly above 1; inconclusive: it holds 1. A `Ratio` of fewer than `min_pairs` pairs is inconclusive, as its
    bootstrap interval says nothing; pass min_pairs=1 where each sample is exact (a virtual clock).
    """
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance must be at least 0 and below 1, got {tolerance}")
    if isinstance(interval, Ratio) and interval.n < min_pairs:
        return Verdict.INCONCLUSIVE
    if 1 - tolerance <= interval.low and interval.high <= 1 + tolerance:
        return Verdict.EQUAL
    if interval.high < 1:
        return Verdict.PAYS
    if interval.low > 1:
        return Verdict.LOSES
    return Verdict.INCONCLUSIVE


def narrow_enough(ratio: Ratio, *, half_width: float = 0.01, min_pairs: int = MIN_PAIRS) -> bool:
    """Whether sampling can stop: half the width of the interval is at most `half_width` (0.01 is 1 % of the base step).

    Never with fewer than `min_pairs` pairs: the interval of one pair has no width.
    """
    if not 0 < half_width < math.inf:
        raise ValueError(f"half_width must be positive, got {half_width}")
    return ratio.n >= min_pairs and (ratio.high - ratio.low) / 2 <= half_width


def crossover(rungs: Sequence[tuple[float, Verdict]]) -> Crossover:
    """The crossover of a ladder of (size, verdict), sizes strictly increasing.

    The paying run is the longest run of PAYS that ends at the top rung.

    - below_ladder: every rung pays.
    - not_reached: no rung pays. (An inconclusive rung is not a paying one.)
    - not_established: some rung pays but the top one does not; or the top one does and nothing below the paying run is
      EQUAL or LOSES.
    - bracket: upper is the lowest rung of the paying run, lower the highest rung with EQUAL or LOSES. Usually that is
      the rung right below. Inconclusive rungs in between extend the bracket down, since each of them may in truth pay,
      and so does a PAYS among them, since the true paying run may reach down to it.

    The bracket is therefore the union of the brackets over every way to decide the inconclusive rungs. ValueError if
    there are no rungs, or the sizes are not finite and strictly increasing. (After the offload threshold of GPU-BLOB.)
    """
    sizes = [float(size) for size, _ in rungs]
    verdicts = [Verdict(given) for _, given in rungs]
    if not sizes:
        raise ValueError("a ladder needs at least one rung")
    if not all(math.isfinite(size) for size in sizes):
        raise ValueError("sizes of a ladder must be finite")
    for smaller, larger in itertools.pairwise(sizes):
        if not smaller < larger:
            raise ValueError(f"sizes of a ladder must increase strictly: {smaller:g} is followed by {larger:g}")
    if Verdict.PAYS not in verdicts:
        return Crossover(CrossoverState.NOT_REACHED, lower=sizes[-1])
    if verdicts[-1] is not Verdict.PAYS:
        return Crossover(CrossoverState.NOT_ESTABLISHED)
    first = len(verdicts) - 1
    while first > 0 and verdicts[first - 1] is Verdict.PAYS:
        first -= 1
    if first == 0:
        return Crossover(CrossoverState.BELOW_LADDER, upper=sizes[0])
    against = [size for size, given in zip(sizes, verdicts, strict=True) if given in (Verdict.EQUAL, Verdict.LOSES)]
    if not against:
        return Crossover(CrossoverState.NOT_ESTABLISHED)
    return Crossover(CrossoverState.BRACKET, lower=against[-1], upper=sizes[first])


def _check_fraction(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"{name} must be a fraction between 0 and 1, got {value}")
