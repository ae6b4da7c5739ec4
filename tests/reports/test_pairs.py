"""The public pairs that ship with the package, and a user's own table."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from microbench.errors import UsageError
from microbench.reports import Pair, public_pairs, read_pairs
from microbench.reports.pairs import COLUMNS
from synthetic_models import gpu

ROW = {
    **dict.fromkeys(COLUMNS, ""),
    "id": "mine",
    "engine": "sglang",
    "metric": "duration",
    "unit": "s",
    "better": "lower",
    "value_on": "69.61",
    "value_off": "59.99",
    "kind": "flag_toggle",
    "primary": "1",
    "rate": "inf",
    "prompts": "500",
}
Read = Callable[[str], tuple[Pair, ...]]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Read:
    path = tmp_path_factory.mktemp("pairs") / "pairs.csv"

    def read(text: str) -> tuple[Pair, ...]:
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        return read_pairs(path)

    return read


def table(*rows: dict[str, str]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(COLUMNS))
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def message(read: Read, text: str) -> str:
    with pytest.raises(UsageError) as caught:
        read(text)
    line = str(caught.value)
    assert "\n" not in line and len(line) < 600
    return line.partition("pairs.csv")[2]


def test_every_public_pair_is_complete() -> None:
    pairs = public_pairs()
    assert len(pairs) == 150
    assert all(p.url.startswith("https://github.com/") and p.flag_on and p.flag_off and p.unit != "?" for p in pairs)
    primary = [p for p in pairs if p.primary]
    assert len({p.id for p in pairs}) == len(primary) == len({p.id for p in primary}) == 57
    assert len({(p.id, p.metric) for p in pairs}) == len(pairs)
    assert all(p.speedup is not None for p in primary)
    for pair in pairs:
        if pair.gpu_name:
            assert gpu(pair.gpu_name).name == pair.gpu_name


def test_public_pairs_are_the_published_figures() -> None:
    found = {(p.id, p.metric): p for p in public_pairs()}
    pair = found["gpustack-gpt-oss-20b-h100-sharegpt", "output_throughput"]
    assert (pair.value_on, pair.value_off, pair.gpu_name, pair.rate, pair.prompts) == (
        9064.4,
        7817.03,
        "h100",
        math.inf,
        1000,
    )
    assert pair.speedup == pytest.approx(1.1596, abs=1e-4)
    slower = found["sglang-10514", "mean_ttft_ms"]
    assert slower.ratio == pytest.approx(1.4700, abs=1e-4) and slower.speedup == pytest.approx(0.6803, abs=1e-4)
    assert found["sglang-jax-1614-16K-256-c16", "p95_ttft_ms"].value_on == 7959


def test_a_table_of_ones_own(read: Read) -> None:
    (pair,) = read("\ufeff" + table(ROW))
    assert (pair.id, pair.rate, pair.prompts, pair.params_b, pair.primary) == ("mine", math.inf, 500, None, True)
    assert pair.speedup == pytest.approx(59.99 / 69.61)
    assert read(table({**ROW, "better": ""}))[0].speedup is None


@pytest.mark.parametrize(
    ("column", "cell", "why"),
    [
        ("value_on", "", "'' is no number"),
        ("value_on", "fast", "'fast' is no number"),
        ("value_off", "0", "'0' is not above 0 and finite"),
        ("value_off", "nan", "'nan' is not above 0 and finite"),
        ("value_on", "1e999", "'1e999' is not above 0 and finite"),
        ("prompts", "5.5", "'5.5' is no whole number above 0"),
        ("gpus", "٣", "'٣' is no whole number above 0"),
        ("better", "more", "'more' is not one of lower, higher, (empty)"),
        ("primary", "yes", "'yes' is not one of 0, 1"),
        ("id", " ", "is empty"),
        ("kind", "guess", "'guess' is not one of flag_toggle, "),
        ("params_b", "-3", "'-3' is not above 0 and finite"),
    ],
)
def test_a_wrong_cell_is_named_by_line_and_column(column: str, cell: str, why: str, read: Read) -> None:
    line = message(read, table(ROW, {**ROW, column: cell}))
    assert line.startswith(f", line 3, column '{column}': {why}")


def test_a_wrong_table_is_refused(read: Read) -> None:
    assert message(read, "").startswith(": empty; its first line must name the columns: id, url")
    assert message(read, table()) == ": no pair below the header"
    assert message(read, "id,colour\n").startswith(", line 1: unknown column 'colour'; known: id, url")
    assert message(read, "id,id\n").startswith(", line 1: column 'id' is there twice")
    assert message(read, "id\n").startswith(", line 1: column 'url' is missing")
    assert message(read, table(ROW) + "a,b\n").startswith(f", line 3: 2 cells for {len(COLUMNS)} columns")
    assert message(read, table(ROW) + '"open').startswith(", line 3: no valid CSV")
    assert "no valid CSV" in message(read, table(ROW) + "x" * 200_000)


def test_a_path_that_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes(b"id,\xe9\xff\n")
    for name, why in ((".", "a folder"), ("nope.csv", "no such file"), ("latin.csv", "not UTF-8 text")):
        with pytest.raises(UsageError, match=why):
            read_pairs(tmp_path / name)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.text(max_size=80), st.text(alphabet='",\n\r\x00a1', max_size=80).map(lambda t: table(ROW) + t)))
def test_any_text_gives_pairs_or_one_line(read: Read, text: str) -> None:
    try:
        assert read(text)
    except UsageError as error:
        assert "\n" not in str(error)
