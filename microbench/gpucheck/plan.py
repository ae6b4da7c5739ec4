"""What `gpu-check` runs: models, batches, and how its time is divided."""

from __future__ import annotations

from dataclasses import dataclass

from microbench.calibrate.inputs import TINY
from microbench.target import SIMULATED
from synthetic_models import Architecture, architecture

CONTEXT = 2048
MODELS = ("qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b", "qwen2.5-7b")
BATCHES = (1, 64, 320)
"""One request, a batch that replays a graph, and one past the largest graph of `ENGINE`, which is launched eagerly."""
ENGINE = "sglang-0.5.4"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One child process. seconds: what it may take of the time, as a share of all; gpu: needs the device."""

    name: str
    share: float
    gpu: bool


STAGES = (
    Stage(name="open", share=0.03, gpu=True),
    Stage(name="protocol", share=0.07, gpu=True),
    Stage(name="calibrate", share=0.2, gpu=True),
    Stage(name="costs", share=0.15, gpu=True),
    Stage(name="steps", share=0.35, gpu=True),
    Stage(name="modelled", share=0.2, gpu=False),
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Targets and points of one check.

    libraries: targets whose calls are timed side by side. rounds: of each step, however long they take (None: as many
    as the time allows).
    """

    target: str
    libraries: tuple[str, ...]
    models: tuple[Architecture, ...]
    batches: tuple[int, ...]
    context: int
    rounds: int | None = None

    @property
    def dry(self) -> bool:
        return self.target.endswith(f":{SIMULATED}")


def plan(*, dry: bool, index: int = 0) -> Plan:
    """The whole check of the card `index`, or a dry run of it over the simulated libraries."""
    if dry:
        return Plan(
            target=f"real+torch:{SIMULATED}",
            libraries=(f"real+torch:{SIMULATED}", f"real+cupy:{SIMULATED}"),
            models=(TINY,),
            batches=(1, 300),
            context=64,
            rounds=2,
        )
    which = f":{index}" if index else ""
    return Plan(
        target=f"real+torch{which}",
        libraries=(f"real+torch{which}", f"real+cupy{which}"),
        models=tuple(architecture(name) for name in MODELS),
        batches=BATCHES,
        context=CONTEXT,
    )
