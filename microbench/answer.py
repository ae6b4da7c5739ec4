"""The main job: does overlap pay, from 0.5B to 3B and beyond, at the founding case's setting, and why.

The founding case is SGLang issue 2558 (github.com/sgl-project/sglang/issues/2558): Qwen2.5-0.5B on one A100 serves
8.33 req/s without overlap and 7.18 with it, Qwen2.5-3B gains.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from microbench.case import Case
from microbench.costs.cost import Cost
from microbench.costs.floor import floor
from microbench.devices.spec import LaunchCost
from microbench.engines import EngineProfile
from microbench.engines.prices import HostProfile
from microbench.engines.pricing import measure_profile
from microbench.environment import environment
from microbench.explain import deciding_cost, without_each_cost
from microbench.measure import Budget
from microbench.stats import median
from microbench.sweep import CONTEXT, Point, fitting_points, point_case, sweep
from microbench.target import Target, open_target
from synthetic_models import Architecture, Gpu

GRID_BATCHES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 168, 200, 240, 280, 320, 360, 400, 450, 500)
MEASURED_BATCHES = (1, 32, 160, 200, 500)
MEASURED_LAUNCH_US = 60
"""A second launch cost, measured with the small model at the largest batch: towards the dear end of what is published
for eager engines (`engines.profile.EAGER`)."""
LAUNCH_US = (5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 60, 70, 85, 100)
BLOCK_MS = 200
"""How long one scheduler runs before the other has its turn: short against the minutes over which a shared machine
changes its speed, long against starting a thread."""
SETUP_MS = 10
"""What a point costs besides its steps (requests, a process, warm-up), in the unit of a step's share of the time."""
UNCLEAR = 0.08
"""Points whose computed change is smaller get twice their share."""
GIL_SHARE = 0.6
"""Share of an eager launch that holds the GIL: 15 of 25 us in the engine profiles."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What to ask. `pair`: the small and the large model of the verdict; `measured`: models on the real target."""

    target: Target
    gpu: Gpu
    engine: EngineProfile
    ladder: tuple[Architecture, ...]
    pair: tuple[Architecture, Architecture]
    measured_batches: tuple[int, ...] = MEASURED_BATCHES
    seconds: float = 64.0

    @property
    def schedulers(self) -> tuple[str, ...]:
        """The base, the engine's overlap, and for a threaded one also without `launch_done` (issue 2558, point 2).

        The third is computed only; the first two are measured as well.
        """
        base, overlap = self.engine.schedulers
        return (base, overlap, "overlap_thread:none") if overlap == "overlap_thread:attribute" else (base, overlap)

    @property
    def grid_target(self) -> Target:
        return Target(host="virtual", device="sim", gpu=self.gpu)

    @property
    def how(self) -> str:
        """What the points on the target are."""
        return "measured" if self.target.host == "real" else "computed"


@dataclass
class Answer:
    """What was found, growing as it is measured; `partial` when it was interrupted or failed with `error`.

    rows: of `sweep.rows`, with `part` = `measured`, `measured launch`, `grid` (computed) or `launch sweep` (computed).
    gains_without: by model, the gain with one cost removed (see `explain`), at `explained_batch`.
    """

    question: Question
    rows: list[dict[str, Any]] = field(default_factory=list)
    gains_without: dict[str, dict[str, float]] = field(default_factory=dict)
    explained_batch: int | None = None
    profile: HostProfile | None = None
    floor: Sequence[Cost] = ()
    partial: bool = False
    error: str | None = None
    skipped: list[str] = field(default_factory=list)
    environment: Mapping[str, Any] = field(default_factory=environment)

    def select(self, part: str, scheduler: str | None = None, **columns: Any) -> list[dict[str, Any]]:
        """Rows of one part with these values."""
        scheduler = scheduler or self.question.schedulers[1]
        wanted = {"part": part, "scheduler": scheduler, **columns}
        return [r for r in self.rows if all(r[k] == v for k, v in wanted.items())]


def ask(question: Question, *, progress: Callable[[str, float], None] = lambda stage, share: None) -> Answer:
    """Answer it. Ctrl-C or an error ends early; what was measured until then is kept and marked partial."""
    answer = Answer(question)
    try:
        _ask(question, answer, progress)
    except KeyboardInterrupt:
        answer.partial = True
    except Exception as error:
        if not answer.rows:
            raise
        answer.partial, answer.error = True, f"{type(error).__name__}: {error}"
    return answer


