"""Everything that modelled numbers are held against, in one table: for the terminal, as JSON, and for the README."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from microbench.errors import Unavailable


@dataclass(frozen=True, kw_only=True)
class Line:
    """One claim: what was held against what, the figure, the target, and whether it is met (None: no target)."""

    what: str
    against: str
    n: int
    found: str
    target: str
    met: bool | None
    command: str


def scoreboard(*, progress: Callable[[str, float], None] = lambda stage, share: None) -> tuple[list[Line], list[str]]:
    """Every line that can be computed here, and what can't be, with the reason. Takes about half a minute."""
    lines: list[Line] = []
    missing: list[str] = []
    for done, part in enumerate((_gpu, _founding, _reports)):
        progress("scoring", done / 3)
        try:
            lines += part()
        except Unavailable as why:
            missing.append(str(why))
    progress("scoring", 1)
    return lines, missing


def _gpu() -> Iterator[Line]:
    from microbench.validate import gpu as validation
    from microbench.validate.estimates import estimates
    from microbench.validate.tables import tables_folder

    folder = tables_folder(None)
    for model in validation.measured_gpus():
        steps = [one for one in estimates() if one.gpu == model.name]
        for score in validation.scores(model, folder, steps):
            if score.target_median is None:
                continue
            target = f"{score.target_median:.0%}"
            if score.target_p90 is not None:
                target += f", p90 {score.target_p90:.0%}"
            yield Line(
                what=f"{model.name}: {score.name}",
                against="AIConfigurator 0.12.0, held-out shapes" if "step" not in score.name else "its step estimates",
                n=score.n,
                found=f"median error {score.median:.1%}, p90 {score.p90:.1%}",
                target=target,
                met=score.met,
                command="microbench validate gpu",
            )


def _founding() -> Iterator[Line]:
    from microbench.serving.founding import GOAL_POINTS, founding_table

    table = founding_table()
    for row in table.rows:
        if row.met is not None:
            yield Line(
                what=f"qwen2.5-0.5b, {row.metric}: on/off",
                against=f"SGLang issue 2558 ({row.published_ratio:.2f})",
                n=1,
                found=f"{row.ratio:.2f}, {row.off_points:+.0f} points",
                target=f"{GOAL_POINTS} points",
                met=row.met,
                command="microbench validate founding",
            )
    yield Line(
        what="qwen2.5-3b: overlap on is faster",
        against="SGLang issue 2558 (sign only)",
        n=1,
        found=f"on/off {table.larger_ratio:.2f}",
        target="below 1",
        met=table.larger_ratio < 1,
        command="microbench validate founding",
    )


def _reports() -> Iterator[Line]:
    from microbench.reports.pairs import public_pairs
    from microbench.validate.reports import (
        LEAST_ADVANTAGE,
        LEAST_SIGN,
        MOST_ERROR_POINTS,
        predict_all,
        score,
    )

    pairs = public_pairs()
    found = score(predict_all(pairs), pairs)
    common: dict[str, Any] = {
        "against": f"published pairs that the models cover ({found['covered']} of {found['pairs']})",
        "command": "microbench validate reports",
    }
    if not found["covered"]:
        yield Line(what="published pairs", n=0, found="none covered", target="", met=None, **common)
        return
    ours, constant = found["median_error_points"], found["constant_median_error_points"]
    yield Line(
        what="sign of effects above 2 %",
        n=found["notable"],
        found=f"{found['signs_right']} right (a constant: {found['constant_signs_right']})",
        target=f"{LEAST_SIGN:.0%}",
        met=found["met"]["signs"],
        **common,
    )
    yield Line(
        what="error of the speed-up",
        n=found["covered"],
        found=f"median {ours:.1f} points (a constant: {constant:.1f})",
        target=f"{MOST_ERROR_POINTS:g} points, and {LEAST_ADVANTAGE:.0%} of the constant's",
        met=found["met"]["median error"] and found["met"]["half the constant's error"],
        **common,
    )


def to_json(lines: Sequence[Line], missing: Sequence[str]) -> dict[str, Any]:
    """As plain JSON."""
    return {"target": "computed, against published figures", "lines": [asdict(x) for x in lines], "missing": [*missing]}


def markdown(lines: Sequence[Line]) -> str:
    """The table of the README."""
    head = "| what | held against | n | found | target | |\n|---|---|---|---|---|---|\n"
    return head + "".join(
        f"| {x.what} | {x.against} | {x.n} | {x.found} | {x.target} | {words(x.met)} |\n" for x in lines
    )


def words(met: bool | None) -> str:
    """Whether a target is met."""
    return {None: "", True: "met", False: "**missed**"}[met]
