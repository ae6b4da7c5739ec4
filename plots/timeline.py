"""Two steps of each scheduler side by side: what every thread and stream did, on one scale of time."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from microbench.timeline import Timeline
from plots.style import GREY, SEGMENT_COLOURS, SKY, new_figure

GPU, WAIT, GIL = SKY, "#e0e0e0", "#B03060"
STEPS = 2


def draw(timelines: Sequence[Timeline], title: str) -> Figure:
    """One panel a scheduler; grey is waiting, red is waiting for the GIL, vertical lines are ends of steps."""
    figure = new_figure(9.6, 1.0 + 1.5 * len(timelines))
    panels = figure.subplots(len(timelines), 1, sharex=True, squeeze=False)[:, 0]
    for axes, timeline in zip(panels, timelines, strict=True):
        start, end = timeline.steps[0], timeline.steps[min(STEPS, len(timeline.steps) - 1)]
        shown = [s for s in timeline.slices if s.end_ns > start and s.start_ns < end]
        tracks = sorted({s.track for s in shown}, key=lambda t: (t.startswith("GPU"), t))
        for s in shown:
            a, b = max(s.start_ns, start), min(s.end_ns, end)
            thin = s.kind == "gil"
            axes.barh(
                tracks.index(s.track) + (0.3 if thin else 0.0),
                (b - a) / 1e6,
                left=(a - start) / 1e6,
                height=0.2 if thin else 0.7,
                color=_colour(s.kind, s.name),
                linewidth=0,
                zorder=3 if thin else 1 if s.kind == "wait" or s.name == "wait" else 2,
            )
        for at in timeline.steps[: STEPS + 1]:
            axes.axvline((at - start) / 1e6, color=GREY, linewidth=0.8, linestyle=":")
        axes.set_yticks(range(len(tracks)), tracks, fontsize=8)
        axes.invert_yaxis()
        step_ms = (end - start) / 1e6 / min(STEPS, len(timeline.steps) - 1)
        axes.set_title(f"{timeline.scheduler}: {step_ms:.2f} ms a step", fontsize=9, loc="left")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    panels[-1].set_xlabel("ms")
    names = {**SEGMENT_COLOURS, "wait": WAIT, "waits for the GIL": GIL, "GPU": GPU}
    figure.legend(
        handles=[Patch(color=c, label=n) for n, c in names.items()],
        loc="outside lower right",
        ncols=7,
        fontsize=7,
        frameon=False,
    )
    target = f"{timelines[0].target}: {timelines[0].says}"
    figure.suptitle(f"{title}\n{target}", fontsize=10, x=0.01, ha="left")
    return figure


def _colour(kind: str, name: str) -> str:
    if kind == "gpu":
        return GPU
    if kind == "gil":
        return GIL
    return SEGMENT_COLOURS.get(name, WAIT)
