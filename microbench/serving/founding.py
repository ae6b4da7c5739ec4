"""The case this suite grew from, predicted: SGLang issue 2558 (https://github.com/sgl-project/sglang/issues/2558).

One A100, SGLang 0.4.0.post1, Qwen2.5-0.5B-Instruct, 500 requests at once, prompts of 1 to 4096 and outputs of 0 to
2048 tokens, streaming: faster with overlap off. With Qwen2.5-3B-Instruct the reporter found it faster with overlap on,
without figures. One number, the host's speed, is fitted, on the duration with overlap off; all else follows from the
model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from microbench.engines import engine
from microbench.engines.prices import HostProfile, shipped_profile
from microbench.serving.replay import Replay, Replayed, run_replay
from microbench.serving.workload import Traffic
from microbench.target import parse_target
from synthetic_models import architecture

URL = "https://github.com/sgl-project/sglang/issues/2558"
TARGET, ENGINE = "virtual+sim:a100-80g", "sglang-0.4.0.post1"
TRAFFIC = Traffic(num_prompts=500, random_input=4096, random_output=2048, seed=1)
"""Seed 1 is the benchmark's default; it gives exactly the 1,026,288 input and 506,842 output tokens published."""

PUBLISHED: Mapping[str, Mapping[str, float]] = {
    "off": {
        "duration": 59.99, "request_throughput": 8.33, "output_throughput": 8448.61,
        "mean_e2e_latency_ms": 36476.98, "median_e2e_latency_ms": 37023.41,
        "mean_ttft_ms": 5194.01, "median_ttft_ms": 4901.62, "p99_ttft_ms": 8997.54,
        "mean_tpot_ms": 38.72, "median_tpot_ms": 31.32, "p99_tpot_ms": 167.98,
        "mean_itl_ms": 32.36, "median_itl_ms": 27.18, "p99_itl_ms": 44.47,
    },
    "on": {
        "duration": 69.61, "request_throughput": 7.18, "output_throughput": 7281.38,
        "mean_e2e_latency_ms": 40437.78, "median_e2e_latency_ms": 39943.70,
        "mean_ttft_ms": 5381.80, "median_ttft_ms": 5151.43, "p99_ttft_ms": 9350.33,
        "mean_tpot_ms": 42.32, "median_tpot_ms": 35.03, "p99_tpot_ms": 189.66,
        "mean_itl_ms": 35.97, "median_itl_ms": 31.34, "p99_itl_ms": 60.09,
    },
}  # fmt: skip

GOAL_POINTS = 8
"""How near a predicted on/off ratio should come to the published one, in points of 100."""
GOALS = ("duration", "median_tpot_ms", "median_itl_ms")

SLOWEST, FASTEST, FIT_STEPS = 0.2, 5.0, 11


@dataclass(frozen=True)
class FoundingRow:
    """One metric: published and predicted with overlap off and on. fitted: `off` was made to agree."""

    metric: str
    published_off: float
    published_on: float
    off: float
    on: float
    fitted: bool

    @property
    def published_ratio(self) -> float:
        """On over off."""
        return self.published_on / self.published_off

    @property
    def ratio(self) -> float:
        """On over off, predicted."""
        return self.on / self.off

    @property
    def off_points(self) -> float:
        """Predicted minus published ratio, in points of 100."""
        return 100 * (self.ratio - self.published_ratio)

    @property
    def met(self) -> bool | None:
        """Whether the ratio is within the goal; None for a metric without one."""
        return abs(self.off_points) <= GOAL_POINTS if self.metric in GOALS else None


