"""`microbench report`: published results of serving benchmarks."""

from __future__ import annotations

from pathlib import Path

import click

from microbench.commands.common import emit, example, json_option
from microbench.errors import UsageError


@click.group("report", epilog=example("microbench report compare overlap-on.txt overlap-off.txt"))
def command() -> None:
    """Read and compare what serving benchmarks printed: bench_serving, vllm bench serve, trtllm-bench, LMDeploy."""


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


@command.command("compare", epilog=example("microbench report compare --run 2 overlap-on.jsonl overlap-off.jsonl"))
@click.argument("on", type=click.Path(path_type=Path))
@click.argument("off", type=click.Path(path_type=Path))
@click.option("--run", type=click.IntRange(min=1), help="Which run of files that have several; 1 is the first.")
@json_option
def compare_files(on: Path, off: Path, run: int | None, as_json: bool) -> None:
    """Ratios on/off of the metrics that both files have.

    ON is the run with the feature, OFF the one without. --run applies to files with more than one run.
    """
    from microbench.reports import compare, read_reports, select_run
    from microbench.reports.show import show_comparison

    readings = [read_reports(file) for file in (on, off)]
    chosen = [select_run(reading, run if len(reading.reports) > 1 else None) for reading in readings]
    found = compare(*chosen)
    if as_json:
        emit(found.to_json())
    else:
        show_comparison(found)
