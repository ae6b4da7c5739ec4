"""Runs the stages one after the other in processes of their own, within a time limit, keeping what each found."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from microbench.errors import Unavailable
from microbench.gpucheck.child import LOST, UNAVAILABLE
from microbench.gpucheck.plan import STAGES, Stage

GRACE_S = 15.0
"""What a stage may take over its time before it is ended: it stops by itself between two points."""
KILL_AFTER_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one stage ended. state: done, failed, lost, timed out, not run or interrupted; why: one line."""

    stage: str
    state: str
    seconds: float
    found: tuple[dict[str, Any], ...]
    why: str = ""


def run_stages(
    folder: Path,
    *,
    seconds: float,
    index: int = 0,
    dry: bool = False,
    command: tuple[str, ...] = (sys.executable, "-m", "microbench.gpucheck.child"),
    progress: Callable[[str, float], None] = lambda stage, share: None,
) -> list[Outcome]:
    """Every stage's outcome; findings are in `folder/STAGE.jsonl` as soon as they are made.

    Raises Unavailable when the device can't be opened at all. Ctrl-C ends the running stage and skips the rest.
    """
    deadline = time.monotonic() + seconds
    outcomes: list[Outcome] = []
    lost = interrupted = False
    for stage in STAGES:
        left = deadline - time.monotonic()
        if interrupted or (lost and stage.gpu) or left < 1:
            why = "interrupted" if interrupted else "the device was lost" if lost else "the time is up"
            outcomes.append(Outcome(stage=stage.name, state="not run", seconds=0.0, found=(), why=why))
            continue
        progress(stage.name, 0)
        share = stage.share / sum(s.share for s in STAGES[len(outcomes) :])
        arguments = (*command, stage.name, str(folder), f"{left * share:.1f}", str(index), "dry" if dry else "wet")
        outcome = _run(stage, folder, arguments, limit_s=min(left, left * share + GRACE_S))
        if stage.name == "open" and outcome.state == "unavailable":
            raise Unavailable(outcome.why)
        outcomes.append(outcome)
        lost = lost or outcome.state == "lost"
        interrupted = outcome.state == "interrupted"
        progress(stage.name, 1)
    return outcomes


def _run(stage: Stage, folder: Path, arguments: tuple[str, ...], *, limit_s: float) -> Outcome:
    start = time.monotonic()
    found: list[dict[str, Any]] = []
    errors: list[str] = []
    state = ""
    child = subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C is for this process, which then ends the child in order
    )
    assert child.stdout and child.stderr
    with (folder / f"{stage.name}.jsonl").open("w", encoding="utf-8") as log:
        readers = [
            threading.Thread(target=_keep, args=(child.stdout, found, log), name="findings", daemon=True),
            threading.Thread(target=errors.extend, args=(child.stderr,), name="errors", daemon=True),
        ]
        for reader in readers:
            reader.start()
        try:
            child.wait(limit_s)
        except subprocess.TimeoutExpired:
            state = "timed out"
            _end(child)
        except KeyboardInterrupt:
            state = "interrupted"
            _end(child)
        for reader in readers:
            reader.join(KILL_AFTER_S)
        child.stdout.close()
        child.stderr.close()
    last = next((line.strip() for line in reversed(errors) if line.strip()), "")
    if not state:
        codes = {0: "done", UNAVAILABLE: "unavailable", LOST: "lost"}
        state = codes.get(child.returncode, "failed")
        if child.returncode < 0:
            last = f"ended by signal {-child.returncode}" + (f": {last}" if last else "")
    elif state == "timed out":
        last = f"ended after {limit_s:.0f} s, its share of the time"
    return Outcome(
        stage=stage.name,
        state=state,
        seconds=time.monotonic() - start,
        found=tuple(found),
        why="" if state == "done" else last,
    )


def _keep(stream: TextIO, found: list[dict[str, Any]], log: TextIO) -> None:
    """Every whole line to disk at once; what is no JSON (a library's chatter) is left out."""
    for text in stream:
        try:
            document = json.loads(text)
        except ValueError:
            continue
        if isinstance(document, dict):
            log.write(text if text.endswith("\n") else text + "\n")
            log.flush()
            found.append(document)


def _end(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(KILL_AFTER_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait(KILL_AFTER_S)