def _ask(question: Question, answer: Answer, progress: Callable[[str, float], None]) -> None:
    common: dict[str, Any] = {"engine": question.engine, "gpu": question.gpu}
    progress("pricing this host's Python", 0)
    answer.floor = floor(*open_target(question.target))
    answer.profile = profile = measure_profile([question.engine])
    progress("pricing this host's Python", 1)

    def collect(part: str, points: Sequence[Point], target: Target, stage: str, **options: Any) -> None:
        found = sweep(
            points,
            target=target,
            schedulers=question.schedulers[:2] if part.startswith("measured") else question.schedulers,
            profile=profile,
            progress=lambda share: progress(stage, share),
            skip=lambda point, why: answer.skipped.append(f"{point.architecture.name} at batch {point.batch}: {why}"),
            **common,
            **options,
        )
        for rows in found:
            answer.rows += [{"part": part, **row} for row in rows]

    grid = fitting_points(question.ladder, GRID_BATCHES, question.gpu)
    collect("grid", grid, question.grid_target, "computing the grid")
    points = [p for p in grid if p.architecture in question.pair and p.batch in question.measured_batches]
    largest = {m: max((p.batch for p in points if p.architecture == m), default=1) for m in question.pair}
    launches = [
        Point(architecture=m, batch=largest[m], launch=launch_of(us)) for m in question.pair for us in LAUNCH_US
    ]
    collect("launch sweep", launches, question.grid_target, "computing launch costs")
    small = question.pair[0]
    dear = [Point(architecture=small, batch=largest[small], launch=launch_of(MEASURED_LAUNCH_US))]
    if question.target.gpu is None:
        dear = []  # a real GPU has the launch cost it has

    def computed_change(point: Point) -> float:
        where: dict[str, Any] = {"model": point.architecture.name, "batch": point.batch}
        if point.launch:
            rows = answer.select("launch sweep", **where, launch_us=point.launch.total_ns / 1e3)
        else:
            rows = answer.select("grid", **where)
        return abs(1 - float(rows[0]["ratio"])) if rows else 0.0

    # From the clearest to the least clear: what the clear ones leave of the time goes to the others.
    points.sort(key=computed_change, reverse=True)
    unclear = [computed_change(p) < UNCLEAR for p in dear + points]
    cases = [point_case(p, question.target, question.engine, question.gpu) for p in dear + points]
    budget = _shares(question.seconds, cases, unclear)
    collect("measured launch", dear, question.target, "measuring dear launches", budget=budget)
    collect("measured", points, question.target, "measuring", budget=lambda i: budget(len(dear) + i))
    base, overlap = question.schedulers[:2]
    worst = max(answer.select("grid", model=small.name), key=lambda r: r["ratio"])
    answer.explained_batch = worst["batch"]
    gains = {}
    for model in question.pair:
        point = Point(architecture=model, batch=min(worst["batch"], largest[model]))
        case = point_case(point, question.grid_target, question.engine, question.gpu)
        gains[model.name] = without_each_cost(case, base, overlap, profile)
    answer.gains_without = gains


def launch_of(us: float) -> LaunchCost:
    """An eager launch of `us` in total, split as the engine profiles split it."""
    gil_ns = round(us * 1000 * GIL_SHARE)
    return LaunchCost(gil_ns=gil_ns, free_ns=round(us * 1000) - gil_ns)


def _shares(seconds: float, cases: Sequence[Case], unclear: Sequence[bool]) -> Callable[[int], Budget]:
    """Divide the time that is left by the expected step times of the points that are left; unclear ones get more."""
    deadline = time.monotonic() + seconds
    steps_ms = [max(c.spec.gpu_ns, c.spec.launch_ns) / 1e6 + 0.04 * c.workload.requests for c in cases]
    weights = [(SETUP_MS + ms) * (2 if close else 1) for ms, close in zip(steps_ms, unclear, strict=True)]

    def budget(i: int) -> Budget:
        left = max(deadline - time.monotonic(), 0.5)
        steps = max(4, min(40, round(BLOCK_MS / (1 + steps_ms[i]))))
        return Budget(seconds=left * weights[i] / sum(weights[i:]), steps=steps, warm=2, max_rounds=40)

    return budget


