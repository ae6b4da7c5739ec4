"""`microbench costs`: the isolated costs."""

from __future__ import annotations

import click

from microbench.commands.common import emit, example, json_option
from microbench.errors import UsageError


@click.command("costs", epilog=example("microbench costs --target real+sim:h100"))
@click.option("--target", "target_name", help="[default: real+torch with a CUDA GPU, else real+sim:a100-80g]")
@click.option("--engine", "engine_name", default="sglang-0.4.0.post1", show_default=True)
@json_option
def command(target_name: str | None, engine_name: str, as_json: bool) -> None:
    """The isolated costs, one by one, below the noise floor of the instruments."""
    from microbench.costs import all_costs
    from microbench.engines import engine
    from microbench.target import default_target, parse_target
    from microbench.terminal import show_costs, staged_progress

    target = parse_target(target_name) if target_name else default_target()
    if target.host != "real":
        raise UsageError(f"target {target}: isolated costs are measured, so the host must be real")
    found, partial, profile = [], False, engine(engine_name)
    with staged_progress() as progress:
        try:
            for cost in all_costs(target, profile):
                found.append(cost)
                progress(cost.group, 1)
        except KeyboardInterrupt:
            if not found:
                raise
            partial = True
    if as_json:
        emit({"target": str(target), "partial": partial, "costs": [cost.to_json() for cost in found]})
    else:
        show_costs(target, found, partial)
