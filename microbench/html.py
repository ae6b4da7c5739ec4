"""A results folder as one self-contained page: verdict first, then figures, tables, thresholds and the machine."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from microbench.errors import UsageError
from microbench.report import frame_thresholds

if TYPE_CHECKING:
    import pandas

FIGURES = {
    "crossover": "Change of the step time by overlap, over batch and over launch cost",
    "costs": "What the host does beside the GPU, and what overlap would change without one cost",
    "timeline": "What threads and streams do in two steps",
}
LARGEST_FIGURE_BYTES = 20_000_000

STYLE = """
:root { color-scheme: light dark; --line: #d0d0d0; --soft: #f5f5f5; --good: #00694d; --bad: #b04a00; }
@media (prefers-color-scheme: dark) { :root { --line: #555; --soft: #242424; --good: #5fd3ae; --bad: #ff9e5e; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.verdict { border-left: 4px solid var(--line); padding: .1rem 1rem; background: var(--soft); }
figure { margin: 1rem 0; } figure img { max-width: 100%; height: auto; background: #fff; }
figcaption, .note { font-size: .85rem; opacity: .8; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .6rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.pays { color: var(--good); font-weight: 600; } .loses { color: var(--bad); font-weight: 600; }
code, pre { background: var(--soft); padding: .1rem .3rem; overflow-wrap: anywhere; white-space: pre-wrap; }
button { font: inherit; font-size: .8rem; cursor: pointer; } details { margin: .5rem 0; }
"""
SCRIPT = """
for (const button of document.querySelectorAll("button[data-copy]"))
  button.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(button.dataset.copy); button.textContent = "copied"; }
    catch { button.textContent = button.dataset.copy; }
  });
"""


def page(folder: Path, frame: pandas.DataFrame, manifest: dict[str, Any]) -> str:
    """The page of a folder that `microbench run` wrote; needs nothing from the network.

    Raises UsageError for a figure too large to embed.
    """
    verdict: Sequence[str] = manifest.get("verdict", [])
    parts = [
        f"<h1>Does overlap scheduling pay? {_text(manifest['engine'])} on {_text(manifest['gpu'])}</h1>",
        f"<p class=note>Target <code>{_text(manifest['target'])}</code>: {_text(manifest['target_says'])}.</p>",
        "<p><strong>Interrupted: a partial result.</strong></p>" if manifest.get("partial") else "",
        "<div class=verdict>" + "".join(f"<p>{_text(sentence)}</p>" for sentence in verdict) + "</div>",
        *(_figure(folder, name, caption) for name, caption in FIGURES.items()),
        "<h2>Measured points</h2>",
        _points(frame[frame["part"].isin(("measured", "measured launch")) & frame["ratio"].notna()]),
        "<p class=note>Change: step time with overlap against without, median of interleaved pairs, with its 95 % "
        "interval.</p>",
        "<h2>Which cost decides (computed)</h2>",
        _attribution(manifest),
        "<h2>Thresholds</h2>",
        _thresholds(frame_thresholds(frame, manifest)),
        "<h2>Noise floor</h2>",
        _table(("instrument", "us"), [(k, f"{v:.3f}") for k, v in manifest.get("noise_floor_us", {}).items()]),
        "<h2>Machine</h2>",
        _environment(manifest["environment"]),
        "<h2>Reproduce</h2>",
        _copy(shlex.join(str(word) for word in manifest.get("command", []))),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>Overlap scheduling: {_text(manifest['engine'])} on {_text(manifest['gpu'])}</title>"
        f"<style>{STYLE}</style></head>\n<body>\n{body}\n<script>{SCRIPT}</script>\n</body></html>\n"
    )


def _text(value: object) -> str:
    return escape(str(value))


def _figure(folder: Path, name: str, caption: str) -> str:
    path = folder / f"{name}.png"
    if not path.is_file():
        return ""
    if path.stat().st_size > LARGEST_FIGURE_BYTES:
        raise UsageError(f"{path}: larger than {LARGEST_FIGURE_BYTES} bytes; draw it again with `microbench plot`")
    data = base64.b64encode(path.read_bytes()).decode()
    return (
        f'<figure><img alt="{_text(caption)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{_text(caption)}</figcaption></figure>"
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are texts, except one that `_raw` made."""
    body = "".join("<tr>" + "".join(f"<td>{_cell(c)}</td>" for c in row) + "</tr>" for row in rows)
    head = "".join(f"<th>{_text(c)}</th>" for c in columns)
    if not body:
        return "<p>Nothing.</p>"
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


class _Raw(str):
    """Markup made here, not to be escaped again."""


def _cell(value: str) -> str:
    return value if isinstance(value, _Raw) else _text(value)


def _points(frame: pandas.DataFrame) -> str:
    rows = []
    for r in frame.sort_values(["parameters", "batch"]).to_dict("records"):
        change = "{:+.1f} %".format
        rows.append(
            (
                str(r["model"]),
                str(r["batch"]),
                str(r["launch_mode"]),
                "" if r["launch_us"] != r["launch_us"] or r["launch_us"] is None else f"{r['launch_us']:g}",
                f"{r['modelled_gpu_step_ms']:.2f}",
                f"{r['step_ms'] / r['ratio']:.2f}",
                f"{r['step_ms']:.2f}",
                change((r["ratio"] - 1) * 100),
                f"{change((r['ratio_low'] - 1) * 100)} to {change((r['ratio_high'] - 1) * 100)}",
                _Raw(f"<span class={_text(r['verdict'])}>{_text(r['verdict'])}</span>"),
            )
        )
    names = "model,batch,launch,launch us,GPU ms (model),without ms,with ms,change,95 %,verdict"
    return _table(names.split(","), rows)


def _attribution(manifest: Mapping[str, Any]) -> str:
    gains: Mapping[str, Mapping[str, float]] = manifest.get("gains_without") or {}
    rows = [
        (model, "as it is" if cost == "nothing" else f"without {cost}", f"{-gain * 100:+.1f} %")
        for model, costs in gains.items()
        for cost, gain in costs.items()
    ]
    return _table(("model", "host", "change of the step by overlap"), rows)


def _thresholds(document: Mapping[str, Any]) -> str:
    rows = []
    for entry in document["entries"]:
        for rung in entry["rungs"]:
            flag = rung["flag"]
            rows.append(
                (
                    str(rung["model"]),
                    str(entry["batch"]),
                    str(entry["part"]),
                    str(entry["launch_mode"]),
                    f"{rung['modelled_gpu_step_ms']:.2f}",
                    f"{rung['gain'] * 100:+.1f} %",
                    _Raw(f"<span class={_text(rung['verdict'])}>{_text(rung['verdict'])}</span>"),
                    _Raw(_copy(flag)) if flag else "default stands",
                )
            )
    names = "model,batch,part,launch,GPU ms (model),gain,verdict,engine flag"
    return f"<details><summary>{len(rows)} rules</summary>{_table(names.split(','), rows)}</details>"


def _environment(facts: Mapping[str, Any]) -> str:
    shown = [(name, ", ".join(map(str, v)) if isinstance(v, list) else str(v)) for name, v in facts.items()]
    return f"<details><summary>{_text(facts.get('cpu_model'))}</summary>{_table(('field', 'value'), shown)}</details>"


def _copy(text: str) -> str:
    return f'<code>{_text(text)}</code> <button type="button" data-copy="{_text(text)}">copy</button>'
