"""Compare two results: per row faster, slower, equal or inconclusive, for a person or for CI.

What is compared of a results folder is the step time relative to the base scheduler of the same round, so that a
machine that was slower as a whole on one of the two days is no regression; of a pytest-benchmark file it is the time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from microbench.environment import differences
from microbench.errors import UsageError
from microbench.stats import MIN_PAIRS, Interval, median

LARGEST_FILE_BYTES = 500_000_000
RESAMPLES = 2000
KEY = ("part", "target", "engine", "model", "batch", "context", "launch_mode", "launch_us", "scheduler")


class Change(str, Enum):
    """How B stands to A."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUAL = "equal"
    INCONCLUSIVE = "inconclusive"

    __str__ = str.__str__


@dataclass(frozen=True)
class Side:
    """One result: samples by row, and the machine they are of. unit: what a sample is."""

    path: Path
    unit: str
    rows: Mapping[str, Sequence[float]]
    environment: Mapping[str, Any]


@dataclass(frozen=True)
class Compared:
    """One row on both sides: the ratio of medians B / A, its 95 % interval, and what that says at the tolerance."""

    row: str
    a: float
    b: float
    ratio: float
    interval: Interval
    samples: tuple[int, int]
    change: Change


def compare(a: Side, b: Side, *, tolerance: float) -> list[Compared]:
    """The rows that both sides have. Raises UsageError when they share none, or measure different things."""
    if a.unit != b.unit:
        raise UsageError(f"{a.path} holds {a.unit}, {b.path} {b.unit}; compare two of one kind")
    shared = [row for row in a.rows if row in b.rows]
    if not shared:
        raise UsageError(f"{a.path} and {b.path} share no row; compare two runs of the same grid or tests")
    return [_compared(row, a.rows[row], b.rows[row], tolerance) for row in shared]


def _compared(row: str, a: Sequence[float], b: Sequence[float], tolerance: float) -> Compared:
    interval = ratio_interval(a, b)
    one, other = median(a), median(b)
    if min(len(a), len(b)) < MIN_PAIRS:
        change = Change.INCONCLUSIVE
    elif interval.low > 1 + tolerance:
        change = Change.SLOWER
    elif interval.high < 1 - tolerance:
        change = Change.FASTER
    elif interval.low >= 1 - tolerance and interval.high <= 1 + tolerance:
        change = Change.EQUAL
    else:
        change = Change.INCONCLUSIVE
    return Compared(row, one, other, other / one, interval, (len(a), len(b)), change)


def ratio_interval(a: Sequence[float], b: Sequence[float]) -> Interval:
    """95 % percentile bootstrap of median(b) / median(a), both resampled; the same samples give the same interval."""
    import numpy as np

    random = np.random.default_rng(0)

    def medians(samples: Sequence[float]) -> Any:
        values = np.asarray(samples, dtype=np.float64)
        return np.median(values[random.integers(0, len(values), (RESAMPLES, len(values)))], axis=1)

    low, high = np.quantile(medians(b) / medians(a), (0.025, 0.975))
    ratio = median(b) / median(a)
    return Interval(min(float(low), ratio), max(float(high), ratio))


def unlike(a: Side, b: Side) -> list[str]:
    """What makes the two machines incomparable, one line each."""
    return differences(a.environment, b.environment)


def read_side(path: Path) -> Side:
    """A results folder, or a pytest-benchmark JSON file with its samples (--benchmark-save-data).

    Raises UsageError saying what is wrong with it.
    """
    return _folder(path) if path.is_dir() else _pytest_benchmark(path)


def _folder(path: Path) -> Side:
    from microbench.records import read_results

    frame, manifest = read_results(path)
    records = [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]
    if not records or not {"samples_ms", "ratio", "measured_host"} <= set(records[0]):
        raise UsageError(f"{path}: holds no measured steps; give a folder of `microbench run`")
    bases = {_point(row): row["samples_ms"] for row in records if _missing(row["ratio"])}
    rows: dict[str, Sequence[float]] = {}
    for row in records:
        if row["measured_host"] and not _missing(row["ratio"]):
            pairs = zip(bases.get(_point(row), ()), row["samples_ms"], strict=False)
            name = " ".join(f"{row[k]}" for k in KEY if k in row and not _missing(row[k]))
            rows[name] = [other / one for one, other in pairs if one > 0]
    rows = {name: ratios for name, ratios in rows.items() if ratios}
    if not rows:
        raise UsageError(f"{path}: holds nothing that was measured under two schedulers")
    environment = manifest.get("environment", {})
    return Side(path, "step time over that of the base scheduler", rows, environment)


def _missing(value: Any) -> bool:
    return value is None or value != value


def _point(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(str(row.get(k)) for k in KEY if k != "scheduler")


def _pytest_benchmark(path: Path) -> Side:
    if path.stat().st_size > LARGEST_FILE_BYTES:
        raise UsageError(f"{path}: larger than {LARGEST_FILE_BYTES} bytes")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: neither a results folder nor JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("benchmarks"), list):
        raise UsageError(f"{path}: not a file of pytest-benchmark: it has no list of benchmarks")
    rows = dict(_samples(document["benchmarks"]))
    if not rows:
        raise UsageError(f"{path}: holds no samples; save it with --benchmark-save-data or a suite that stores them")
    return Side(path, "seconds", rows, _machine(document.get("machine_info")))


def _samples(benchmarks: Sequence[Any]) -> Iterator[tuple[str, Sequence[float]]]:
    for benchmark in benchmarks:
        stats = benchmark.get("stats") if isinstance(benchmark, dict) else None
        data = stats.get("data") if isinstance(stats, dict) else None
        if not isinstance(data, list):
            continue
        samples = [float(v) for v in data if isinstance(v, int | float) and not isinstance(v, bool)]
        if samples and len(samples) == len(data) and all(0 < v < math.inf for v in samples):
            yield str(benchmark.get("fullname") or benchmark.get("name")), samples


def _machine(info: Any) -> dict[str, Any]:
    """What pytest-benchmark says of the machine, under the names of this suite's environment."""
    info = info if isinstance(info, dict) else {}
    cpu = info.get("cpu") if isinstance(info.get("cpu"), dict) else {}
    return {
        "cpu_model": cpu.get("brand_raw"),
        "logical_cores": cpu.get("count"),
        "python_version": info.get("python_version"),
        "python_implementation": info.get("python_implementation"),
    }


def failing(text: str) -> float:
    """The tolerance in `loses:3%`: a row fails when it is surely slower by more. Raises UsageError."""
    verdict, _, share = text.partition(":")
    number = share.removesuffix("%")
    try:
        value = float(number) / 100
    except ValueError:
        value = math.nan
    if verdict != "loses" or not share.endswith("%") or not 0 <= value <= 1:
        raise UsageError(f"--fail-on {text}: give it as loses:3% (a row that is surely slower by more than 3 % fails)")
    return value
