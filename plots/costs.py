"""Where the host's time of a step goes, and which cost decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.style import BLUE, GREY, ORANGE, SEGMENT_COLOURS, footer, new_figure, plain_axes


def draw(frame: pd.DataFrame, manifest: Mapping[str, Any]) -> Figure:
    """Left: measured host work of a step without overlap beside its GPU time. Right: gain with one cost removed."""
    figure = new_figure(9.6, 4.2)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    base = manifest["schedulers"][0]
    rows = frame[(frame["part"] == "measured") & (frame["scheduler"] == base)].sort_values(
        ["batch", "parameters"], ascending=False
    )
    figure.suptitle(
        f"What one decode step costs ({manifest['engine']}, {manifest['gpu']})", fontsize=11, x=0.01, ha="left"
    )
    _work(left, rows, base)
    _removed(right, manifest)
    footer(figure, manifest)
    return figure


def _work(axes: Axes, rows: pd.DataFrame, base: str) -> None:
    names = [
        f"{r['model'].removeprefix('qwen2.5-')}, batch {r['batch']:g} ({r['launch_mode']})" for _, r in rows.iterrows()
    ]
    start = [0.0] * len(rows)
    for segment, colour in SEGMENT_COLOURS.items():
        width = rows[f"{segment}_ms"].tolist()
        axes.barh(names, width, left=start, color=colour, label=f"host: {segment}", height=0.62)
        start = [s + w for s, w in zip(start, width, strict=True)]
    axes.plot(rows["modelled_gpu_step_ms"], names, "D", color="black", markersize=5, label="GPU step (modelled)")
    axes.set_xlabel(f"ms a step, measured under {base}")
    axes.tick_params(axis="y", labelsize=8)
    axes.legend(frameon=False, fontsize=7.5, loc="upper right")
    axes.margins(y=0.02)
    plain_axes(axes)


def _removed(axes: Axes, manifest: Mapping[str, Any]) -> None:
    gains: Mapping[str, Mapping[str, float]] = manifest["gains_without"]
    plain_axes(axes)
    if not gains:
        axes.annotate("not computed: interrupted", (0.5, 0.5), xycoords="axes fraction", ha="center", color=GREY)
        return
    costs = list(next(iter(gains.values())))
    height = 0.8 / len(gains)
    for i, (colour, (model, gain)) in enumerate(zip((ORANGE, BLUE), gains.items(), strict=False)):
        at = [len(costs) - 1 - j + 0.4 - height * (i + 0.5) for j in range(len(costs))]
        axes.barh(at, [-gain[c] * 100 for c in costs], height=height * 0.92, color=colour, label=model)
    axes.axvline(0, color="black", linewidth=1)
    labels = ["as it is", *(f"without {c}" for c in costs[1:])]
    axes.set_yticks([len(costs) - 1 - j for j in range(len(costs))], labels, fontsize=8)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:+.0f} %")
    axes.set_xlabel(f"change by overlap, batch {manifest['explained_batch']}, computed")
    axes.legend(frameon=False, fontsize=7.5, loc="lower left", bbox_to_anchor=(-0.6, 1.0), ncols=2)
