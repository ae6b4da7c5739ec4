"""Holds the schedulers and host work against the real engine's loops, on this machine, run alternately.

The reference programs run the unmodified SGLang wheels on a modelled GPU; they and the folder of wheels are arguments:

    python tests/compare_with_engine.py --programs DIR --wheels DIR --repeats 2 --markdown docs/engine-comparison.md

`sglang_loop.py` in DIR runs 0.4.0.post1 (modes normal, overlap, no-launch-done), `sglang_loop_054.py` runs 0.5.4
(normal, overlap; eager or `--graph 1`). Each prints one JSON object with `step_ms` last.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

GPU_MS = (2.5, 5, 7.5, 10, 15, 25)
REQUESTS = (100, 500)
TARGET = "sim:a100-80g"


@dataclass(frozen=True)
class Design:
    """One engine in one launch mode: the reference's modes and the schedulers they are held against."""

    engine: str
    program: str
    modes: tuple[str, ...]
    schedulers: tuple[str, ...]
    graph: bool = False


DESIGNS = (
    Design(
        "sglang-0.4.0.post1",
        "sglang_loop.py",
        ("normal", "overlap", "no-launch-done"),
        ("run_to_completion", "overlap_thread:attribute", "overlap_thread:none"),
    ),
    Design("sglang-0.5.4", "sglang_loop_054.py", ("normal", "overlap"), ("run_to_completion", "overlap_loop")),
    Design("sglang-0.5.4", "sglang_loop_054.py", ("normal", "overlap"), ("run_to_completion", "overlap_loop"), True),
)


@dataclass(frozen=True)
class Cell:
    """Step times in ms of one scheduler at one point: the engine's, ours on the real and on the virtual host."""

    design: Design
    requests: int
    gpu_ms: float
    scheduler: str
    engine_ms: float
    real_ms: float
    virtual_ms: float


def last_json(command: Sequence[str], timeout_s: float = 120) -> Any:
    """Run a command and parse the last line it prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode or not done.stdout.strip():
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def engine_ms(design: Design, mode: str, requests: int, gpu_ms: float, programs: Path, wheels: Path) -> float:
    """The engine's own step time."""
    command = [sys.executable, str(programs / design.program), "--wheels", str(wheels), "--mode", mode]
    command += ["--requests", str(requests), "--gpu-ms", str(gpu_ms)]
    return float(last_json([*command, "--graph", "1"] if design.graph else command)["step_ms"])


def our_ms(design: Design, host: str, requests: int, gpu_ms: float) -> dict[str, float]:
    """Step times of `microbench step`, by scheduler."""
    command = [sys.executable, "-m", "microbench.cli", "step", "--json", "--target", f"{host}+{TARGET}"]
    command += ["--engine", design.engine, "--scheduler", ",".join(design.schedulers)]
    command += ["--requests", str(requests), "--gpu-ms", str(gpu_ms), "--graph", str(int(design.graph))]
    command += ["--launches", "288", "--launch-gil-us", "15", "--launch-free-us", "10", "--graph-launch-us", "300"]
    return {r["scheduler"]: float(r["step_ms"]) for r in last_json(command)["results"]}


def cells(
    programs: Path,
    wheels: Path,
    *,
    repeats: int = 2,
    requests: Sequence[int] = REQUESTS,
    gpu_ms: Sequence[float] = GPU_MS,
) -> Iterator[Cell]:
    """Every cell, engine and ours in turn, the median of the repeats."""
    for design in DESIGNS:
        for n in requests:
            for g in gpu_ms:
                theirs: dict[str, list[float]] = {s: [] for s in design.schedulers}
                ours: dict[str, list[float]] = {s: [] for s in design.schedulers}
                for _ in range(repeats):
                    for mode, scheduler in zip(design.modes, design.schedulers, strict=True):
                        theirs[scheduler].append(engine_ms(design, mode, n, g, programs, wheels))
                    for scheduler, ms in our_ms(design, "real", n, g).items():
                        ours[scheduler].append(ms)
                virtual = our_ms(design, "virtual", n, g)
                for s in design.schedulers:
                    yield Cell(design, n, g, s, median(theirs[s]), median(ours[s]), virtual[s])


def markdown(found: Sequence[Cell]) -> str:
    """The tables and what they add up to."""
    lines: list[str] = []
    for design in DESIGNS:
        mine = [c for c in found if c.design == design]
        if not mine:
            continue
        launches = "one graph replay of 300 us" if design.graph else "288 eager launches of 15 + 10 us"
        lines += [
            f"### {design.engine}, {launches}",
            "",
            "| requests | GPU ms | scheduler | engine ms | real host ms | | virtual host ms | against real |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for c in mine:
            lines.append(
                f"| {c.requests} | {c.gpu_ms:g} | {c.scheduler} | {c.engine_ms:.2f} | {c.real_ms:.2f} | "
                f"{c.real_ms / c.engine_ms - 1:+.0%} | {c.virtual_ms:.2f} | {c.virtual_ms / c.real_ms - 1:+.0%} |"
            )
        lines += ["", *summary(mine), ""]
    return "\n".join(lines)


def summary(mine: Sequence[Cell]) -> list[str]:
    """Counts against the targets: step time within 15 %, same winner where the engine differs by more than 8 %."""
    close = sum(abs(c.real_ms / c.engine_ms - 1) <= 0.15 for c in mine)
    errors = sorted(abs(c.virtual_ms / c.real_ms - 1) for c in mine)
    base = {(c.requests, c.gpu_ms): c for c in mine if c.scheduler == "run_to_completion"}
    decided = agree = 0
    ratio_errors = []
    for c in mine:
        b = base[c.requests, c.gpu_ms]
        if c is not b:
            ratio_errors.append(abs(c.virtual_ms / b.virtual_ms / (c.real_ms / b.real_ms) - 1))
        theirs, ours = c.engine_ms / b.engine_ms - 1, c.real_ms / b.real_ms - 1
        if c is not b and abs(theirs) > 0.08:
            decided += 1
            agree += theirs * ours > 0
    return [
        f"- step time within 15 % of the engine's: {close} of {len(mine)} cells",
        f"- who wins agrees in {agree} of {decided} comparisons where the engine's difference exceeds 8 %",
        f"- virtual against real host, step time: median error {median(errors):.1%}, worst {errors[-1]:.1%}",
        f"- virtual against real host, ratio with overlap to without: median error {median(ratio_errors):.1%}, "
        f"worst {max(ratio_errors):.1%}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, required=True)
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--requests", type=int, nargs="+", default=REQUESTS)
    parser.add_argument("--gpu-ms", type=float, nargs="+", default=GPU_MS)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    found = []
    for cell in cells(args.programs, args.wheels, repeats=args.repeats, requests=args.requests, gpu_ms=args.gpu_ms):
        found.append(cell)
        print(
            f"{cell.design.engine} graph={int(cell.design.graph)} n={cell.requests} G={cell.gpu_ms:g} "
            f"{cell.scheduler}: engine {cell.engine_ms:.2f} real {cell.real_ms:.2f} virtual {cell.virtual_ms:.2f}",
            flush=True,
        )
    from microbench.environment import environment

    facts = environment()
    text = (
        f"Measured {datetime.now(timezone.utc):%Y-%m-%d} on {facts['cpu_model']}, {facts['logical_cores']} cores, "
        f"Python {facts['python_version']}; median of {args.repeats} alternating runs a cell.\n\n{markdown(found)}"
    )
    if args.markdown:
        args.markdown.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
