"""Batches and their sums."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthetic_models import Batch


def test_decode() -> None:
    batch = Batch.decode(500, 2048)
    assert (batch.size, batch.query_tokens, batch.context_tokens) == (500, 500, 1_024_000)
    assert batch.attention_pairs == 1_024_000
    assert batch.is_decode


def test_prefill() -> None:
    batch = Batch.prefill(2, 4)
    assert (batch.size, batch.query_tokens, batch.context_tokens) == (2, 8, 8)
    assert batch.attention_pairs == 2 * (1 + 2 + 3 + 4)
    assert not batch.is_decode


def test_equal_batches_are_equal_whatever_was_computed() -> None:
    one, other = Batch.decode(3, 7), Batch.decode(3, 7)
    assert one.context_tokens == 21
    assert one == other and hash(one) == hash(other)


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 50)), min_size=1, max_size=5))
def test_pairs_are_those_of_a_causal_mask(rows: list[tuple[int, int]]) -> None:
    batch = Batch(query_lens=tuple(q for q, _ in rows), context_lens=tuple(q + past for q, past in rows))
    assert batch.attention_pairs == sum(past + i + 1 for q, past in rows for i in range(q))


@pytest.mark.parametrize(
    ("query", "context", "message"),
    [
        ((), (), "query_lens must be a tuple of at least one positive integer"),
        ((0,), (1,), "query_lens must be a tuple of at least one positive integer"),
        ((1,), (0,), "context_lens must be a tuple of at least one positive integer"),
        ((True,), (1,), "query_lens must be a tuple of at least one positive integer"),
        ((1.0,), (1,), "query_lens must be a tuple of at least one positive integer"),
        ([1], (1,), "query_lens must be a tuple of at least one positive integer"),
        ((1, 1), (1,), "2 query_lens but 1 context_lens"),
        ((2,), (1,), "context_lens include the new tokens, so none may be smaller than its query_lens"),
    ],
)
def test_what_is_refused(query: object, context: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        Batch(query_lens=query, context_lens=context)  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.parametrize("n", [0, -1])
def test_a_batch_has_rows(n: int) -> None:
    with pytest.raises(ValueError, match="query_lens must be a tuple"):
        Batch.decode(n, 5)
