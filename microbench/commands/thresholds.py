"""`microbench thresholds`: rules of a results folder."""

from __future__ import annotations

from pathlib import Path

import click

from microbench.commands.common import emit, example, json_option, run_results


@click.command("thresholds", epilog=example("microbench thresholds microbench-results/20261201-120000"))
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def command(folder: Path, as_json: bool) -> None:
    """From which model size and GPU step time overlap pays, by batch, and the engine flag that follows."""
    from microbench.report import frame_thresholds
    from microbench.terminal import show_thresholds

    frame, manifest = run_results(folder)
    document = frame_thresholds(frame, manifest)
    if as_json:
        emit(document)
    else:
        show_thresholds(document)
