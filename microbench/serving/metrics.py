"""What a serving benchmark reports, under the names, JSON keys and definitions of SGLang's `bench_serving`.

E2E: from sending a request to its last token. TTFT: to its first. TPOT: (E2E - TTFT) / (tokens asked for - 1), one
value a request, left out for requests of fewer than two tokens. ITL: every gap between two tokens of one request, all
requests together. (sglang 0.4.0.post1 on PyPI, Apache-2.0: bench_serving.py, calculate_metrics.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from microbench.serving.work import Timeline
from microbench.serving.workload import Requested

Floats = NDArray[np.float64]


def metrics(requested: Requested, timeline: Timeline) -> dict[str, Any]:
    """The metrics of a run in which every request ended, in that benchmark's units: s, ms and tokens a second."""
    e2e = (timeline.last_ns - timeline.sent_ns) / 1e9
    ttft = (timeline.first_ns - timeline.sent_ns) / 1e9
    lens = requested.output_lens
    many = lens > 1
    tpot = (e2e - ttft)[many] / (lens[many] - 1)
    itl = np.concatenate(timeline.gaps_ns) / 1e9
    duration = float(timeline.last_ns.max()) / 1e9
    total_in, total_out, completed = int(requested.input_lens.sum()), int(lens.sum()), len(lens)
    return {
        "duration": duration,
        "completed": completed,
        "total_input_tokens": total_in,
        "total_output_tokens": total_out,
        "total_output_tokens_retokenized": total_out,
        "request_throughput": completed / duration,
        "input_throughput": total_in / duration,
        "output_throughput": total_out / duration,
        "total_throughput": (total_in + total_out) / duration,
        **_spread("e2e_latency", e2e),
        **_spread("ttft", ttft),
        **_spread("tpot", tpot),
        **_spread("itl", itl),
    }


def _spread(name: str, seconds: Floats) -> dict[str, float]:
    """Mean, median, standard deviation and 99th percentile in ms; 0 where there is no value, as the benchmark does."""
    ms = seconds * 1000 if len(seconds) else np.zeros(1)
    return {
        f"mean_{name}_ms": float(np.mean(ms)),
        f"median_{name}_ms": float(np.median(ms)),
        f"std_{name}_ms": float(np.std(ms)),
        f"p99_{name}_ms": float(np.percentile(ms, 99)),
    }


_ROWS = (
    ("Successful requests:", "completed", "d"),
    ("Benchmark duration (s):", "duration", ".2f"),
    ("Total input tokens:", "total_input_tokens", "d"),
    ("Total generated tokens:", "total_output_tokens", "d"),
    ("Total generated tokens (retokenized):", "total_output_tokens_retokenized", "d"),
    ("Request throughput (req/s):", "request_throughput", ".2f"),
    ("Input token throughput (tok/s):", "input_throughput", ".2f"),
    ("Output token throughput (tok/s):", "output_throughput", ".2f"),
    ("Total token throughput (tok/s):", "total_throughput", ".2f"),
)
_SPREADS = (
    ("End-to-End Latency", "E2E Latency", "e2e_latency", ("Mean", "Median")),
    ("Time to First Token", "TTFT", "ttft", ("Mean", "Median", "P99")),
    ("Time per Output Token (excl. 1st token)", "TPOT", "tpot", ("Mean", "Median", "P99")),
    ("Inter-token Latency", "ITL", "itl", ("Mean", "Median", "P99")),
)


def block(row: Mapping[str, Any]) -> str:
    """The result block as that benchmark prints it; `row` holds the metrics and what was run."""
    limit = row["max_concurrency"] or "not set"
    lines = [
        f"{' Serving Benchmark Result ':=^50}",
        *(
            f"{name:<40} {value!s:<10}"
            for name, value in (
                ("Backend:", row["backend"]),
                ("Traffic request rate:", row["request_rate"]),
                ("Max request concurrency:", limit),
            )
        ),
        *(f"{name:<40} {format(row[key], form):<10}" for name, key, form in _ROWS),
    ]
    for title, shown, key, parts in _SPREADS:
        lines.append(f"{title:-^50}")
        lines += [f"{f'{part} {shown} (ms):':<40} {row[f'{part.lower()}_{key}_ms']:<10.2f}" for part in parts]
    return "\n".join([*lines, "=" * 50])
