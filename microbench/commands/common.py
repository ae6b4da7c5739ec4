"""What the commands share: options, checks and output."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from microbench.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])


def number(low: float, high: float, unit: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A click callback that refuses NaN, infinities and figures out of range."""

    def check(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
        if value is not None and not low <= value <= high:  # also refuses NaN
            shown = str(value) if len(str(value)) <= 20 else f"a number of {len(str(value))} digits"
            raise click.BadParameter(f"{shown} is not between {low:g} and {high:g} {unit}".rstrip())
        return value

    return check


def json_option(function: F) -> F:
    """Adds --json: one JSON document, last on stdout."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document, last on stdout.")(function)


def host_options(function: F) -> F:
    """Adds --host-profile and --host-speed."""
    speed = click.option(
        "--host-speed",
        type=float,
        default=1.0,
        show_default=True,
        callback=number(0.01, 100, "times"),
        help="CPU speed, in this machine's (real, slower only) or the profile's (virtual).",
    )
    profile = click.option(
        "--host-profile",
        "profile_path",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="Of the virtual host, from `calibrate --host`. [default: the one that ships]",
    )
    return profile(speed(function))


def host_profile(path: Path | None, engine: str) -> Any:
    """The profile in this file, None without one. Raises UsageError when it has no prices of the engine."""
    if path is None:
        return None
    from microbench.calibrate.host import read_profile

    profile = read_profile(path)
    if engine not in profile.prices:
        raise UsageError(f"{path}: has no prices of {engine}; it has {', '.join(profile.prices) or 'none'}")
    return profile


def emit(document: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(document, allow_nan=False))


def example(text: str) -> str:
    """An epilog with a command to copy."""
    return f"\b\nExample:\n  {text}"


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C off while files are written."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def run_results(folder: Path) -> Any:
    """The table and manifest of a folder that `microbench run` wrote, with at least one row."""
    from microbench.records import BadResults, read_results

    frame, manifest = read_results(folder)
    if manifest.get("kind") != "run":
        raise BadResults(f"{folder}: not the results of `microbench run`; give a folder that it wrote")
    if frame.empty:
        raise BadResults(f"{folder}: the run was interrupted before anything was measured; run it again")
    return frame, manifest


def any_architecture(name: str) -> Any:
    """The architecture of a known name, or of a Hugging Face `config.json`."""
    from synthetic_models import architecture, architecture_from_config

    return architecture_from_config(Path(name)) if name.endswith(".json") else architecture(name)
