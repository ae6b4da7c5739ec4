"""Feeds samples that the suite measured itself into pytest-benchmark, unchanged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from microbench.engines.prices import HostProfile, shipped_profile
from microbench.stats import bootstrap_median
from microbench.target import Target, default_target


class _Replay:
    """A clock whose every second reading is the next sample, so that pytest-benchmark sees end - start = sample."""

    __name__ = "replayed-samples"

    def __init__(self, samples_s: Sequence[float]) -> None:
        self._samples, self._calls, self._now = samples_s, 0, 0.0

    def __call__(self) -> float:
        call, self._calls = self._calls, self._calls + 1
        self._now = self._samples[call >> 1] if call & 1 else 0.0
        return self._now


@pytest.fixture(scope="session")
def target() -> Target:
    """Where the benchmarks run: a CUDA GPU if there is one, else this host with a modelled A100."""
    return default_target()


@pytest.fixture(scope="session")
def profile() -> HostProfile:
    return shipped_profile()


@pytest.fixture
def report(benchmark: Any, target: Target) -> Callable[..., None]:
    """`report(samples_ns, **extra)`: hand samples to pytest-benchmark, with target, unit and interval in extra_info."""

    def give(samples_ns: Sequence[float], **extra: Any) -> None:
        samples = [max(float(s), 1.0) / 1e9 for s in samples_ns]  # 0 ns means below the clock's step
        assert samples
        assert all(math.isfinite(s) for s in samples)
        interval = bootstrap_median(samples_ns)
        benchmark.extra_info.update(
            target=str(target),
            target_says=target.says,
            unit="seconds",
            median_interval_s=[interval.low / 1e9, interval.high / 1e9],
            **extra,
        )
        if benchmark.disabled:
            benchmark.pedantic(lambda: None, rounds=1)
            return
        assert hasattr(benchmark, "_timer"), "this pytest-benchmark has no clock to replay samples through"
        benchmark._timer = _Replay(samples)
        benchmark.pedantic(lambda: None, rounds=len(samples), iterations=1, warmup_rounds=0)

    return give
