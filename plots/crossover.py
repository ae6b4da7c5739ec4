"""The crossover: how much overlap changes the step, over the decode batch and over the cost of a launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from plots.style import BLUE, GREY, ORANGE, footer, new_figure, plain_axes

MARKS = {"pays": "o", "loses": "X", "equal": "s", "inconclusive": "D"}


def draw(frame: pd.DataFrame, manifest: Mapping[str, Any]) -> Figure:
    """Left: change of step time against batch, points measured and lines computed. Right: against launch cost."""
    figure = new_figure(9.6, 4.5)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2), sharey=True)
    overlap = manifest["schedulers"][1]
    shown = frame[frame["scheduler"] == overlap]
    figure.suptitle(
        f"Change of the decode step time by overlap ({overlap}, {manifest['engine']}, {manifest['gpu']})",
        fontsize=11,
        x=0.01,
        ha="left",
    )
    for colour, model, aside in zip((ORANGE, BLUE), manifest["pair"], (0.97, 1.03), strict=True):
        mine = shown[shown["model"] == model]
        _lines(left, mine[mine["part"] == "grid"], "batch", colour)
        measured = mine[mine["part"] == "measured"]
        _points(left, measured.assign(batch=measured["batch"] * aside), "batch", colour)
        sweep = mine[mine["part"] == "launch sweep"]
        _lines(right, sweep, "launch_us", colour, label=model)
        largest = measured[(measured["launch_mode"] == "eager") & (measured["batch"] == measured["batch"].max())]
        _points(right, pd.concat([largest, mine[mine["part"] == "measured launch"]]), "launch_us", colour)
    _graph_border(left, shown[shown["part"] == "grid"])
    for axes in (left, right):
        plain_axes(axes)
        axes.axhline(0, color="black", linewidth=1)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:+.0f} %")
    left.set_xscale("log", base=2)
    ticks = [1, 4, 16, 64, 160, 500]
    left.set_xticks(ticks, [str(t) for t in ticks])
    left.set_xlabel("decode batch (requests)")
    left.set_ylabel("step time with overlap against without\nabove 0: overlap loses")
    sweep = shown[shown["part"] == "launch sweep"]
    if len(sweep):
        right.set_xlabel(f"host time of one eager launch (us), batch {sweep['batch'].max():g}")
        at = manifest.get("launch_us")
        if at:
            right.axvline(at, color=GREY, linewidth=1, linestyle=":")
            right.annotate(
                f"profile: {at:g} us",
                (at, 1),
                xycoords=("data", "axes fraction"),
                fontsize=7.5,
                color=GREY,
                xytext=(3, -9),
                textcoords="offset points",
            )
    _limit(left, frame, overlap)
    _legends(left, right, manifest["pair"])
    footer(figure, manifest)
    return figure


def _lines(axes: Axes, rows: pd.DataFrame, x: str, colour: str, label: str | None = None) -> None:
    rows = rows.sort_values(x)
    axes.plot(rows[x], (rows["ratio"] - 1) * 100, color=colour, linewidth=1.6, label=label)
    axes.fill_between(
        rows[x], (rows["ratio_low"] - 1) * 100, (rows["ratio_high"] - 1) * 100, color=colour, alpha=0.12, linewidth=0
    )


def _points(axes: Axes, rows: pd.DataFrame, x: str, colour: str) -> None:
    for _, row in rows.iterrows():
        change, low, high = ((row[c] - 1) * 100 for c in ("ratio", "ratio_low", "ratio_high"))
        axes.errorbar(
            row[x],
            change,
            yerr=[[change - low], [high - change]],
            fmt=MARKS[row["verdict"]],
            color=colour,
            markersize=7,
            capsize=3,
            markeredgecolor="white",
            zorder=3,
        )


def _graph_border(axes: Axes, rows: pd.DataFrame) -> None:
    graph = rows[rows["launch_mode"] == "graph"]["batch"]
    if len(graph) and (rows["launch_mode"] == "eager").any():
        axes.axvspan(graph.max() * 1.02, rows["batch"].max() * 1.08, color="#f3f3f3", zorder=0)
        axes.annotate(
            "CUDA graph",
            (graph.max() * 0.96, 0.96),
            xycoords=("data", "axes fraction"),
            ha="right",
            fontsize=7.5,
            color=GREY,
        )
        axes.annotate(
            "eager", (graph.max() * 1.07, 0.96), xycoords=("data", "axes fraction"), ha="left", fontsize=7.5, color=GREY
        )


def _limit(axes: Axes, frame: pd.DataFrame, overlap: str) -> None:
    """Axis limits from the medians, so that one wide interval doesn't flatten the rest; room below for the legend."""
    changes = (frame[frame["scheduler"] == overlap]["ratio"].dropna() - 1) * 100
    axes.set_ylim(min(changes.min() * 1.4, -5) - 3, max(changes.max() * 1.3, 10) + 3)


def _legends(left: Axes, right: Axes, pair: Sequence[str]) -> None:
    colours = [Line2D([], [], color=c, linewidth=2, label=m) for c, m in zip((ORANGE, BLUE), pair, strict=True)]
    band = [Line2D([], [], color=GREY, linewidth=1.6, label="computed, band: its error")]
    marks = [
        Line2D([], [], color=GREY, marker=mark, linestyle="", markersize=6, label=f"measured: {verdict}")
        for verdict, mark in MARKS.items()
    ]
    left.legend(handles=[*colours, *band, *marks], loc="lower left", ncols=2, frameon=False, fontsize=7.5)
    right.legend(handles=colours, loc="lower right", frameon=False, fontsize=7.5)
