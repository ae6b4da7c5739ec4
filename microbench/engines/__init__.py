"""Engines: what one engine version does on the host each step, as facts, as real Python work, and as prices."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from microbench.engines.profile import ENGINES, EngineProfile, engine
from microbench.engines.workload import Workload

if TYPE_CHECKING:
    from microbench.engines.requests import RequestWork

WORK_MODULES = {
    "sglang-0.4.0.post1": "sglang_0_4_0",
    "sglang-0.4.9": "sglang_0_4_9",
    "sglang-0.5.4": "sglang_0_5_4",
    "sglang-0.5.15": "sglang_0_5_15",
    "sglang-0.5.23": "sglang_0_5_23",
    "vllm-v1": "vllm_v1",
    "tensorrt-llm": "tensorrt_llm",
    "mini-sglang": "mini_sglang",
    "minimal": "minimal",
}


def real_work(profile: EngineProfile, workload: Workload, *, overlap: bool, device: str = "cpu") -> RequestWork:
    """The engine's real Python work on its own requests, tensors on `device`. Imports torch; close it after use."""
    module = import_module(f"microbench.engines.{WORK_MODULES[profile.name]}")
    work: RequestWork = module.Work(workload, overlap=overlap, device=device)
    return work


__all__ = ["ENGINES", "EngineProfile", "Workload", "engine", "real_work"]
