"""Figures, one a file: a table in, a figure out; nothing is computed here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def draw_all(frame: pd.DataFrame, manifest: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw every figure of a results folder into it, as PNG and SVG; returns the paths."""
    from plots import costs, crossover
    from plots.style import save

    figures = {"crossover": crossover.draw, "costs": costs.draw}
    return [path for name, draw in figures.items() for path in save(draw(frame, manifest), folder, name)]
