"""Serving replay: requests arrive, batch, stream and finish, under any scheduler, with a benchmark's metrics."""

from __future__ import annotations

from microbench.serving.replay import Replay, Replayed, run_replay
from microbench.serving.workload import Traffic

__all__ = ["Replay", "Replayed", "Traffic", "run_replay"]
