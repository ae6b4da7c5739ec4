"""`microbench compare`: two results against each other, for a person or as a gate in CI."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from microbench.commands.common import emit, example, json_option
from microbench.errors import UsageError

REGRESSION, UNDECIDED = 1, 3


@click.command("compare", epilog=example("microbench compare results/monday results/today --fail-on loses:3%"))
@click.argument("a", type=click.Path(path_type=Path, exists=True))
@click.argument("b", type=click.Path(path_type=Path, exists=True))
@click.option("--fail-on", default="loses:2%", show_default=True, help="Exit with 1 on a row surely slower by more.")
@click.option("--strict", is_flag=True, help="Exit with 3 when a row is inconclusive and none is slower.")
@click.option("--unlike", "allow_unlike", is_flag=True, help="Compare results of unlike machines all the same.")
@json_option
def command(a: Path, b: Path, fail_on: str, strict: bool, allow_unlike: bool, as_json: bool) -> None:
    """B against A, row by row: faster, slower, equal or inconclusive, with a 95 % interval.

    A and B are results folders, or files of pytest-benchmark. Of a folder, step times are compared relative to the base
    scheduler of the same round: a machine that was slower as a whole is no regression.
    """
    from microbench.gate import Change, compare, failing, read_side, unlike
    from microbench.terminal import table

    tolerance = failing(fail_on)
    sides = read_side(a), read_side(b)
    differ = unlike(*sides)
    if differ and not allow_unlike:
        raise UsageError(f"{a} and {b} are of unlike machines ({'; '.join(differ)}); to compare them, say --unlike")
    rows = compare(*sides, tolerance=tolerance)
    counts = Counter(str(r.change) for r in rows)
    code = REGRESSION if counts[Change.SLOWER] else UNDECIDED if strict and counts[Change.INCONCLUSIVE] else 0
    if as_json:
        emit(
            {
                "unit": sides[0].unit,
                "tolerance": tolerance,
                "unlike": differ,
                "rows": [
                    {
                        "row": r.row,
                        "a": r.a,
                        "b": r.b,
                        "ratio": r.ratio,
                        "interval": [r.interval.low, r.interval.high],
                        "samples": list(r.samples),
                        "change": str(r.change),
                    }
                    for r in rows
                ],
                "counts": dict(counts),
                "exit_code": code,
            }
        )
    else:
        table(
            f"{b} against {a} ({sides[0].unit}; equal: within {tolerance:.1%})",
            ("row", "A", "B", "change", "95 %", "n", "verdict"),
            (
                (
                    r.row,
                    f"{r.a:.4g}",
                    f"{r.b:.4g}",
                    f"{r.ratio - 1:+.1%}",
                    f"{r.interval.low - 1:+.1%} to {r.interval.high - 1:+.1%}",
                    f"{r.samples[0]}, {r.samples[1]}",
                    str(r.change),
                )
                for r in rows
            ),
        )
        for line in differ:
            click.echo(f"unlike machines: {line}")
        click.echo(", ".join(f"{n} {change}" for change, n in counts.items()))
    raise click.exceptions.Exit(code)
