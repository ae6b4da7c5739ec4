"""The HTML report: everything on one page, nothing from the network, nothing executed that a folder says."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas
import pytest
from click.testing import CliRunner

from microbench.cli import main
from microbench.errors import UsageError
from microbench.html import LARGEST_FIGURE_BYTES, page

HOSTILE = "<script>alert(1)</script>\"'&"


def row(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "part": "measured", "target": "real+sim:a100-80g", "engine": "sglang-0.4.0.post1", "model": "m",
        "parameters": 10, "batch": 8, "context": 2560, "launch_mode": "eager", "launch_us": 25.0,
        "modelled_gpu_step_ms": 5.0, "scheduler": "overlap_thread:attribute", "step_ms": 9.0, "ratio": 1.1,
        "ratio_low": 1.05, "ratio_high": 1.2, "verdict": "loses", "samples_ms": [9.0], "measured_host": True,
    }  # fmt: skip
    return found | changes


def manifest(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "engine": "sglang-0.4.0.post1", "gpu": "a100-80g", "target": "real+sim:a100-80g",
        "target_says": "real host (measured), modelled GPU a100-80g", "pair": ["m", "n"],
        "schedulers": ["run_to_completion", "overlap_thread:attribute"], "verdict": ["It loses."],
        "gains_without": {"m": {"nothing": -0.1, "kernel launches": 0.3}}, "noise_floor_us": {"clock read": 0.05},
        "environment": {"cpu_model": "a CPU", "affinity": [0, 1]}, "command": ["microbench", "run", "--out", "a b"],
    }  # fmt: skip
    return found | changes


class Tags(HTMLParser):
    """Every tag must be closed in order, as a browser's repair would hide a slip."""

    VOID = frozenset({"meta", "img", "br", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(text: str) -> Tags:
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    return tags


def test_the_page_holds_the_verdict_and_the_flag_and_needs_no_network(tmp_path: Path) -> None:
    (tmp_path / "crossover.png").write_bytes(b"\x89PNG")
    text = page(tmp_path, pandas.DataFrame([row()]), manifest())
    assert parsed(text).seen.count("img") == 1
    assert "It loses." in text
    assert "+10.0 %" in text
    assert "--disable-overlap-schedule" in text
    assert "microbench run --out &#x27;a b&#x27;" in text
    assert re.findall(r"(?:src|href)=\"?(?!data:)[^\"> ]+", text) == []
    assert "http" not in text


def test_what_a_folder_says_is_shown_and_never_run(tmp_path: Path) -> None:
    text = page(
        tmp_path,
        pandas.DataFrame([row(model=HOSTILE, verdict="loses")]),
        manifest(verdict=[HOSTILE], gpu=HOSTILE, command=[HOSTILE], noise_floor_us={HOSTILE: 1.0}),
    )
    assert parsed(text).seen.count("script") == 1
    assert "<script>alert" not in text


def test_a_partial_result_says_so(tmp_path: Path) -> None:
    assert "a partial result" in page(tmp_path, pandas.DataFrame([row()]), manifest(partial=True))


def test_a_huge_figure_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "costs.png").open("wb") as file:
        file.truncate(LARGEST_FIGURE_BYTES + 1)
    with pytest.raises(UsageError, match="draw it again"):
        page(tmp_path, pandas.DataFrame([row()]), manifest())


def test_a_folder_without_results_is_refused_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["report", "html", str(tmp_path)])
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "report.html").exists()
