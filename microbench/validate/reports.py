"""Published on/off pairs, predicted: which the models cover, with which sign and ratio, and what a constant would say.

Nothing is fitted to a pair: engines, GPUs and the host profile are what they are elsewhere. A pair is covered when the
source says what is needed to replay it (card, lengths, load) and this suite models the card, the engine and the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from microbench.engines import EngineProfile, engine
from microbench.errors import UsageError
from microbench.reports.pairs import Pair
from microbench.serving import Replay, Traffic, run_replay
from microbench.stats import median
from microbench.target import parse_target
from synthetic_models import Architecture, UnknownName, architecture

ENGINES = {"vllm": "vllm-v1", "sglang": "sglang-0.5.4", "tensorrt-llm": "tensorrt-llm"}
"""The profile that stands for an engine's current design."""
KINDS = ("flag_toggle", "flag_toggle_approx")
"""Pairs in which nothing but the switch differs."""
NOTABLE = 0.02
LEAST_SIGN, MOST_ERROR_POINTS, LEAST_ADVANTAGE = 0.85, 5.0, 0.5
"""Targets: right signs of notable pairs, median error of the ratio, and that error over a constant's at most."""


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """One pair: predicted speed-up by overlap, or why it isn't covered."""

    pair: Pair
    speedup: float | None = None
    why_not: str = ""

    @property
    def error_points(self) -> float | None:
        """Predicted minus published speed-up, in points."""
        if self.speedup is None or self.pair.speedup is None:
            return None
        return 100 * (self.speedup - self.pair.speedup)

    @property
    def sign_right(self) -> bool | None:
        """Whether the direction is right; None where the published effect is within 2 %."""
        published = self.pair.speedup
        if self.speedup is None or published is None or abs(published - 1) <= NOTABLE:
            return None
        return (self.speedup > 1) == (published > 1)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a covered pair is replayed as."""

    engine: EngineProfile
    architecture: Architecture
    gpu: str
    traffic: Traffic
    metric: str


def case_of(pair: Pair) -> Case | str:
    """The replay of a pair, or why there is none."""
    if pair.kind not in KINDS:
        return f"not a plain toggle ({pair.kind.replace('_', ' ')})"
    if not pair.model:
        return "the source names no model"
    if pair.engine not in ENGINES:
        return f"engine {pair.engine} is not modelled"
    if not pair.gpu_name:
        return f"GPU not modelled or not named ({pair.gpu or 'none given'})"
    if pair.gpus != 1:
        return f"{pair.gpus or 'an unknown number of'} GPUs: replays are of one"
    missing = [
        name
        for name, value in (
            ("input length", pair.input_tokens),
            ("output length", pair.output_tokens),
            ("number of prompts", pair.prompts),
            ("load", pair.rate or pair.concurrency),
        )
        if value is None
    ]
    if missing:
        return f"the source gives no {', '.join(missing)}"
    try:
        model = architecture(pair.model)
    except UnknownName:
        return f"model {pair.model} is not modelled"
    assert pair.input_tokens and pair.output_tokens and pair.prompts
    traffic = Traffic(
        num_prompts=pair.prompts,
        random_input=max(1, round(pair.input_tokens)),
        random_output=max(1, round(pair.output_tokens)),
        random_range_ratio=1.0,
        request_rate=math.inf if pair.rate is None else pair.rate,
        max_concurrency=pair.concurrency,
    )
    return Case(
        engine=engine(ENGINES[pair.engine]),
        architecture=model,
        gpu=pair.gpu_name,
        traffic=traffic,
        metric=pair.metric,
    )


def predict(pair: Pair) -> Predicted:
    """Replay both runs of a pair on the virtual host."""
    case = case_of(pair)
    if isinstance(case, str):
        return Predicted(pair=pair, why_not=case)
    replay = Replay(
        target=parse_target(f"virtual+sim:{case.gpu}"),
        engine=case.engine,
        architecture=case.architecture,
        traffic=case.traffic,
    )
    try:
        off, on = (run_replay(replay, name).metrics for name in case.engine.schedulers)
    except UsageError as why:
        return Predicted(pair=pair, why_not=str(why))
    if not on.get(case.metric) or not off.get(case.metric):
        return Predicted(pair=pair, why_not=f"a replay has no {case.metric}")
    ratio = on[case.metric] / off[case.metric]
    return Predicted(pair=pair, speedup=ratio if pair.better == "higher" else 1 / ratio)


def predict_all(pairs: Sequence[Pair], *, progress: Callable[[float], None] = lambda share: None) -> list[Predicted]:
    """Every primary pair, in order."""
    primary = [pair for pair in pairs if pair.primary]
    found = []
    for done, pair in enumerate(primary):
        progress(done / len(primary))
        found.append(predict(pair))
    return found


def score(found: Sequence[Predicted], pairs: Sequence[Pair]) -> dict[str, Any]:
    """How right the predictions are, beside "always the median speed-up of all published pairs"."""
    covered = [p for p in found if p.error_points is not None]
    speedups = [p.speedup for p in pairs if p.primary and p.speedup is not None]
    constant = median(speedups) if speedups else 1.0
    signs = [p.sign_right for p in covered if p.sign_right is not None]
    ours = [abs(p.error_points or 0.0) for p in covered]
    theirs = [abs(100 * (constant - (p.pair.speedup or 1.0))) for p in covered]
    notable = [p for p in covered if p.sign_right is not None]
    constant_signs = [(constant > 1) == ((p.pair.speedup or 1.0) > 1) for p in notable]
    error, constant_error = (median(e) if e else None for e in (ours, theirs))
    return {
        "pairs": len(found),
        "covered": len(covered),
        "notable": len(signs),
        "signs_right": sum(signs),
        "median_error_points": error,
        "constant": constant,
        "constant_signs_right": sum(constant_signs),
        "constant_median_error_points": constant_error,
        "met": {
            "signs": None if not signs else sum(signs) >= LEAST_SIGN * len(signs),
            "median error": None if error is None else error <= MOST_ERROR_POINTS,
            "half the constant's error": None
            if error is None or constant_error is None
            else error <= LEAST_ADVANTAGE * constant_error,
        },
    }
