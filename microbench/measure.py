"""Interleaved measurement: what is compared runs in turn in one process, and pairs are compared, not absolutes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from microbench.case import Case, Instance, instances
from microbench.engines.prices import HostProfile
from microbench.stats import MIN_PAIRS, Ratio, Verdict, median, narrow_enough, paired_ratio, verdict
from microbench.trace import Window

MODEL_ERROR = 0.085
"""Half-width of the interval put around a ratio that the virtual host computed: the 90th percentile of its error of
on/off ratios against the real host over the cells of docs/engine-comparison.md."""
COMPUTED_BLOCKS = 3
FIRST_LOOK = 9
"""From 9 pairs on the interval leaves out the extreme pair at each end, so that one hiccup doesn't decide its width."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long to sample: until every ratio is narrow enough, or the time or the rounds are used up.

    Narrow enough: half the interval is at most `half_width`, or a quarter of the change itself. Too few pairs for a
    verdict may take up to three times the time. It is looked at after 9, 18, 36, ... rounds only, because every look
    is a chance to stop on a fluke. exactly: this many rounds instead, whatever they show.
    Each round runs every scheduler once, for `steps` measured steps after `warm`; the order turns round each time.
    """

    seconds: float = 10.0
    steps: int = 12
    warm: int = 3
    max_rounds: int = 40
    half_width: float = 0.01
    exactly: int | None = None


@dataclass(frozen=True)
class Sampled:
    """The blocks of each scheduler, in the order they ran; block i of each belongs to the same round.

    computed: by the virtual host. interrupted: Ctrl-C ended it early.
    """

    blocks: Mapping[str, Sequence[Window]]
    computed: bool
    interrupted: bool = False

    def step_ns(self, name: str) -> float:
        """Median over the blocks of the mean step time."""
        return median([b.step_ns for b in self.blocks[name]])

    def busy_ns(self, name: str) -> float | None:
        """Median GPU time a step, None where only the GPU knows."""
        busy = [b.busy_ns for b in self.blocks[name] if b.busy_ns is not None]
        return median(busy) if busy else None

    def host_ns(self, name: str) -> dict[str, float]:
        """Median over the blocks of each host segment's time a step."""
        blocks = self.blocks[name]
        return {segment: median([b.host_ns[segment] for b in blocks]) for segment in blocks[0].host_ns}

    def ratio(self, base: str, other: str) -> Ratio:
        """Step time of `other` over `base`. Computed steps get the virtual host's own error as interval."""
        pair = paired_ratio([b.step_ns for b in self.blocks[base]], [b.step_ns for b in self.blocks[other]])
        if not self.computed:
            return pair
        return Ratio(pair.value, pair.value * (1 - MODEL_ERROR), pair.value * (1 + MODEL_ERROR), pair.n)

    def verdict(self, base: str, other: str) -> Verdict:
        """Whether `other` pays against `base`."""
        ratio = self.ratio(base, other)
        return verdict(ratio.interval) if self.computed else verdict(ratio)


def sample(
    case: Case,
    schedulers: Sequence[str],
    *,
    budget: Budget | None = None,
    profile: HostProfile | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> Sampled:
    """Measure the schedulers interleaved; the first is the base whose ratios decide when to stop.

    `progress` gets the share of the time budget used. KeyboardInterrupt after the first full round ends sampling
    early, keeps what was measured and marks it; before it, it is raised.
    """
    budget = budget or Budget()
    with instances(case, schedulers, profile) as opened:
        if case.target.host == "virtual":
            return _compute(opened, budget)
        return _interleave(opened, budget, progress)


def _compute(opened: Sequence[Instance], budget: Budget) -> Sampled:
    """A few blocks each: wake-up times are drawn, so a convoy takes another course in every one."""
    blocks = budget.exactly or COMPUTED_BLOCKS
    return Sampled(
        {i.name: [i.block(budget.steps, warm=budget.warm) for _ in range(blocks)] for i in opened}, computed=True
    )


def _interleave(opened: Sequence[Instance], budget: Budget, progress: Callable[[float], None]) -> Sampled:
    blocks: dict[str, list[Window]] = {instance.name: [] for instance in opened}
    base = opened[0].name
    sampled = Sampled(blocks, computed=False)
    for instance in opened:
        instance.block(2, warm=budget.warm)
    start = time.monotonic()
    for done in range(budget.exactly or budget.max_rounds):
        order = opened if done % 2 == 0 else opened[::-1]
        round_: dict[str, Window] = {}
        try:
            for instance in order:
                round_[instance.name] = instance.block(budget.steps, warm=budget.warm)
        except KeyboardInterrupt:
            if not blocks[base]:
                raise
            return Sampled(blocks, computed=False, interrupted=True)
        for name, window in round_.items():
            blocks[name].append(window)
        used = (time.monotonic() - start) / budget.seconds
        progress(min(used, 1.0))
        if budget.exactly:
            continue
        ratios = [sampled.ratio(base, instance.name) for instance in opened[1:]]
        if used >= (1 if done + 1 >= MIN_PAIRS else 3):
            break
        look = done + 1 in (FIRST_LOOK << i for i in range(10))
        if (
            look
            and ratios
            and all(narrow_enough(r, half_width=max(budget.half_width, abs(r.gain) / 4)) for r in ratios)
        ):
            break
    return sampled
