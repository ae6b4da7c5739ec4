"""Numbers in any notation that can be read in one way only."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microbench.reports.numbers import decimal_marks, parse_number

NONE: frozenset[str] = frozenset()
POINT, COMMA = frozenset("."), frozenset(",")


@pytest.mark.parametrize(
    ("text", "marks", "value"),
    [
        ("59.99", NONE, 59.99),
        ("59.", NONE, 59),
        ("-3", NONE, -3),
        ("1.4117E+17", NONE, 1.4117e17),
        ("1.026", NONE, 1.026),  # as printed by the tools
        ("59,99", NONE, 59.99),
        ("1,026,288", NONE, 1026288),
        ("1.026.288", NONE, 1026288),
        ("1,026.28", NONE, 1026.28),
        ("1.026,28", NONE, 1026.28),
        ("1\u202f026\u202f288", NONE, 1026288),
        ("1 026,5", NONE, 1026.5),
        ("1,026", NONE, None),
        ("1,026", POINT, 1026),
        ("1,026", COMMA, None),
        ("1.026", COMMA, None),
        ("1.026", POINT, 1.026),
        ("59,99", POINT, None),
        ("59,99", POINT | COMMA, None),
        ("1,02,28", NONE, None),
        ("1 02", NONE, None),
        ("1e400", NONE, None),
        ("1" * 400, NONE, None),
        ("nan", NONE, None),
        ("١٢", NONE, None),
        ("1_000", NONE, None),
        ("", NONE, None),
    ],
)
def test_parse(text: str, marks: frozenset[str], value: float | None) -> None:
    assert parse_number(text, marks) == value


@pytest.mark.parametrize(
    ("texts", "marks"),
    [
        (["1,026", "1.026", "7"], ""),
        (["59.99"], "."),
        (["59,99"], ","),
        (["1,026,288"], "."),
        (["1.026.288"], ","),
        (["59.99", "59,99"], ".,"),
        (["rubbish", ""], ""),
    ],
)
def test_decimal_marks(texts: list[str], marks: str) -> None:
    assert decimal_marks(texts) == frozenset(marks)


@given(st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0))
def test_what_python_prints_is_read_back(value: float) -> None:
    text = repr(value)
    assert parse_number(text, decimal_marks([text])) == value


@given(st.integers(0, 10**12), st.sampled_from([1, 2, 4, 5]), st.booleans())
def test_grouped_digits_are_read_back(cents: int, digits: int, german: bool) -> None:
    value = cents / 10**digits
    text = f"{value:,.{digits}f}"
    if german:
        text = text.translate(str.maketrans(".,", ",."))
    assert parse_number(text, decimal_marks([text])) == float(f"{value:.{digits}f}")


@given(st.text(alphabet="0123456789., \u00a0+-eE", max_size=20), st.sampled_from([NONE, POINT, COMMA, POINT | COMMA]))
def test_any_text_is_a_finite_number_or_none(text: str, marks: frozenset[str]) -> None:
    value = parse_number(text, marks)
    assert value is None or math.isfinite(value)
    assert decimal_marks([text]) <= {".", ","}
