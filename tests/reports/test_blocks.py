"""Printed result blocks: nothing is lost, nothing is made up, whatever was done to the file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from microbench.reports import Reading, Report, read_reports
from microbench.reports.blocks import MOST_STRANGE_LINES
from microbench.reports.lines import MOST_CHARACTERS
from microbench.reports.read import MOST_RUNS
from microbench.reports.report import MOST_UNKNOWN_ROWS

Read = Callable[[bytes], Reading]
FOLDER = Path(__file__).parent / "blocks"
BLOCKS = sorted(FOLDER.glob("*.txt"))
ON = (FOLDER / "sglang-2558-overlap-on.txt").read_text(encoding="utf-8")
FAST = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
NUMBER = re.compile(r"(?<![\w.])-?[0-9]+(?:\.[0-9]+)?(?:E[+-]?[0-9]+)?(?![\w.]*[\w])")


def only(reading: Reading) -> Report:
    assert len(reading.reports) == 1, reading
    return reading.reports[0]


def numbers(row: str) -> list[float]:
    """The numbers of a row, behind its label."""
    value = row.rpartition(":")[2]
    return [float(n) for n in NUMBER.findall(value)]


def holds(report: Report, value: float) -> bool:
    """Whether the report has this number, in the unit of the block or in its own."""
    texts = " ".join((*report.settings.values(), *report.unknown))
    known = (*report.metrics.values(), *(float(n) for n in NUMBER.findall(texts.replace("%", ""))))
    return any(math.isclose(value * factor, k, rel_tol=1e-12) for k in known for factor in (1, 1e3, 1e-3))


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 15


def test_no_number_of_a_published_block_is_lost(block: Path) -> None:
    report = only(read_reports(block))
    rows = [row for row in block.read_text(encoding="utf-8").splitlines() if not row.startswith(("=", "--"))]
    found = [(row, n) for row in rows for n in numbers(row.replace("%", ""))]
    assert len(found) >= 11
    assert [(row, n) for row, n in found if not holds(report, n)] == []


def test_every_row_has_a_place_of_its_own(block: Path) -> None:
    report = only(read_reports(block))
    rows = [r.strip() for r in block.read_text(encoding="utf-8").splitlines() if ":" in r]
    places = len(report.metrics) + len(report.settings) + len(report.unknown)
    tables = sum(len(r.split()) == 4 and not r.startswith("[") and r[3:4] == ":" for r in rows)  # 3 figures a row
    said_twice = ("AVERAGE", "AVG:")  # trtllm-bench prints means in two places
    doubled = sum(1 if r.startswith("[Latency] AV") else 2 for r in rows if any(w in r for w in said_twice))
    doubled -= "1/1" in " ".join(rows)  # two figures in one row
    assert places == len(rows) + 2 * tables - doubled


def test_only_the_block_that_is_cut_off_is_marked(block: Path) -> None:
    report = only(read_reports(block))
    assert report.truncated == ("TRUNCATED" in block.name)
    assert any("cut off" in p for p in report.problems) == report.truncated
    assert report.unknown == () and report.dropped == 0


@pytest.mark.parametrize(
    ("name", "tool", "expected"),
    [
        (
            "sglang-2558-overlap-on",
            "bench_serving",
            {"duration": 69.61, "completed": 500, "median_tpot_ms": 35.03, "p99_itl_ms": 60.09, "mean_ttft_ms": 5381.8},
        ),
        (
            "vllm-project-vllm_pr25135",
            "vllm bench serve",
            {"mean_e2e_latency_ms": 82558.95, "total_throughput": 1584.66},
        ),
        (
            "NVIDIA-TensorRT-LLM_docs-perf-benchmarking_trtllm-bench-latency-breakdown",
            "trtllm-bench",
            {
                "duration": 6.9254963,
                "output_throughput": 185.8351,
                "total_throughput": 780.1607,
                "median_e2e_latency_ms": 3936.3022,
                "mean_input_tokens": 411.6,
                "p99_sequence_tokens": 1178,
            },
        ),
        (
            "NVIDIA-TensorRT-LLM_docs-perf-benchmarking_trtllm-bench-0.17-engine",
            "trtllm-bench",
            {"output_throughput": 28390.4265, "duration": 13.5256862},
        ),
        (
            "sgl-cookbook_FLUX_sglang-diffusion_latency-peak-memory",
            "sglang diffusion",
            {"completed": 1, "mean_e2e_latency_ms": 50968.1, "max_peak_memory_mb": 27905.19},
        ),
    ],
)
def test_known_blocks(name: str, tool: str, expected: dict[str, float]) -> None:
    report = only(read_reports(FOLDER / f"{name}.txt"))
    assert report.tool == tool
    assert {k: report.metrics[k] for k in expected} == expected


def test_trtllm_bench_latency_prints_output_tokens_as_total(read_bytes: Read) -> None:
    rule = "=" * 59
    text = f"""{rule}
