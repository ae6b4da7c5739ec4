"""`microbench report`: a results folder as a page, and published results of serving benchmarks."""

from __future__ import annotations

from pathlib import Path

import click

from microbench.commands.common import emit, example, json_option, run_results
from microbench.errors import UsageError


def _runs(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    numbers = [part.strip() for part in value.split(",")]
    if len(numbers) > 2 or not all(n.isascii() and n.isdigit() and len(n) < 7 for n in numbers):
        raise click.BadParameter(f"{value[:20]!r} is neither a run such as 2 nor two such as 1,3")
    return int(numbers[0]), int(numbers[-1])


@click.group(
    "report",
    invoke_without_command=True,
    epilog=example("microbench report compare overlap-on.txt overlap-off.txt"),
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """A results folder as a page; what bench_serving, vllm bench serve, trtllm-bench and LMDeploy printed, to read."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        ctx.exit(2)


@command.command("read", epilog=example("microbench report read results/*.txt bench.jsonl"))
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@json_option
def read(files: tuple[Path, ...], as_json: bool) -> None:
    """Read printed result blocks and JSON lines to one table.

    Rows that aren't known are shown as they are; blocks that are cut off are marked.
    """
    from microbench.reports import read_reports
    from microbench.reports.show import show_readings

    readings = [read_reports(file) for file in files]
    if not any(reading.reports for reading in readings):
        raise UsageError("; ".join(f"{reading.source}: {reading.problems[0]}" for reading in readings))
    if as_json:
        emit(
            {
                "target": "published",
                "files": [
                    {
                        "source": reading.source,
                        "problems": list(reading.problems),
                        "runs": [report.to_json() for report in reading.reports],
                    }
                    for reading in readings
                ],
            }
        )
    else:
        show_readings(readings)


@command.command("compare", epilog=example("microbench report compare --run 1,2 results.jsonl results.jsonl"))
@click.argument("on", type=click.Path(path_type=Path))
@click.argument("off", type=click.Path(path_type=Path))
@click.option("--run", "runs", callback=_runs, help="Which run: 2 of both files, or 1,3 of ON and OFF.")
@json_option
def compare_files(on: Path, off: Path, runs: tuple[int, int] | None, as_json: bool) -> None:
    """Ratios on/off of the metrics that both files have.

    ON is the run with the feature, OFF the one without; both may be in one file, with --run 1,2.
    """
    from microbench.reports import compare, read_reports, select_run
    from microbench.reports.show import show_comparison

    run_on, run_off = runs or (None, None)
    found = compare(select_run(read_reports(on), run_on), select_run(read_reports(off), run_off))
    if as_json:
        emit(found.to_json())
    else:
        show_comparison(found)


@command.command("html", epilog=example("microbench report html microbench-results/20261201-120000"))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="[default: report.html in the folder]")
@json_option
def html(folder: Path, out: Path | None, as_json: bool) -> None:
    """One self-contained page of a results folder: verdict, figures, tables, thresholds, machine."""
    from microbench.html import page
    from microbench.records import write_bytes_atomic

    frame, manifest = run_results(folder)
    path = out or folder / "report.html"
    write_bytes_atomic(path, page(folder, frame, manifest).encode())
    if as_json:
        emit({"target": manifest["target"], "file": str(path)})
    else:
        click.echo(str(path))
