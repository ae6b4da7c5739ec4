"""`microbench plot`: figures of a results folder."""

from __future__ import annotations

from pathlib import Path

import click

from microbench.commands.common import emit, example, json_option, run_results


@click.command("plot", epilog=example("microbench plot microbench-results/20261201-120000"))
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def command(folder: Path, as_json: bool) -> None:
    """Draw the figures of a results folder again."""
    from plots import draw_all

    frame, manifest = run_results(folder)
    drawn = draw_all(frame, manifest, folder)
    emit({"target": manifest["target"], "figures": [str(p) for p in drawn]}) if as_json else click.echo(
        "\n".join(str(p) for p in drawn)
    )