def verdict_words(answer: Answer) -> list[str]:
    """The answer in sentences, made from the rows alone."""
    question = answer.question
    sentences = [
        f"Question: does {question.schedulers[1]} pay against {question.schedulers[0]} in {question.engine.name} on "
        f"{question.gpu.name}, context {CONTEXT} tokens? Target: {question.target}, {question.target.says}."
    ]
    for model in question.pair:
        sentences.append(_model_sentence(answer, model.name))
    sentences += _founding_sentence(answer)
    sentences += _launch_sentences(answer)
    if answer.gains_without:
        small = question.pair[0].name
        gains = answer.gains_without[small]
        cost = deciding_cost(gains)
        if cost != "none":
            sentences.append(
                f"Why, for {small} at batch {answer.explained_batch} (computed): what matters most is {cost}. Overlap "
                f"changes the step by {_change(1 - gains['nothing'])}, and without that cost by "
                f"{_change(1 - gains[cost])}."
            )
    if answer.floor:
        rows = ", ".join(f"{c.variant} {median(c.samples_ns) / 1e3:.2f} us" for c in answer.floor)
        sentences.append(f"Noise floor: {rows}.")
    if answer.skipped:
        sentences.append("Skipped: " + "; ".join(answer.skipped) + ".")
    if answer.error:
        sentences.append(f"Ended early by an error: {answer.error}.")
    elif answer.partial:
        sentences.append("Interrupted: this is what was measured until then.")
    return sentences


def _model_sentence(answer: Answer, model: str) -> str:
    rows = sorted(answer.select("measured", model=model), key=lambda r: r["batch"])
    if not rows:
        return f"{model}: nothing {answer.question.how}."
    groups: dict[str, list[str]] = {}
    for row in rows:
        span = f"{_change(row['ratio_low'])} to {_change(row['ratio_high'])}"
        groups.setdefault(row["verdict"], []).append(f"batch {row['batch']} ({span})")
    order = ("loses", "equal", "inconclusive", "pays")
    names = {"loses": "overlap loses at", "pays": "pays at", "equal": "is equal at", "inconclusive": "is undecided at"}
    parts = [f"{names[v]} {', '.join(groups[v])}" for v in order if v in groups]
    text = "; ".join(parts)
    interval = "95 % interval" if answer.question.how == "measured" else "with the virtual host's error"
    start = "" if text.startswith("overlap") else "overlap "
    return f"{model}: {start}{text}. (Change of the step time, {interval}.)"


def _founding_sentence(answer: Answer) -> list[str]:
    """Whether the small model loses anywhere, as it does in the founding case."""
    small = answer.question.pair[0].name
    rows = answer.select("measured", model=small) + answer.select("measured launch", model=small)
    founding = small == "qwen2.5-0.5b" and answer.question.engine.name == "sglang-0.4.0.post1"
    if not founding or not rows or any(r["verdict"] == "loses" for r in rows):
        return []
    worst = max(rows, key=lambda r: float(r["ratio"]))
    launch = "" if worst["launch_us"] is None else f" ({_launch_words(worst)})"
    return [
        f"{small} does not clearly lose at any point {answer.question.how} here, unlike in SGLang issue 2558; nearest "
        f"to it is batch {worst['batch']}{launch}: {_change(worst['ratio'])} "
        f"({_change(worst['ratio_low'])} to {_change(worst['ratio_high'])})."
    ]


def _launch_words(row: Mapping[str, Any]) -> str:
    if row["launch_mode"] == "graph":
        return f"one graph replay of {row['launch_us']:g} us"
    return f"launches of {row['launch_us']:g} us"


def _launch_sentences(answer: Answer) -> list[str]:
    sentences = []
    for model in answer.question.pair:
        for row in answer.select("measured launch", model=model.name):
            sentences.append(
                f"{model.name} at batch {row['batch']} with {_launch_words(row)} ({answer.question.how}): overlap "
                f"changes the step by {_change(row['ratio'])} ({_change(row['ratio_low'])} to "
                f"{_change(row['ratio_high'])}): {row['verdict']}."
            )
        rows = answer.select("launch sweep", model=model.name)
        unsure = [r["launch_us"] for r in takewhile(lambda r: r["verdict"] != "pays", reversed(rows))]
        if not rows:
            continue
        batch, gpu_ms = rows[0]["batch"], rows[0]["modelled_gpu_step_ms"]
        if unsure:
            sentences.append(
                f"{model.name} at batch {batch} (GPU step {gpu_ms:.1f} ms, computed): overlap no longer surely pays "
                f"once a launch costs {min(unsure):g} us on the host (this engine profile: "
                f"{answer.question.engine.launch.total_ns / 1e3:g} us)."
            )
        else:
            sentences.append(
                f"{model.name} at batch {batch} (GPU step {gpu_ms:.1f} ms, computed): overlap pays up to a launch "
                f"cost of {max(r['launch_us'] for r in rows):g} us, the most tried."
            )
    return sentences


def _change(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.1f} %"
