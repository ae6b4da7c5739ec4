"""Tables, verdicts and progress on a terminal; computes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from microbench.trace import SEGMENTS

if TYPE_CHECKING:
    from microbench.answer import Answer
    from microbench.costs.cost import Cost
    from microbench.target import Target

WIDE = 160
"""Columns where the output is no terminal."""


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; the first column is text, the others are figures."""
    shown = Table(title=title, title_justify="left", header_style="bold")
    for i, column in enumerate(columns):
        shown.add_column(column, justify="left" if i == 0 else "right", no_wrap=i == 0)
    for row in rows:
        shown.add_row(*row)
    console = Console()
    (console if console.is_terminal else Console(width=WIDE)).print(shown)


@contextmanager
def staged_progress() -> Iterator[Callable[[str, float], None]]:
    """`progress(stage, share)`: a bar a stage, on stderr, gone at the end."""
    bar = Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    tasks: dict[str, TaskID] = {}

    def progress(stage: str, share: float) -> None:
        if stage not in tasks:
            tasks[stage] = bar.add_task(stage, total=1)
        bar.update(tasks[stage], completed=share)

    with bar:
        yield progress


def show_answer(answer: Answer) -> None:
    """The measured points, then the verdict in words."""
    from microbench.answer import verdict_words

    target, measured = answer.question.target, answer.question.schedulers[:2]
    rows = []
    for row in sorted(answer.select("measured"), key=lambda r: (r["parameters"], r["batch"])):
        point = {"model": row["model"], "batch": row["batch"]}
        steps = [answer.select("measured", name, **point)[0]["step_ms"] for name in measured]
        rows.append(
            (
                row["model"],
                str(row["batch"]),
                row["launch_mode"],
                f"{row['modelled_gpu_step_ms']:.2f}",
                *(f"{ms:.2f}" for ms in steps),
                f"{(row['ratio'] - 1) * 100:+.1f} %",
                f"{(row['ratio_low'] - 1) * 100:+.1f} to {(row['ratio_high'] - 1) * 100:+.1f}",
                row["verdict"],
            )
        )
    table(
        f"{answer.question.how.capitalize()}: {target} ({target.says})",
        ("model", "batch", "launch", "GPU ms (model)", *(f"{s} ms" for s in measured), "change", "95 %", "verdict"),
        rows,
    )
    for sentence in verdict_words(answer):
        click.echo(sentence)


def show_steps(title: str, results: Sequence[Mapping[str, Any]], interrupted: bool) -> None:
    """Step times and host segments, a row a scheduler."""
    table(
        title,
        ("scheduler", "step", "GPU busy", *SEGMENTS),
        (
            (
                str(r["scheduler"]),
                f"{r['step_ms']:.2f}",
                "-" if r["gpu_busy_ms"] is None else f"{r['gpu_busy_ms']:.2f}",
                *(f"{r['host_ms'][s]:.2f}" for s in SEGMENTS),
            )
            for r in results
        ),
    )
    if interrupted:
        click.echo("Interrupted: these are the rounds that were measured.")
    click.echo("Host segments include waiting for the GIL. Launch and process run on two threads in overlap_thread.")


def show_costs(target: Target, found: Sequence[Cost], partial: bool) -> None:
    """A table for each group of costs, the noise floor first."""

    def us(value: float | None) -> str:
        return "n too small" if value is None else f"{value:.2f}"

    rows = [cost.to_json() for cost in found]
    for group in dict.fromkeys(row["group"] for row in rows):
        table(
            f"{group} (us; {target})",
            ("variant", "median", "95 %", "p90", "p99", "n", "clock", "facts"),
            (
                (
                    r["variant"],
                    us(r["median_us"]),
                    " to ".join(us(end) for end in r["interval_us"]),
                    us(r["p90_us"]),
                    us(r["p99_us"]),
                    str(r["n"]),
                    r["clock"],
                    ", ".join([*r["marks"], *(f"{k} {v:g}" for k, v in r["facts"].items())]),
                )
                for r in rows
                if r["group"] == group
            ),
        )
    if partial:
        click.echo("Interrupted: these are the costs that were measured.")


def show_advice(what: str, found: Mapping[str, Any]) -> None:
    """The verdict and what it rests on."""
    low, high = found["interval"]
    click.echo(
        f"{found['verdict']}: overlap changes {what} by {-100 * found['gain']:+.1f} % a step "
        f"({-100 * high:+.1f} to {-100 * low:+.1f})"
    )
    for name, ms in found["step_ms"].items():
        click.echo(f"  {name:<26} {ms:8.2f} ms a step")
    click.echo(f"  {'GPU work':<26} {found['gpu_step_ms']:8.2f} ms a step (modelled)")
    click.echo(f"deciding cost: {found['deciding_cost']}")
    click.echo(f"flag: {found['flag'] or 'none; the default (overlap on) stands'}")
    click.echo(f"target: {found['target']}: {found['target_says']}")
    click.echo(f"deciding cost computed on {found['explained_on']}, host profile: {found['host_profile']}")


def show_thresholds(document: Mapping[str, Any]) -> None:
    """Where overlap pays, a row a batch."""
    for part in dict.fromkeys(e["part"] for e in document["entries"]):
        entries = [e for e in document["entries"] if e["part"] == part]
        table(
            f"Where overlap pays: {entries[0]['target']}, {entries[0]['engine']}, {entries[0]['scheduler']}",
            ("batch", "launch", "us", "pays above", "and surely from", "GPU step ms (model)", "models that lose"),
            (
                (
                    str(e["batch"]),
                    e["launch_mode"],
                    "-" if e["launch_us"] is None else f"{e['launch_us']:g}",
                    _size(e["model_parameters"]["above"], e["state"]),
                    _size(e["model_parameters"]["at_most"], e["state"]),
                    " to ".join("-" if ms is None else f"{ms:.2f}" for ms in e["modelled_gpu_step_ms"].values()),
                    ", ".join(r["model"] for r in e["rungs"] if r["verdict"] == "loses") or "none",
                )
                for e in entries
            ),
        )


def _size(parameters: float | None, state: str) -> str:
    return state.replace("_", " ") if parameters is None else f"{parameters / 1e9:.2f}B"
