"""`microbench gpu-check`: protocol, calibration, costs and whole steps on one GPU, against the model of it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from microbench.commands.common import emit, example, json_option, number, uninterrupted
from microbench.errors import MicrobenchError


@click.command("gpu-check", epilog=example("microbench gpu-check --out gpu-check-results"))
@click.option("--out", type=click.Path(path_type=Path), help="Results folder. [default: gpu-check-results/TIME]")
@click.option(
    "--seconds",
    type=float,
    default=450,
    show_default=True,
    callback=number(10, 86400, "s"),
    help="For all stages.",
)
@click.option("--device", "index", type=int, default=0, show_default=True, callback=number(0, 999, ""), help="Card.")
@click.option("--dry-run", is_flag=True, help="Walk the whole plan over simulated CUDA libraries: tries the code only.")
@json_option
def command(out: Path | None, seconds: float, index: int, dry_run: bool, as_json: bool) -> None:
    """Check one GPU in under 8 minutes: does the model of it hold, and what do its calls cost?

    Each stage runs in a process of its own; what it found is on disk at once, so that a full memory, a lost device or
    the time limit costs that stage only.
    """
    from microbench.gpucheck import results
    from microbench.gpucheck.parent import run_stages
    from microbench.records import check_writable
    from microbench.terminal import staged_progress

    folder = out or Path("gpu-check-results") / datetime.now().strftime("%Y%m%d-%H%M%S")
    check_writable(folder)
    with staged_progress() as progress:
        outcomes = run_stages(folder, seconds=seconds, index=index, dry=dry_run, progress=progress)
    document = results.summary(outcomes)
    with uninterrupted():
        results.write(folder, document)
    if as_json:
        emit(document | {"folder": str(folder)})
    else:
        click.echo(results.page(document).split("\n## Calibration")[0].rstrip())
        click.echo(f"\nresults: {folder} (start with {results.PAGE})")
    wrong = [o for o in outcomes if o.state in ("failed", "lost")]
    if wrong or document["failed_checks"]:
        parts = [f"stage {o.stage} {o.state}: {o.why}" for o in wrong]
        parts += [f"check failed: {c['check']}: {c['failed']}" for c in document["failed_checks"]]
        raise MicrobenchError("; ".join(parts) + f"; what was measured is in {folder}")