= GENERAL OVERVIEW
{rule}
Number of requests:\t\t100
Average Input Length (tokens):\t2048.0000
Average request latency (ms):\t63456.0704

{rule}
= THROUGHPUT OVERVIEW
{rule}
Request Throughput (req/sec):\t\t  0.0158
Total Token Throughput (tokens/sec):\t  32.2742
Generation Token Throughput (tokens/sec): 32.3338

{rule}
= LATENCY OVERVIEW
{rule}
Total Latency (ms):\t\t  6345624.0554
Average inter-token latency (ms): 30.9274
Acceptance Rate (Speculative):\t  1.00

{rule}
= GENERATION LATENCY BREAKDOWN
{rule}
MIN (ms): 63266.8804
P99 (ms): 63374.7770

{rule}
= ACCEPTANCE BREAKDOWN
{rule}
MIN: 1.00
{rule}
"""
    report = only(read_bytes(text.encode()))
    assert report.metrics == {
        "mean_input_tokens": 2048,
        "mean_e2e_latency_ms": 63456.0704,
        "request_throughput": 0.0158,
        "output_throughput": 32.2742,
        "generation_throughput": 32.3338,
        "duration": 6345.6240554,
        "mean_itl_ms": 30.9274,
        "min_generation_latency_ms": 63266.8804,
        "p99_generation_latency_ms": 63374.777,
        "min_acceptance": 1,
    }
    assert report.unknown == ("Acceptance Rate (Speculative):\t  1.00",)
    assert not report.truncated


def test_lmdeploy_table(read_bytes: Read) -> None:
    text = f"""{" Profile Throughput ":=^90}
Benchmark duration                          12.345
Total requests                                5000
Successful requests                           4999
Concurrency                                    256
Total input tokens                         1000000
Total generated tokens                      500000
Output throughput (tok/s)                40502.228
Request throughput (req/s)                 404.941
{"-" * 90}
                                              mean       P50       P75       P95       P99
End-to-end Latency                           0.500     0.400     0.600     0.900     1.200
Time to First Token (TTFT)                   0.050     0.040     0.060     0.090     0.120
Inter-token Latency (ITL)                    0.010     0.009     0.011     0.020     0.030
Tokens per Tick                              1.000         1         1         1         1
{"=" * 90}
"""
    report = only(read_bytes(text.encode()))
    assert report.tool == "lmdeploy" and not report.truncated
    assert report.settings == {"num_prompts": "5000", "max_concurrency": "256"}
    assert report.metrics["duration"] == 12.345 and report.metrics["completed"] == 4999
    assert report.metrics["median_e2e_latency_ms"] == 400 and report.metrics["p95_itl_ms"] == 20
    assert report.metrics["p75_ttft_ms"] == 60
    assert report.unknown == (
        "Tokens per Tick                              1.000         1         1         1         1",
    )


def test_lmdeploy_list(read_bytes: Read) -> None:
    text = f"""{"-" * 50}
concurrency: 256
elapsed_time: 399.739s

first token latency(s)(min, max, ave): 0.068, 4.066, 0.285
per-token latency(s) percentile(50, 75, 95, 99): [0, 0.094, 0.169, 0.227]

