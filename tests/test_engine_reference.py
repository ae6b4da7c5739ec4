"""One cell of the comparison with the real engine's loops, where the reference programs and wheels are at hand."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

PROGRAMS, WHEELS = os.environ.get("OVERLAP_ENGINE_PROGRAMS"), os.environ.get("OVERLAP_ENGINE_WHEELS")


def load_script():
    spec = importlib.util.spec_from_file_location(
        "compare_with_engine", Path(__file__).parent / "compare_with_engine.py"
    )
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(
    not (PROGRAMS and WHEELS), reason="OVERLAP_ENGINE_PROGRAMS and OVERLAP_ENGINE_WHEELS name no reference programs"
)
def test_step_times_are_near_the_engines():
    script = load_script()
    found = list(script.cells(Path(PROGRAMS), Path(WHEELS), repeats=1, requests=(100,), gpu_ms=(10,)))
    # One repeat on a noisy machine: the full comparison is the script's, this shows that it still holds together.
    near = [abs(c.real_ms / c.engine_ms - 1) < 0.3 for c in found]
    assert sum(near) >= len(near) - 1


def test_the_summary_counts_cells_and_winners():
    script = load_script()
    design = script.DESIGNS[0]
    found = [
        script.Cell(design, 100, 5, "run_to_completion", 10.0, 10.5, 10.0),
        script.Cell(design, 100, 5, "overlap_thread:attribute", 12.0, 11.0, 11.0),
        script.Cell(design, 100, 5, "overlap_thread:none", 12.0, 9.9, 9.9),
    ]
    lines = script.summary(found)
    assert lines[0].endswith("2 of 3 cells")
    assert "agrees in 1 of 2" in lines[1]
    assert "median error 0.0%, worst 4.8%" in lines[2]
