"""One look for all figures: colour-blind safe (Okabe and Ito), legible at README width, a footer with the facts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PINK, SKY, YELLOW, GREY = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#E69F00",
    "#666666",
)
SEGMENT_COLOURS = {"schedule": GREEN, "launch": BLUE, "process": YELLOW, "stream": ORANGE}


def new_figure(width: float, height: float) -> Figure:
    """A figure of width x height inches on its own canvas; no global state."""
    figure = Figure(figsize=(width, height), layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    return figure


def plain_axes(axes: Axes) -> None:
    """Light grid, no box."""
    axes.grid(True, color="#e4e4e4", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def footer(figure: Figure, manifest: Mapping[str, Any]) -> None:
    """Machine, software and what was measured and what computed."""
    facts = manifest["environment"]
    partial = "  INTERRUPTED: partial result" if manifest.get("partial") else ""
    text = (
        f"points: {manifest['target']} ({manifest['target_says']});  lines: {manifest['grid_target']} (computed)\n"
        f"{facts.get('cpu_model')}, {facts.get('logical_cores')} cores, Python {facts.get('python_version')}, "
        f"torch {facts.get('torch_version')}, {str(facts.get('started_utc'))[:10]}{partial}"
    )
    figure.supxlabel(text, fontsize=7, color=GREY, x=0.01, ha="left")


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write PNG and SVG atomically; returns the paths."""
    from io import BytesIO

    from microbench.records import write_bytes_atomic

    written = []
    for suffix in ("png", "svg"):
        buffer = BytesIO()
        figure.savefig(buffer, format=suffix, metadata={"Date": None} if suffix == "svg" else None)
        path = folder / f"{name}.{suffix}"
        write_bytes_atomic(path, buffer.getvalue())
        written.append(path)
    return written
