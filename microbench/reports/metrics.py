"""Names, units and directions of metrics, and the labels and JSON keys that each tool has for them.

The names are the JSON keys of SGLang's bench_serving. Labels and keys were read in
https://github.com/sgl-project/sglang (python/sglang/bench_serving.py of 0.4.0.post1 and 0.5.4),
https://github.com/vllm-project/vllm (vllm/benchmarks/serve.py), https://github.com/NVIDIA/TensorRT-LLM
(tensorrt_llm/bench/dataclasses/reporting.py) and https://github.com/InternLM/lmdeploy (lmdeploy/profiler.py,
benchmark/profile_throughput.py), all Apache-2.0.
"""

from __future__ import annotations

import re

_STAT = r"(?P<stat>mean|median|std|min|max|p[0-9]{1,3}(?:\.[0-9]{1,3})?)"
_LATENCIES = {
    "ttft": "ttft",
    "tpot": "tpot",
    "itl": "itl",
    "e2el": "e2e_latency",
    "e2e latency": "e2e_latency",
    "e2e_latency": "e2e_latency",
    "client queue time": "client_queue_time",
    "client_queue_time": "client_queue_time",
    "e2el incl. client queue": "e2el_including_client_queue",
    "e2el_including_client_queue": "e2el_including_client_queue",
}
_KINDS = "|".join(re.escape(kind) for kind in sorted(_LATENCIES, key=len, reverse=True))
_STAT_LABEL = re.compile(rf"{_STAT} (?P<kind>{_KINDS}) \((?P<unit>ms|s)\)")
_STAT_KEY = re.compile(rf"{_STAT}_(?P<kind>{_KINDS})_ms")

_LABELS: dict[str, tuple[str, float]] = {
    "successful requests": ("completed", 1),
    "failed requests": ("failed", 1),
    "benchmark duration (s)": ("duration", 1),
    "benchmark duration": ("duration", 1),
    "elapsed_time": ("duration", 1),
    "total latency (ms)": ("duration", 1e-3),
    "total input tokens": ("total_input_tokens", 1),
    "number of prompt tokens": ("total_input_tokens", 1),
    "total input text tokens": ("total_input_text_tokens", 1),
    "total input vision tokens": ("total_input_vision_tokens", 1),
    "total generated tokens": ("total_output_tokens", 1),
    "number of completion tokens": ("total_output_tokens", 1),
    "total generated tokens (retokenized)": ("total_output_tokens_retokenized", 1),
    "request throughput (req/s)": ("request_throughput", 1),
    "request throughput (req/sec)": ("request_throughput", 1),
    "rps (request per second)": ("request_throughput", 1),
    "request goodput (req/s)": ("request_goodput", 1),
    "input token throughput (tok/s)": ("input_throughput", 1),
    "input throughput (tok/s)": ("input_throughput", 1),
    "output token throughput (tok/s)": ("output_throughput", 1),
    "output throughput (tok/s)": ("output_throughput", 1),
    "total output throughput (tokens/sec)": ("output_throughput", 1),
    "generation token throughput (tokens/sec)": ("output_throughput", 1),
    "token throughput (tokens/sec)": ("output_throughput", 1),  # trtllm-bench until 0.17 counts output tokens here
    "token throughput (completion token)": ("output_throughput", 1),
    "total token throughput (tok/s)": ("total_throughput", 1),
    "total token throughput (tokens/sec)": ("total_throughput", 1),
    "token throughput (prompt + completion token)": ("total_throughput", 1),
    "peak output token throughput (tok/s)": ("max_output_tokens_per_s", 1),
    "peak concurrent requests": ("max_concurrent_requests", 1),
    "concurrency": ("concurrency", 1),
    "number of concurrent requests": ("concurrency", 1),
    "accept length": ("accept_length", 1),
    "acceptance rate (%)": ("spec_decode_acceptance_rate", 1),
    "acceptance length": ("spec_decode_acceptance_length", 1),
    "average input length (tokens)": ("mean_input_tokens", 1),
    "average output length (tokens)": ("mean_output_tokens", 1),
    "average request latency (ms)": ("mean_e2e_latency_ms", 1),
    "average time-to-first-token [ttft] (ms)": ("mean_ttft_ms", 1),
    "average time-to-first-token (ms)": ("mean_ttft_ms", 1),
    "average time-per-output-token [tpot] (ms)": ("mean_tpot_ms", 1),
    "average inter-token latency (ms)": ("mean_itl_ms", 1),
    "per user output throughput (tokens/sec/user)": ("per_user_output_throughput", 1),
    "per user output throughput [w/ ctx] (tps/user)": ("per_user_output_throughput", 1),
    "per gpu output throughput (tokens/sec/gpu)": ("per_gpu_output_throughput", 1),
    "per gpu output throughput (tps/gpu)": ("per_gpu_output_throughput", 1),
    "per user output speed (tps/user)": ("per_user_output_speed", 1),
    "latency mean (s)": ("mean_e2e_latency_ms", 1e3),
    "latency median (s)": ("median_e2e_latency_ms", 1e3),
    "latency p99 (s)": ("p99_e2e_latency_ms", 1e3),
    "peak memory max (mb)": ("max_peak_memory_mb", 1),
    "peak memory mean (mb)": ("mean_peak_memory_mb", 1),
    "peak memory median (mb)": ("median_peak_memory_mb", 1),
}
"""Label, lower case: metric, and what to multiply by to get its unit."""