@dataclass(frozen=True)
class FoundingTable:
    """speed: the fitted host speed over that of the host in the profile. larger_ratio: duration on/off with
    Qwen2.5-3B at that speed, of which only the sign is published (below 1)."""

    speed: float
    machine: str
    rows: tuple[FoundingRow, ...]
    larger_off_s: float
    larger_on_s: float

    @property
    def larger_ratio(self) -> float:
        return self.larger_on_s / self.larger_off_s

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, with the source and what was modelled."""
        return {
            "source": URL,
            "target": TARGET,
            "engine": ENGINE,
            "modelled": True,
            "fitted": {"host_speed": self.speed, "on": "duration with overlap off", "relative_to": self.machine},
            "rows": [
                {
                    "metric": r.metric,
                    "published_off": r.published_off, "published_on": r.published_on,
                    "published_ratio": r.published_ratio,
                    "predicted_off": r.off, "predicted_on": r.on, "predicted_ratio": r.ratio,
                    "off_points": r.off_points, "met": r.met, "fitted": r.fitted,
                }
                for r in self.rows
            ],
            "qwen2.5-3b": {
                "predicted_off_s": self.larger_off_s, "predicted_on_s": self.larger_on_s,
                "predicted_ratio": self.larger_ratio, "published": "overlap on is faster", "met": self.larger_ratio < 1,
            },
        }  # fmt: skip


def founding_table(profile: HostProfile | None = None) -> FoundingTable:
    """Fit the host's speed, then predict both columns and the 3B case. Takes about ten seconds."""
    profile = profile or shipped_profile()
    off_name, on_name = engine(ENGINE).schedulers
    run = partial(_replay, profile)
    speed = _fit_speed(lambda s: run("qwen2.5-0.5b", off_name, s).metrics["duration"], PUBLISHED["off"]["duration"])
    off, on = (run("qwen2.5-0.5b", name, speed).metrics for name in (off_name, on_name))
    larger_off, larger_on = (run("qwen2.5-3b", name, speed).metrics for name in (off_name, on_name))
    rows = tuple(
        FoundingRow(metric, published, PUBLISHED["on"][metric], off[metric], on[metric], metric == "duration")
        for metric, published in PUBLISHED["off"].items()
    )
    return FoundingTable(speed, profile.machine, rows, larger_off["duration"], larger_on["duration"])


def founding_text(table: FoundingTable) -> str:
    """The table as plain text, published and predicted side by side; says that it is computed and what was fitted."""
    lines = [
        f"SGLang issue 2558 ({URL}), {ENGINE}, qwen2.5-0.5b, {TARGET} (computed)",
        f"fitted: host speed {table.speed:.2f} of {table.machine}, on the duration with overlap off; nothing else",
        f"{'':24}{'published':^31}{'predicted':^31}",
        f"{'':24}{'off':>11}{'on':>11}{'on/off':>9}{'off':>11}{'on':>11}{'on/off':>9}  points off",
    ]
    for row in table.rows:
        verdict = {None: "", True: f"  within {GOAL_POINTS}", False: f"  misses {GOAL_POINTS}"}[row.met]
        lines.append(
            f"{row.metric:24}{row.published_off:>11.2f}{row.published_on:>11.2f}{row.published_ratio:>9.3f}"
            f"{row.off:>11.2f}{row.on:>11.2f}{row.ratio:>9.3f}{row.off_points:>+10.1f}{verdict}"
        )
    sign = "agrees" if table.larger_ratio < 1 else "disagrees"
    lines.append(
        f"qwen2.5-3b: published: faster with overlap on, no figures; predicted: {table.larger_off_s:.1f} s off, "
        f"{table.larger_on_s:.1f} s on, on/off {table.larger_ratio:.3f}: {sign}"
    )
    return "\n".join(lines)


def _replay(profile: HostProfile, model: str, scheduler: str, speed: float) -> Replayed:
    replay = Replay(
        target=parse_target(TARGET),
        engine=engine(ENGINE),
        architecture=architecture(model),
        traffic=TRAFFIC,
        profile=profile,
        host_speed=speed,
    )
    return run_replay(replay, scheduler)


def _fit_speed(duration_s: Any, wanted_s: float) -> float:
    """The speed at which the run takes `wanted_s`, by bisection on a logarithmic scale: slower hosts take longer."""
    low, high = SLOWEST, FASTEST
    for _ in range(FIT_STEPS):
        middle = (low * high) ** 0.5
        if duration_s(middle) > wanted_s:
            low = middle
        else:
            high = middle
    return float((low * high) ** 0.5)