number of prompt tokens: 2238364
number of completion tokens: 2005448
token throughput (completion token): 5016.892 token/s
token throughput (prompt + completion token): 10616.453 token/s
RPS (request per second): 25.016 req/s
RPM (request per minute): 1500.979 req/min
{"-" * 50}
"""
    report = only(read_bytes(text.encode()))
    assert report.settings == {"max_concurrency": "256"} and not report.truncated
    assert report.metrics == {
        "duration": 399.739,
        "min_ttft_ms": 68,
        "max_ttft_ms": 4066,
        "mean_ttft_ms": 285,
        "median_itl_ms": 0,
        "p75_itl_ms": 94,
        "p95_itl_ms": 169,
        "p99_itl_ms": 227,
        "total_input_tokens": 2238364,
        "total_output_tokens": 2005448,
        "output_throughput": 5016.892,
        "total_throughput": 10616.453,
        "request_throughput": 25.016,
    }
    assert report.unknown == ("RPM (request per minute): 1500.979 req/min",)


def dressed(text: str, prefix: str) -> str:
    return "".join(f"{prefix.format(i % 60)}{row}\n" for i, row in enumerate(text.splitlines()))


DRESSES: dict[str, Callable[[str], bytes]] = {
    "CRLF": lambda t: t.replace("\n", "\r\n").encode(),
    "lone CR": lambda t: ("\r 10%|#  | 3/30\r 90%|## |\r" + t.replace("\n", "\r")).encode(),
    "BOM": lambda t: t.encode("utf-8-sig"),
    "UTF-16": lambda t: t.encode("utf-16"),
    "UTF-16 big endian": lambda t: b"\xfe\xff" + t.encode("utf-16-be"),
    "UTF-16 without a mark": lambda t: t.encode("utf-16-le"),
    "UTF-32": lambda t: t.encode("utf-32"),
    "NUL bytes": lambda t: t.replace(" ", " \x00").encode(),
    "colours": lambda t: "".join(f"\x1b[1;32m{row}\x1b[0m\x1b[K\n" for row in t.splitlines()).encode(),
    "log prefix": lambda t: dressed(t, "2025-11-04 12:00:{0:02} INFO [serve.py:7{0}] ").encode(),
    "process prefix": lambda t: dressed(t, "(APIServer pid=12{0}) ").encode(),
    "comment": lambda t: dressed(t, "# ").encode(),
    "quote": lambda t: dressed(t, "> ").encode(),
    "indented": lambda t: dressed(t, "        ").encode(),
    "tabs": lambda t: re.sub(r":  +", ":\t\t", t).encode(),
    "no-break spaces": lambda t: re.sub(r":  +", ":\u00a0\u00a0", t).encode(),
    "in a web page": lambda t: f"# Results\n```\n{t}```\nThe mean is fine.\n".encode(),
    "rubbish before": lambda t: b"\xff\xfe\xfa"[1:] + bytes(range(128, 255)) + b"\n" + t.encode(),
}


@pytest.mark.parametrize("dress", DRESSES)
@pytest.mark.parametrize("name", ["sglang-2558-overlap-on.txt", "vllm-project-vllm_pr25135.txt"])
def test_the_dress_of_a_block_does_not_matter(name: str, dress: str, read_bytes: Read) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    plain = only(read_reports(FOLDER / name))
    report = only(read_bytes(DRESSES[dress](text)))
    assert report.metrics == plain.metrics and report.settings == plain.settings
    assert (report.unknown, report.truncated, report.tool) == ((), False, plain.tool)


def test_a_word_before_a_label_is_no_prefix(read_bytes: Read) -> None:
    report = only(read_bytes(ON.replace("Mean TTFT", "Baseline Mean TTFT").encode()))
    assert "mean_ttft_ms" not in report.metrics
    assert [r.split(":")[0] for r in report.unknown] == ["Baseline Mean TTFT (ms)"]


def test_decimal_commas_and_grouped_digits(read_bytes: Read) -> None:
    text = (
        ON.replace("1026288", "1.026.288").replace(".61", ",61").replace("42.32", "42,32").replace("506842", "506 842")
    )
    text = re.sub(r"(\d)\.(\d\d)\b(?!\d)(?!\.\d{3})", r"\1,\2", text)
    report = only(read_bytes(text.encode()))
    assert report.metrics == only(read_reports(FOLDER / "sglang-2558-overlap-on.txt")).metrics


def test_a_number_that_can_be_read_in_two_ways_is_not_read(read_bytes: Read) -> None:
    both = only(read_bytes(ON.replace("35.03", "35,03").replace("1026288", "1,026,288").encode()))
    assert "median_tpot_ms" not in both.metrics and "total_input_tokens" not in both.metrics
    assert any("decimal comma" in p for p in both.problems) and len(both.unknown) == 2
    lone = "==== Serving Benchmark Result ====\nSuccessful requests: 1,026\nTotal input tokens: 77\n==========\n"
    report = only(read_bytes(lone.encode()))
    assert report.metrics == {"total_input_tokens": 77} and report.unknown == ("Successful requests: 1,026",)
    comma = lone.replace("77", "77,5").replace("1,026", "1.026")
    assert only(read_bytes(comma.encode())).metrics == {"total_input_tokens": 77.5}
    point = lone.replace("77", "77.5")
    assert only(read_bytes(point.encode())).metrics == {"completed": 1026, "total_input_tokens": 77.5}


def test_translated_labels_are_unknown_rows(read_bytes: Read) -> None:
    text = ON.replace("Mean TTFT (ms)", "Mittlere TTFT (ms)").replace("Median ITL", "中位数 ITL")
    report = only(read_bytes(text.encode()))
    assert [row.split(":")[0] for row in report.unknown] == ["Mittlere TTFT (ms)", "中位数 ITL (ms)"]
    assert "mean_ttft_ms" not in report.metrics and report.metrics["mean_tpot_ms"] == 42.32


@pytest.mark.parametrize(
    "value", ["nan", "inf", "-", "N/A", "1e999", "12.3 (+5%)", "12.3.4", "0x1F", "٣٤", "1 2", "", "12,"]
)
def test_what_is_no_number_stays_text(value: str, read_bytes: Read) -> None:
    report = only(read_bytes(ON.replace("5381.80", value).encode()))
    assert "mean_ttft_ms" not in report.metrics
    assert any(row.startswith("Mean TTFT (ms):") for row in report.unknown)
    assert len(report.metrics) == 19


def test_two_rows_that_disagree_are_both_shown(read_bytes: Read) -> None:
    report = only(
        read_bytes(ON.replace("Mean TPOT", "Mean TTFT (ms): 1.25\nMean TTFT (ms): 5381.8\nMean TPOT").encode())
    )
    assert report.metrics["mean_ttft_ms"] == 5381.8
    assert report.unknown == ("Mean TTFT (ms): 1.25",)
    assert report.problems == ("mean_ttft_ms is there twice: the first is taken",)


def test_doubled_blocks_and_two_runs(read_bytes: Read) -> None:
    off = (FOLDER / "sglang-2558-overlap-off.txt").read_text(encoding="utf-8")
    first, second, third = read_bytes(f"{off}\n{ON}\nbye\n{ON}".encode()).reports
    assert (first.run, second.run, third.run) == (1, 2, 3)
    assert first.metrics["duration"] == 59.99 and second.metrics == third.metrics
    assert second.problems == () and third.problems == ("the same as run 2",)
    assert second.line == len(off.splitlines()) + 2


def test_two_runs_of_trtllm_bench(read_bytes: Read) -> None:
    text = BLOCKS[1].read_text(encoding="utf-8")
    first, second = read_bytes(f"{text}[TRT-LLM] [I] next\n{text}".encode()).reports
    assert first.metrics == second.metrics and len(first.metrics) == 35 and not first.truncated


def test_a_block_in_a_long_log_ends_somewhere(read_bytes: Read) -> None:
    head = "\n".join(ON.splitlines()[:12])
    log = "\n".join(f"INFO: request {i} done" for i in range(1000))
    report = only(read_bytes(f"{head}\n{log}\n".encode()))
    assert report.truncated and len(report.unknown) == MOST_STRANGE_LINES


def test_kept_rows_are_limited_and_counted(read_bytes: Read) -> None:
    rows = "".join(f"Strange row {i}: {i}\nMean TTFT (ms): 5381.80\n" for i in range(1000))
    report = only(read_bytes(ON.replace("Mean TPOT", f"{rows}Mean TPOT").encode()))
    assert len(report.unknown) == MOST_UNKNOWN_ROWS and report.dropped == 1000 - MOST_UNKNOWN_ROWS
    assert report.metrics == only(read_reports(FOLDER / "sglang-2558-overlap-on.txt")).metrics


def test_a_row_that_is_too_long_is_no_number(read_bytes: Read) -> None:
    long_row = f"Mean TTFT (ms):{' ' * (MOST_CHARACTERS - 16)}5381.80"
    reading = read_bytes(re.sub("Mean TTFT.*", long_row, ON).encode())
    assert "mean_ttft_ms" not in only(reading).metrics
    assert reading.problems == ("1 lines have over 4096 characters: their ends were not read",)


def test_no_more_runs_than_the_limit(read_bytes: Read) -> None:
    block = "==== Serving Benchmark Result ====\nBenchmark duration (s): {}\n==========\n"
    reading = read_bytes("".join(block.format(i) for i in range(MOST_RUNS + 5)).encode())
    assert len(reading.reports) == MOST_RUNS and "more than 1000 runs" in reading.problems[0]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the file is empty"),
        (b"hello\n", "no result block"),
        (bytes(range(256)) * 400, "a binary file"),
        (b"\x7fELF\x02" + b"\x00\x01\x02\x03" * 100_000, "a binary file"),
        (b"=" * 1_000_000, "no result block"),
        (b"=== a ===\nb: 1\n" * 100, "no result block"),
        ("Mean TTFT ms 12".encode("utf-16"), "no result block"),
    ],
)
def test_nothing_to_read_says_why(content: bytes, why: str, read_bytes: Read) -> None:
    reading = read_bytes(content)
    assert reading.reports == () and reading.problems[0].startswith(why)


def numbers_are_of(report: Report, plain: Report) -> bool:
    return all(plain.metrics.get(name) == value for name, value in report.metrics.items())


@pytest.mark.parametrize("path", BLOCKS, ids=lambda p: p.stem[:40])
def test_cut_off_anywhere(path: Path, read_bytes: Read) -> None:
    """No wrong number, and what is missing is told."""
    content = path.read_bytes()
    plain = only(read_reports(path))
    for end in range(7, len(content) - 80, 41):
        for report in read_bytes(content[:end]).reports:
            assert numbers_are_of(report, plain)
            whole = len(report.metrics) == len(plain.metrics)
            may_end_here = report.tool == "trtllm-bench" and "duration" in report.metrics  # at a rule between sections
            assert report.truncated or report.problems or whole or may_end_here
    for start in range(0, len(content), 83):
        for report in read_bytes(content[start:]).reports:
            assert len(report.metrics) <= len(plain.metrics)
            assert report.truncated or report.metrics == plain.metrics or report.tool == "trtllm-bench"


@FAST
@given(data=st.data())
def test_lines_that_move_vanish_or_double(data: st.DataObject, read_bytes: Read) -> None:
    path = data.draw(st.sampled_from(BLOCKS))
    rows = path.read_text(encoding="utf-8").splitlines()
    plain = only(read_reports(path))
    for _ in range(data.draw(st.integers(1, 6))):
        i, j = (data.draw(st.integers(0, len(rows) - 1)) for _ in range(2))
        what = data.draw(st.sampled_from(["drop", "swap", "double", "insert"]))
        if what == "drop" and len(rows) > 2:
            del rows[i]
        elif what == "swap":
            rows[i], rows[j] = rows[j], rows[i]
        elif what == "double":
            rows.insert(j, rows[i])
        else:
            rows.insert(i, data.draw(st.text(st.characters(exclude_characters="0123456789"), max_size=60)))
    for report in read_bytes("\n".join(rows).encode("utf-8", "replace")).reports:
        assert numbers_are_of(report, plain)


@FAST
@given(data=st.data())
def test_any_damage_gives_a_report_or_a_reason(data: st.DataObject, read_bytes: Read) -> None:
    content = bytearray(data.draw(st.sampled_from(BLOCKS)).read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(content)))
        content[at : at + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=20))
    check(read_bytes(bytes(content)))


MARKS = st.text(alphabet='={}[]"-\n\r :MeanTTFT(ms)0159.,\\', max_size=400).map(str.encode)


@FAST
@given(content=st.one_of(st.binary(max_size=400), MARKS))
def test_any_bytes_give_reports_or_a_reason(content: bytes, read_bytes: Read) -> None:
    check(read_bytes(content))


def check(reading: Reading) -> None:
    assert reading.reports or reading.problems
    for report in reading.reports:
        json.dumps(report.to_json(), allow_nan=False)
        assert set(report.units) == set(report.metrics)
        assert "\x1b" not in "".join(report.unknown)
