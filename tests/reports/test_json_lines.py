"""JSON lines and documents, whole, with details, pretty-printed, mixed with blocks, and broken off."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from microbench.reports import Reading, Report, read_reports
from microbench.reports.json_lines import MOST_CHARACTERS
from microbench.reports.lines import CHUNK_BYTES

Read = Callable[[bytes], Reading]
FAST = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])

LINE = {
    "backend": "sglang",
    "dataset_name": "random",
    "request_rate": float("inf"),
    "max_concurrency": None,
    "random_input_len": 4096,
    "duration": 69.61,
    "completed": 500,
    "total_input_tokens": 1026288,
    "total_output_tokens": 506842,
    "total_output_tokens_retokenized": 506758,
    "request_throughput": 7.18,
    "output_throughput": 7281.38,
    "mean_e2e_latency_ms": 40437.78,
    "std_ttft_ms": 12.5,
    "p95_itl_ms": 50.25,
    "accept_length": None,
}
VLLM = {
    "date": "20251104-120000",
    "endpoint_type": "vllm",
    "model_id": "m",
    "num_prompts": 320,
    "duration": 413.07,
    "completed": 320,
    "request_goodput": None,
    "total_token_throughput": 1584.66,
    "mean_e2el_ms": 82558.95,
    "p50_ttft_ms": 7.5,
    "p99.9_itl_ms": 73.04,
    "max_output_tokens_per_s": 900.0,
    "rtfx": 0.0,
}
TRT = {
    "engine": {"model": "m", "version": "1.1", "backend": "Pytorch"},
    "machine": {"name": "GPU", "memory.total": 79.1},
    "world_info": {"tp_size": 2, "scheduling_policy": "x"},
    "request_info": {"num_requests": 10, "avg_num_concurrent_requests": 5.3, "avg_input_length": 411.6},
    "performance": {
        "total_latency_ms": 6925.4963,
        "request_throughput_req_s": 1.4439,
        "system_output_throughput_tok_s": 185.8351,
        "request_latency_percentiles_ms": {"p50": 3936.3, "p99": 5514.47, "minimum": 2397.1, "odd": 1},
    },
    "streaming_metrics": {"avg_ttft_ms": 3.5, "tpot_percentiles": {"average": 7.25}},
}


def only(reading: Reading) -> Report:
    assert len(reading.reports) == 1, reading
    return reading.reports[0]


def lines(*documents: Any) -> bytes:
    return "".join(json.dumps(document) + "\n" for document in documents).encode()


def test_a_line_of_bench_serving(read_bytes: Read) -> None:
    report = only(read_bytes(lines(LINE)))
    assert (report.tool, report.layout, report.truncated) == ("bench_serving", "json", False)
    numeric = {k for k, v in LINE.items() if isinstance(v, int | float)} - {"request_rate", "random_input_len"}
    assert dict(report.metrics) == {k: LINE[k] for k in numeric}
    assert report.settings == {
        "backend": "sglang",
        "dataset_name": "random",
        "request_rate": "inf",
        "random_input_len": "4096",
    }
    assert report.unknown == ()


def test_a_result_of_vllm_under_the_names_of_bench_serving(read_bytes: Read) -> None:
    report = only(read_bytes(json.dumps(VLLM, indent=2).encode()))
    assert report.tool == "vllm bench serve"
    assert report.metrics == {
        "duration": 413.07,
        "completed": 320,
        "total_throughput": 1584.66,
        "mean_e2e_latency_ms": 82558.95,
        "median_ttft_ms": 7.5,
        "p99.9_itl_ms": 73.04,
        "max_output_tokens_per_s": 900,
    }
    assert report.unknown == ("rtfx: 0.0",) and report.settings["num_prompts"] == "320"


def test_a_report_of_trtllm_bench(read_bytes: Read) -> None:
    report = only(read_bytes(json.dumps(TRT, indent=4).encode()))
    assert report.tool == "trtllm-bench"
    assert report.metrics == {
        "concurrency": 5.3,
        "mean_input_tokens": 411.6,
        "duration": 6.9254963,
        "request_throughput": 1.4439,
        "output_throughput": 185.8351,
        "median_e2e_latency_ms": 3936.3,
        "p99_e2e_latency_ms": 5514.47,
        "min_e2e_latency_ms": 2397.1,
        "mean_ttft_ms": 3.5,
        "mean_tpot_ms": 7.25,
    }
    assert report.settings["num_prompts"] == "10" and report.settings["tp_size"] == "2"
    assert report.unknown == (
        'machine.name: "GPU"',
        "machine.memory.total: 79.1",
        "request_latency_percentiles_ms.odd: 1",
    )


def test_details_are_passed_over(read_bytes: Read) -> None:
    details = {
        "itls": [[0.1, 0.2], [], [0.3]],
        "generated_texts": ['say "{[" \\', "}]}", "\n====\n", '{"duration": 1,"completed": 2}'],
        "errors": [{"a": [1]}, ""],
    }
    plain = only(read_bytes(lines(LINE)))
    for document in ({**details, **LINE}, {**LINE, **details}):
        for text in (
            lines(document),
            json.dumps(document, indent=1).encode(),
            lines(document).replace(b", ", b",\r\n"),
        ):
            assert only(read_bytes(text)).metrics == plain.metrics


def test_many_lines_lists_and_blocks_in_one_file(read_bytes: Read) -> None:
    block = (Path(__file__).parent / "blocks" / "sglang-2558-overlap-off.txt").read_bytes()
    other = {**LINE, "duration": 1.5}
    reading = read_bytes(lines(LINE) + block + b"\n" + lines(other, {"hello": 1}) + json.dumps([VLLM, VLLM]).encode())
    assert [r.metrics["duration"] for r in reading.reports] == [69.61, 59.99, 1.5, 413.07, 413.07]
    assert [r.line for r in reading.reports] == sorted(r.line for r in reading.reports)
    assert reading.reports[-1].problems == ("the same as run 4",)


@pytest.mark.parametrize("indent", [None, 2])
def test_cut_off_anywhere(indent: int | None, read_bytes: Read) -> None:
    content = json.dumps(LINE, indent=indent).encode()
    plain = only(read_bytes(content))
    for end in range(1, len(content), 3):
        for report in read_bytes(content[:end]).reports:
            assert report.truncated and report.problems
            assert all(plain.metrics[name] == value for name, value in report.metrics.items())


def test_a_broken_line_does_not_swallow_the_next(read_bytes: Read) -> None:
    good = lines(LINE)
    for end in (20, 60, 170, 230, len(good) - 2):
        reading = read_bytes(good[:end] + b"\n" + good)
        assert reading.reports[-1].metrics["duration"] == 69.61 and not reading.reports[-1].truncated


def test_a_document_that_never_ends_does_not_swallow_a_block(read_bytes: Read) -> None:
    block = (Path(__file__).parent / "blocks" / "sglang-2558-overlap-on.txt").read_bytes()
    assert only(read_bytes(b'{"a": [1,\n' + block)).metrics["duration"] == 69.61
    assert only(read_bytes(b"{'a': 1,\n" + block)).metrics["duration"] == 69.61


@pytest.mark.parametrize("value", ["NaN", "Infinity", '"12"', "true", "null", "1e999", "{}", "[1]", "9" * 5000])
def test_what_is_no_number_is_not_read(value: str, read_bytes: Read) -> None:
    text = json.dumps(LINE).replace("69.61", value)
    reading = read_bytes(text.encode())
    assert not any("duration" in report.metrics for report in reading.reports)
    json.dumps([r.to_json() for r in reading.reports], allow_nan=False)


def test_a_key_twice(read_bytes: Read) -> None:
    report = only(read_bytes(b'{"duration": 1.5, "duration": 2.5, "completed": 3}'))
    assert report.metrics == {"duration": 1.5, "completed": 3}
    assert report.problems == ("duration is there twice: the first is taken",)


def test_deep_and_long_documents(read_bytes: Read) -> None:
    deep = b'{"a": ' * 50_000 + b"1" + b"}" * 50_000
    assert read_bytes(deep + b"\n" + lines(LINE)).reports[-1].metrics["duration"] == 69.61
    reading = read_bytes(lines({**LINE, "server_info": "x" * MOST_CHARACTERS}) + lines(LINE))
    assert len(reading.reports) == 1 and "1 JSON documents are too long" in reading.problems[0]


def test_a_large_file_is_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl"
    block = (Path(__file__).parent / "blocks" / "sglang-2558-overlap-on.txt").read_text(encoding="utf-8")
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(LINE)[:-1] + ', "itls": [[' + "0.0123456789, " * 100_000 + "0]]}\n")
        file.write("x" * 2_000_000 + "\n" + "INFO: a request is done (200 OK)\n" * 20_000 + block)
    assert path.stat().st_size > 50 * CHUNK_BYTES
    tracemalloc.start()
    reading = read_reports(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [r.metrics["duration"] for r in reading.reports] == [69.61, 69.61]
    assert peak < 1_500_000


KEYS = st.sampled_from(["duration", "completed", "mean_ttft_ms", "p99_itl_ms", "strange", "itls", "backend", 'a"b\\'])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, width=32)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@FAST
@given(
    document=st.dictionaries(KEYS, VALUES, max_size=8), indent=st.sampled_from([None, 0, 3]), ascii_only=st.booleans()
)
def test_any_document_is_read_as_json_reads_it(
    document: dict[str, Any], indent: int | None, ascii_only: bool, read_bytes: Read
) -> None:
    document = {"output_throughput": 2.5, "request_throughput": 1.5, **document}
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    reading = read_bytes(text + b"\n")
    report = only(reading)
    for name in ("duration", "completed", "mean_ttft_ms", "p99_itl_ms"):
        value = document.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
        assert report.metrics.get(name) == (value if is_number else None)
    assert not report.truncated


@FAST
@given(data=st.data())
def test_any_damage_gives_a_report_or_a_reason(data: st.DataObject, read_bytes: Read) -> None:
    content = bytearray(lines(LINE, VLLM) + json.dumps(TRT, indent=1).encode())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content)))
        content[at : at + data.draw(st.integers(0, 30))] = data.draw(
            st.one_of(st.binary(max_size=9), st.text('{}[]",:\\\n', max_size=9).map(str.encode))
        )
    reading = read_bytes(bytes(content))
    assert reading.reports or reading.problems
    json.dumps([r.to_json() for r in reading.reports], allow_nan=False)
