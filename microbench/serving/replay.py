"""Replays a serving benchmark on a modelled GPU: the requests come, and a scheduler runs them to their last token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from microbench.engines import EngineProfile
from microbench.engines.prices import HostProfile, shipped_profile
from microbench.errors import UsageError
from microbench.protocols import Host
from microbench.schedulers import Run, overlaps, scheduler
from microbench.serving.batching import ContinuousBatching, Limits
from microbench.serving.kv import check_fits, kv_tokens
from microbench.serving.metrics import metrics
from microbench.serving.model import ServingModel
from microbench.serving.priced import PricedServing
from microbench.serving.work import ServingWork, Timeline
from microbench.serving.workload import Client, Traffic
from microbench.speed import check_speed, engine_at, profile_at, slowed
from microbench.target import Target, open_target
from microbench.trace import Trace
from synthetic_models import Architecture

NO_END = 1 << 62


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A benchmark and what serves it. profile: the virtual host's; None: the shipped one. host_speed: see `speed`."""

    target: Target
    engine: EngineProfile
    architecture: Architecture
    traffic: Traffic
    profile: HostProfile | None = None
    host_speed: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """One scheduler's run. metrics: see `serving.metrics`; counts: what happened on the way; busy_ns: GPU time."""

    replay: Replay
    scheduler: str
    metrics: Mapping[str, Any]
    counts: Mapping[str, int]
    busy_ns: int
    timeline: Timeline

    def row(self) -> dict[str, Any]:
        """One flat JSON object with that benchmark's keys; the rest says what was modelled."""
        traffic, target = self.replay.traffic, self.replay.target
        return {
            "backend": self.replay.engine.name.partition("-")[0],
            "dataset_name": "random",
            "request_rate": traffic.request_rate,
            "max_concurrency": traffic.max_concurrency,
            **self.metrics,
            "sharegpt_output_len": None,
            "random_input_len": traffic.random_input,
            "random_output_len": traffic.random_output,
            "random_range_ratio": traffic.random_range_ratio,
            "seed": traffic.seed,
            "target": str(target),
            "modelled": True,
            "engine": self.replay.engine.name,
            "model": self.replay.architecture.name,
            "scheduler": self.scheduler,
            "host_speed": self.replay.host_speed,
            "gpu_busy_s": self.busy_ns / 1e9,
            **self.counts,
        }


def run_replay(replay: Replay, scheduler_name: str) -> Replayed:
    """Run the benchmark under one scheduler: repeatable to the ns on a virtual host, in real time on a real one.

    Raises UsageError for a workload that doesn't fit, an engine without prices, and a target without a modelled GPU.
    """
    target, engine, speed = replay.target, replay.engine, replay.host_speed
    check_speed(target, speed)
    if target.gpu is None:
        raise UsageError(f"target {target}: a replay needs a modelled GPU; use virtual+sim:GPU")
    profile = replay.profile or shipped_profile()
    if target.host == "virtual" and engine.name not in profile.prices:
        raise UsageError(f"no host prices for engine {engine.name}; there are for: {', '.join(profile.prices)}")
    if speed != 1:
        profile, engine = profile_at(profile, speed), engine_at(engine, speed)
    name, function = scheduler(scheduler_name)
    requested = replay.traffic.draw()
    capacity = kv_tokens(replay.architecture, target.gpu)
    check_fits(requested, capacity, f"{replay.architecture.name} on {target.gpu.name}")

    host, device = open_target(target, profile=profile)
    batching = ContinuousBatching(
        requested.input_lens,
        requested.produced,
        Limits(kv_tokens=capacity),
        skips_finishing=engine.skips_finishing,
    )
    client = Client(requested.arrival_ns.tolist(), replay.traffic.max_concurrency)
    overlap = overlaps(name)
    work = _work(replay, profile, host, batching, client, device.tensor_device, overlap=overlap)
    model = ServingModel(device, engine, replay.architecture, target.gpu)  # type: ignore[arg-type]
    trace = Trace(host.now_ns)
    try:
        pieces = slowed(work, speed) if target.host == "real" and speed != 1 else work
        function(Run(host, device, model, pieces, trace, device.Stream() if overlap else None), NO_END)  # type: ignore[arg-type]
    finally:
        work.close()
    return Replayed(
        replay=replay,
        scheduler=name,
        metrics=metrics(requested, work.timeline),
        counts={
            "prefill_steps": model.prefill_steps,
            "eager_decode_steps": model.eager_steps,
            "graph_decode_steps": model.graph_steps,
            "dead_rows": batching.dead_rows,
            "retractions": batching.retractions,
            "most_kv_tokens": batching.most_used,
            "kv_tokens": capacity,
        },
        busy_ns=device.busy_ns() or 0,
        timeline=work.timeline,
    )


def _work(
    replay: Replay,
    profile: HostProfile,
    host: Host,
    batching: ContinuousBatching,
    client: Client,
    device: str,
    *,
    overlap: bool,
) -> ServingWork:
    if replay.target.host == "virtual":
        return PricedServing(host, profile.prices[replay.engine.name], batching, client, overlap=overlap)
    from microbench.serving.requests import RealServing

    seed = replay.traffic.seed
    return RealServing(host, replay.engine, batching, client, overlap=overlap, device=device, seed=seed)
