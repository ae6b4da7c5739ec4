"""Published pairs of runs, with the feature and without it: the table that ships with the package, and one's own.

A row is one metric of one pair; `primary` marks the metric that stands for the pair. The columns are those of
`COLUMNS`; an empty cell says that the source doesn't say.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from microbench.errors import UsageError

MOST_ROWS = 100_000
KINDS = (
    "flag_toggle",
    "flag_toggle_approx",
    "flag_toggle_confounded",
    "before_after_pr",
    "deepened_overlap",
    "multi_step",
    "async_output_proc",
)
"""What differs between the two runs: the flag only, roughly so, or more than it; the code; how deep both overlap."""


@dataclass(frozen=True)
class Pair:
    """One metric with the feature (`value_on`) and without it (`value_off`), and what is known of the runs.

    `gpu` is the source's wording, `gpu_name` the card as this suite names it ("" if it has none of that kind), `gpus`
    how many. Token counts are a request's, as a mean or as the benchmark was told; `concurrency` is the most requests
    at a time, `rate` requests a second (inf: all at once). None says that the source doesn't give the figure.
    """

    id: str
    url: str
    date: str
    engine: str
    engine_version: str
    flag_on: str
    flag_off: str
    model: str
    params_b: float | None
    dtype: str
    gpu: str
    gpu_name: str
    gpus: int | None
    workload: str
    prompts: int | None
    input_tokens: float | None
    output_tokens: float | None
    concurrency: int | None
    rate: float | None
    metric: str
    unit: str
    better: str
    value_on: float
    value_off: float
    kind: str
    primary: bool
    note: str

    @property
    def ratio(self) -> float:
        """on/off."""
        return self.value_on / self.value_off

    @property
    def speedup(self) -> float | None:
        """Above 1 where the feature pays, in the metric's direction; None for a metric without one."""
        if not self.better:
            return None
        return self.ratio if self.better == "higher" else 1 / self.ratio


def _text(cell: str) -> str:
    return cell


def _one_of(*known: str) -> Callable[[str], str]:
    def read(cell: str) -> str:
        if cell not in known:
            raise ValueError(f"{cell!r} is not one of {', '.join(k or '(empty)' for k in known)}")
        return cell

    return read


def _positive(cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        raise ValueError(f"{cell!r} is no number") from None
    if not 0 < value < math.inf:
        raise ValueError(f"{cell!r} is not above 0 and finite")
    return value


def _count(cell: str) -> int:
    if not (cell.isascii() and cell.isdigit() and len(cell) < 12 and int(cell) > 0):
        raise ValueError(f"{cell!r} is no whole number above 0")
    return int(cell)


def _or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda cell: read(cell) if cell else None


def _rate(cell: str) -> float:
    return math.inf if cell == "inf" else _positive(cell)


def _required(cell: str) -> str:
    if not cell:
        raise ValueError("is empty")
    return cell


def _flag(cell: str) -> bool:
    return _one_of("0", "1")(cell) == "1"


COLUMNS: dict[str, Callable[[str], Any]] = {
    **{field.name: _text for field in fields(Pair)},
    **{name: _required for name in ("id", "engine", "metric")},
    **{name: _or_none(_positive) for name in ("params_b", "input_tokens", "output_tokens")},
    **{name: _or_none(_count) for name in ("gpus", "prompts", "concurrency")},
    "rate": _or_none(_rate),
    "better": _one_of("lower", "higher", ""),
    "value_on": _positive,
    "value_off": _positive,
    "kind": _one_of(*KINDS),
    "primary": _flag,
}
"""Every column, and how its cell is read."""


def public_pairs() -> tuple[Pair, ...]:
    """The pairs that ship with the package, each with its link."""
    text = files("microbench").joinpath("data/public_pairs.csv").read_text(encoding="utf-8")
    return _pairs("public_pairs.csv", text.splitlines(keepends=True))


def read_pairs(path: str | Path) -> tuple[Pair, ...]:
    """The pairs of a CSV file with the same columns; UsageError, one line, names the line and the column at fault."""
    path = Path(path)
    if not path.is_file():
        problem = "a folder" if path.is_dir() else "not a regular file" if path.exists() else "no such file"
        raise UsageError(f"{path}: {problem}; give a CSV file of pairs")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _pairs(str(path), file)
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text; save it as CSV in UTF-8") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def _pairs(source: str, lines: Iterable[str]) -> tuple[Pair, ...]:
    reader = csv.reader(lines, strict=True)
    try:
        header = next(reader, None)
        if not header:
            raise UsageError(f"{source}: empty; its first line must name the columns: {', '.join(COLUMNS)}")
        _check_header(source, header)
        pairs: list[Pair] = []
        for cells in reader:
            if not cells:
                continue
            if len(pairs) == MOST_ROWS:
                raise UsageError(f"{source}, line {reader.line_num}: more than {MOST_ROWS} rows; split the file")
            pairs.append(_pair(f"{source}, line {reader.line_num}", header, cells))
    except csv.Error as error:
        raise UsageError(f"{source}, line {reader.line_num}: no valid CSV: {error}") from None
    if not pairs:
        raise UsageError(f"{source}: no pair below the header")
    return tuple(pairs)


def _check_header(source: str, header: list[str]) -> None:
    for name in header:
        if name not in COLUMNS:
            raise UsageError(f"{source}, line 1: unknown column {name[:40]!r}; known: {', '.join(COLUMNS)}")
        if header.count(name) > 1:
            raise UsageError(f"{source}, line 1: column {name!r} is there twice")
    for name in COLUMNS:
        if name not in header:
            raise UsageError(f"{source}, line 1: column {name!r} is missing; an unknown figure is an empty cell")


def _pair(where: str, header: list[str], cells: list[str]) -> Pair:
    if len(cells) != len(header):
        raise UsageError(f"{where}: {len(cells)} cells for {len(header)} columns; quote a cell that has a comma")
    values = {}
    for name, cell in zip(header, cells, strict=True):
        try:
            values[name] = COLUMNS[name](cell.strip())
        except ValueError as error:
            raise UsageError(f"{where}, column {name!r}: {str(error)[:120]}") from None
    return Pair(**values)