SETTINGS = {
    "backend": "backend",
    "model": "model",
    "dataset": "dataset_name",
    "task": "task",
    "traffic request rate": "request_rate",
    "request rate": "request_rate",
    "request rate configured (rps)": "request_rate",
    "max request concurrency": "max_concurrency",
    "max reqeuest concurrency": "max_concurrency",  # as SGLang 0.4.0 spells it
    "maximum request concurrency": "max_concurrency",
    "burstiness factor": "burstiness",
    "number of requests": "num_prompts",
    "total requests": "num_prompts",
    "number of sequences": "dataset_sequences",
    "model path": "model_path",
    "engine directory": "engine_directory",
    "tensorrt-llm version": "version",
    "tensorrt llm version": "version",
    "dtype": "dtype",
    "kv cache dtype": "kv_cache_dtype",
    "quantization": "quantization",
    "max input length": "max_input_length",
    "max sequence length": "max_sequence_length",
    "tp size": "tp_size",
    "pp size": "pp_size",
    "ep size": "ep_size",
    "max runtime batch size": "max_batch_size",
    "max runtime tokens": "max_num_tokens",
    "scheduling policy": "scheduling_policy",
    "kv memory percentage": "kv_memory_percentage",
    "issue rate (req/sec)": "issue_rate",
    "dataset path": "dataset_path",
}
"""Label, lower case: setting of the run, kept in its own words."""

_JSON_SETTINGS = (
    "backend dataset_name request_rate max_concurrency sharegpt_output_len random_input_len random_output_len "
    "random_range_ratio model_id tokenizer_id endpoint_type date label burstiness num_prompts tag server_info "
    "ramp_up_strategy ramp_up_start_rps ramp_up_end_rps"
)
JSON_SETTINGS = frozenset(_JSON_SETTINGS.split())
JSON_ALIASES = {
    "total_token_throughput": "total_throughput",  # vLLM
    "e2e_throughput": "total_throughput",
}
_NAMES = {name for name, _ in _LABELS.values()} | {
    "max_output_tokens_per_s",
    "spec_decode_num_drafts",
    "spec_decode_draft_tokens",
    "spec_decode_accepted_tokens",
}

_UNITS = {
    "duration": "s",
    "request_throughput": "req/s",
    "request_goodput": "req/s",
    "max_output_tokens_per_s": "tok/s",
    "per_user_output_speed": "tok/s",
    "spec_decode_acceptance_rate": "%",
}
_HIGHER = ("_throughput", "_goodput", "_output_speed", "accept_length", "acceptance_length", "acceptance_rate")


def normal(label: str) -> str:
    """A label in lower case and with single spaces, without colon."""
    return " ".join(label.split()).rstrip(":").rstrip().lower()


def of_label(label: str) -> tuple[str, float] | None:
    """The metric of a printed label and the factor to its unit; None for a label that isn't known."""
    label = normal(label)
    match = _STAT_LABEL.fullmatch(label)
    if match:
        return latency_name(match["stat"], _LATENCIES[match["kind"]]), 1e3 if match["unit"] == "s" else 1
    return _LABELS.get(label)


def of_key(key: str) -> str | None:
    """The metric of a JSON key."""
    match = _STAT_KEY.fullmatch(key)
    if match:
        return latency_name(match["stat"], _LATENCIES[match["kind"]])
    key = JSON_ALIASES.get(key, key)
    return key if key in _NAMES else None


def latency_name(stat: str, kind: str) -> str:
    """mean, ttft -> mean_ttft_ms. The 50th percentile is the median."""
    return f"{'median' if stat == 'p50' else stat}_{kind}_ms"


def unit(name: str) -> str:
    """The unit of a metric, or "" for a count."""
    if name in _UNITS:
        return _UNITS[name]
    if name.endswith("_ms"):
        return "ms"
    if name.endswith("_mb"):
        return "MB"
    return "tok/s" if name.endswith("_throughput") else ""


def better(name: str) -> str | None:
    """Which way a metric is better, "lower" or "higher"; None where neither is."""
    if name.endswith(_HIGHER) or name in ("completed", "max_output_tokens_per_s"):
        return "higher"
    if name.endswith(("_ms", "_mb")) or name in ("duration", "failed"):
        return "lower"
    return None
