"""Prints what predictions of published pairs were worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click

from microbench.terminal import table
from microbench.validate.reports import Predicted

SAYS = "computed on virtual+sim with the shipped host profile; published figures are their authors'"


def show_pairs(found: Sequence[Predicted], score: Mapping[str, Any]) -> None:
    """The covered pairs one by one, the score, and why the others are not covered."""
    table(
        f"Speed-up by overlap: published and predicted ({SAYS})",
        ("pair", "metric", "published", "predicted", "error, points", "sign"),
        (
            (
                p.pair.id,
                p.pair.metric,
                f"{p.pair.speedup:.3f}",
                f"{p.speedup:.3f}",
                f"{p.error_points:+.1f}",
                {None: "within 2 %", True: "right", False: "wrong"}[p.sign_right],
            )
            for p in found
            if p.speedup is not None and p.error_points is not None
        ),
    )
    for line in score_lines(score):
        click.echo(line)
    why = Counter(p.why_not for p in found if p.why_not)
    click.echo("Not covered: " + "; ".join(f"{n} {reason}" for reason, n in why.most_common()) + ".")


def score_lines(score: Mapping[str, Any]) -> list[str]:
    """The score in words."""
    if not score["covered"]:
        return [f"None of {score['pairs']} pairs is covered."]
    met = score["met"]
    return [
        f"{score['covered']} of {score['pairs']} pairs are covered.",
        f"Signs of published effects above 2 %: {score['signs_right']} of {score['notable']} right "
        f"(always {score['constant']:.3f}: {score['constant_signs_right']}). {_met(met['signs'])}",
        f"Median error {score['median_error_points']:.1f} points: {_met(met['median error'])} Always "
        f"{score['constant']:.3f} has {score['constant_median_error_points']:.1f}; at most half of it: "
        + _met(met["half the constant's error"]),
    ]


def _met(value: bool | None) -> str:
    return {None: "no target.", True: "met.", False: "missed."}[value]


def pairs_document(found: Sequence[Predicted], score: Mapping[str, Any]) -> dict[str, Any]:
    """As plain JSON."""
    return {
        "target": SAYS,
        "pairs": [
            {
                "id": p.pair.id,
                "url": p.pair.url,
                "metric": p.pair.metric,
                "published_speedup": p.pair.speedup,
                "predicted_speedup": p.speedup,
                "error_points": p.error_points,
                "sign_right": p.sign_right,
                "not_covered": p.why_not or None,
            }
            for p in found
        ],
        "score": dict(score),
    }
