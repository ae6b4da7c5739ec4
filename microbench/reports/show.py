"""Reports and comparisons on a terminal; computes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from microbench.reports.compare import Comparison
from microbench.reports.report import Reading, Report
from microbench.terminal import WIDE

SIDE_BY_SIDE = 4
"""Runs that are shown with all of their metrics, a column each; more get a row each."""
LONGEST_NAME = 30
SHOWN = {
    "duration": "s",
    "request_throughput": "req/s",
    "output_throughput": "out tok/s",
    "mean_ttft_ms": "mean TTFT",
    "median_tpot_ms": "med. TPOT",
    "median_itl_ms": "med. ITL",
    "p99_itl_ms": "P99 ITL",
}
"""Metrics of the table with a row a run, and their headings; times of tokens in ms."""


def show_readings(readings: Sequence[Reading]) -> None:
    """All runs in one table, then what is to be said of each."""
    reports = [report for reading in readings for report in reading.reports]
    names = {id(report): _name(report, reading) for reading in readings for report in reading.reports}
    if len(reports) <= SIDE_BY_SIDE:
        _side_by_side(reports, names)
    else:
        _row_each(reports, names)
    for report in reports:
        _notes(names[id(report)], report)
    for reading in readings:
        for problem in reading.problems:
            click.echo(f"{_printable(reading.source)}: {problem}")


def show_comparison(found: Comparison) -> None:
    """A row a metric."""
    click.echo(f"on:  {_printable(found.on.source)} run {found.on.run}, {found.on.tool}")
    click.echo(f"off: {_printable(found.off.source)} run {found.off.run}, {found.off.tool}")
    _table(
        "Published results, with and without",
        ("metric", "unit", "on", "off", "on/off", "change", "on is"),
        [
            (
                c.metric,
                c.unit,
                _figure(c.on),
                _figure(c.off),
                "-" if c.ratio is None else f"{c.ratio:.4f}",
                "-" if c.ratio is None else f"{(c.ratio - 1) * 100:+.1f} %",
                c.verdict or "-",
            )
            for c in found.changes
        ],
    )
    for side, names in (("on", found.only_on), ("off", found.only_off)):
        if names:
            click.echo(f"only {side} has: {', '.join(names)}")
    for remark in found.remarks:
        click.echo(f"note: {_printable(remark)}")


def _side_by_side(reports: Sequence[Report], names: dict[int, str]) -> None:
    metrics = dict.fromkeys(name for report in reports for name in report.metrics)
    units = {name: unit for report in reports for name, unit in report.units.items()}
    settings = dict.fromkeys(name for report in reports for name in report.settings)
    _table(
        "Published results",
        ("metric", "unit", *(names[id(report)] for report in reports)),
        [
            ("tool", "", *(f"{r.tool}, cut off" if r.truncated else r.tool for r in reports)),
            *((name, "", *(_short(r.settings.get(name, "-")) for r in reports)) for name in settings),
            *((name, units[name], *(_figure(r.metrics.get(name)) for r in reports)) for name in metrics),
        ],
    )


def _row_each(reports: Sequence[Report], names: dict[int, str]) -> None:
    _table(
        "Published results (--json has all metrics)",
        ("run", "tool", *SHOWN.values(), "metrics", "unknown", "cut off"),
        [
            (
                names[id(r)],
                r.tool,
                *(_figure(r.metrics.get(name)) for name in SHOWN),
                str(len(r.metrics)),
                str(len(r.unknown) + r.dropped),
                "yes" if r.truncated else "",
            )
            for r in reports
        ],
    )


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table whose figures are never cut: where the room is short, the first column folds."""
    shown = Table(title=Text(title), title_justify="left", header_style="bold")
    for i, column in enumerate(columns):
        shown.add_column(Text(column), justify="right" if i else "left", no_wrap=i > 0, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(cell) for cell in row))
    console = Console()
    (console if console.is_terminal else Console(width=WIDE)).print(shown)


def _notes(name: str, report: Report) -> None:
    for problem in report.problems:
        click.echo(f"{name}: {_printable(problem)}")
    for row in report.unknown:
        click.echo(f"{name}: unknown row: {_printable(row)}")
    if report.dropped:
        click.echo(f"{name}: {report.dropped} more unknown rows")


def _name(report: Report, reading: Reading) -> str:
    name = _short(report.source.rpartition("/")[2])
    return name if len(reading.reports) == 1 else f"{name} run {report.run}"


def _short(text: str) -> str:
    text, half = _printable(text), LONGEST_NAME // 2
    return text if len(text) <= LONGEST_NAME else f"{text[: half - 1]}…{text[-half:]}"


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.8g}"


def _printable(text: str) -> str:
    return click.format_filename(text)
