"""Tables of percentiles in a block: a header, then a row a metric (LMDeploy) or a row a percentile (trtllm-bench).

Formats: https://github.com/InternLM/lmdeploy (lmdeploy/profiler.py) and https://github.com/NVIDIA/TensorRT-LLM
(docs/source/performance/perf-benchmarking.md).
"""

from __future__ import annotations

import re

from microbench.reports.metrics import latency_name, normal

_HEADER = re.compile(r"\s*mean(?:\s+P[0-9]{1,3})+\s*")
_ROW = re.compile(r"(?P<label>\S.*?\S)\s{2,}(?P<values>\S+(?:\s+\S+)*)")
_LATENCIES = {
    "end-to-end latency": "e2e_latency",
    "time to first token (ttft)": "ttft",
    "time per output token (tpot)": "tpot",
    "inter-token latency (itl)": "itl",
}
_STATS = {"min": "min", "max": "max", "avg": "mean", "average": "mean", "minimum": "min", "maximum": "max"}
_TAGS = {
    "latency": "{}_e2e_latency_ms",
    "ttft": "{}_ttft_ms",
    "tpot": "{}_tpot_ms",
    "gtps": "{}_generation_throughput",
    "dt": "{}_draft_tokens",
    "adt": "{}_accepted_draft_tokens",
    "dar": "{}_draft_acceptance_rate",
    "al": "{}_accept_length",
}
_SECTIONS = {
    "generation latency breakdown": "{}_generation_latency_ms",
    "acceptance breakdown": "{}_acceptance",
}
_TAGGED = re.compile(r"\[(?P<tag>[A-Za-z]+)\] (?P<stat>[A-Za-z0-9]+)")
_STAT = re.compile(r"(?P<stat>min|max|avg|p[0-9]{1,3})(?: \(ms\))?")

_LISTS = (
    (re.compile(r"first[ _]token latency(?:\(s\))?\(min, max, ave\)"), ("min", "max", "mean"), "ttft"),
    (re.compile(r"per-token latency\(s\) percentile\(50, 75, 95, 99\)"), ("median", "p75", "p95", "p99"), "itl"),
)

Found = list[tuple[str, str, float]]
"""Metric, its number as text, and the factor to its unit."""


def stat_columns(line: str) -> tuple[str, ...] | None:
    """The columns of LMDeploy's table of latencies, if this is its header."""
    return tuple(line.lower().split()) if _HEADER.fullmatch(line) else None


def latency_row(line: str, columns: tuple[str, ...]) -> Found | None:
    """A row of that table; LMDeploy prints seconds. None if it isn't one, or has not a number a column."""
    match = _ROW.fullmatch(line.strip())
    if not match or normal(match["label"]) not in _LATENCIES:
        return None
    values = match["values"].split()
    if len(values) != len(columns):
        return None
    kind = _LATENCIES[normal(match["label"])]
    return [(latency_name(column, kind), value, 1e3) for column, value in zip(columns, values, strict=True)]


def latency_list(line: str) -> Found | None:
    """`first token latency(s)(min, max, ave): 0.1, 0.2, 0.3` of LMDeploy's older scripts, in seconds."""
    label, _, rest = line.partition(":")
    for pattern, stats, kind in _LISTS:
        values = [value.strip().removesuffix("s") for value in rest.strip().strip("[]").split(",")]
        if pattern.fullmatch(label.strip()) and len(values) == len(stats):
            return [(latency_name(stat, kind), value, 1e3) for stat, value in zip(stats, values, strict=True)]
    return None


def token_row(line: str) -> Found | None:
    """A row of trtllm-bench's table of the dataset's lengths: input, output and sequence."""
    label, colon, rest = line.strip().partition(":")
    stat = statistic(label)
    values = rest.split()
    if not colon or stat is None or len(values) != 3:
        return None
    return [(f"{stat}_{k}_tokens", v, 1) for k, v in zip(("input", "output", "sequence"), values, strict=True)]


def tagged(label: str, section: str) -> str | None:
    """The metric of `[TPOT] P99` or, in a section of its own, of `P99 (ms)`, as trtllm-bench prints them."""
    label = normal(label)
    match = _TAGGED.fullmatch(label)
    if match:
        stat, pattern = statistic(match["stat"]), _TAGS.get(match["tag"])
    else:
        match = _STAT.fullmatch(label)
        stat, pattern = statistic(match["stat"]) if match else None, _SECTIONS.get(section)
    return pattern.format(stat) if stat and pattern else None


def statistic(label: str) -> str | None:
    """MIN, AVERAGE, P50 as names have them: min, mean, median."""
    label = normal(label)
    if label == "p50":
        return "median"
    return _STATS.get(label) or (label if re.fullmatch(r"p[0-9]{1,3}", label) else None)
