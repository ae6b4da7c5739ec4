"""Engine work: what grows with what, and that prices follow."""

from __future__ import annotations

import pytest

from microbench.engines import ENGINES, Workload, engine, real_work
from microbench.engines.prices import PIECES, HostProfile, Price, shipped_profile
from microbench.engines.pricing import _fit
from microbench.errors import UsageError


def bytes_sent(name: str, *, generated: int, stream: bool = True) -> int:
    """Bytes one step sends to the detokenizer."""
    work = real_work(
        engine(name), Workload(requests=4, max_prompt=64, generated=generated, stream=stream), overlap=False
    )
    try:
        for _ in range(2):
            batch = work.schedule()
            work.outputs(batch, batch.next_ids())
            before = work.sent_bytes
            work.process(batch, [11] * batch.size)
            work.stream(batch)
        return work.sent_bytes - before
    finally:
        work.close()


def test_rebuilt_output_grows_with_every_token_and_incremental_output_does_not() -> None:
    assert bytes_sent("sglang-0.4.0.post1", generated=400) > 2 * bytes_sent("sglang-0.4.0.post1", generated=40)
    short, long = (bytes_sent("sglang-0.5.4", generated=n) for n in (40, 400))
    assert abs(long - short) < 0.1 * short


def test_without_streaming_nothing_is_sent_before_the_end() -> None:
    assert bytes_sent("sglang-0.4.0.post1", generated=40, stream=False) == 0
    assert bytes_sent("minimal", generated=40) == 0


@pytest.mark.parametrize("name", ENGINES)
def test_rewinding_brings_back_the_first_lengths(name: str) -> None:
    work = real_work(engine(name), Workload(requests=3, max_prompt=8, generated=5, output_tokens=(2, 4)), overlap=True)
    try:
        first = [list(r.output_ids) for r in work.all_requests]
        lengths = work.batch.seq_lens.tolist()
        while (batch := work.schedule()) is not None:
            ids = batch.next_ids()
            work.outputs(batch, ids)
            work.process(work.snapshot(batch), ids.tolist())
            work.stream(batch)
        assert all(r.finished() for r in work.all_requests)
        work.rewind()
        assert [list(r.output_ids) for r in work.all_requests] == first
        assert work.batch.seq_lens.tolist() == lengths
        assert not any(r.finished() for r in work.all_requests)
        assert work.schedule().size == 3
    finally:
        work.close()


def test_the_detokenizer_process_ends_with_the_work() -> None:
    work = real_work(engine("minimal"), Workload(requests=1, max_prompt=4), overlap=False)
    sink = work._sink
    assert sink.poll() is None
    work.close()
    assert sink.poll() is not None


@pytest.mark.parametrize(
    ("name", "batch", "graph"),
    [
        ("sglang-0.4.0.post1", 1, 1),
        ("sglang-0.4.0.post1", 3, 4),
        ("sglang-0.4.0.post1", 157, 160),
        ("sglang-0.4.0.post1", 161, None),
        ("sglang-0.5.4", 200, 200),
        ("sglang-0.5.4", 257, None),
        ("minimal", 500, 512),
    ],
)
def test_a_batch_is_padded_up_to_the_next_captured_graph(name: str, batch: int, graph: int | None) -> None:
    assert engine(name).captured_batch(batch) == graph


def test_unknown_engines_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"unknown engine 'vllm'; known: sglang-0\.4\.0\.post1, "):
        engine("vllm")


def test_the_shipped_profile_prices_every_piece_of_every_engine() -> None:
    profile = shipped_profile()
    assert set(profile.prices) == set(ENGINES)
    assert all(set(prices) == set(PIECES) for prices in profile.prices.values())
    assert HostProfile.from_json(profile.to_json()) == profile


def test_the_fit_finds_the_prices_it_was_made_from() -> None:
    true = Price(fixed=5_000, per_request=700, per_prompt_token=4, per_output_token=20)
    rows = [
        (500, 1_000_000, 8_000),
        (500, 250_000, 8_000),
        (500, 1_000_000, 256_000),
        (160, 320_000, 10_000),
        (4, 9_000, 64),
    ]
    found = _fit(rows, [true.held_ns(*row) for row in rows], 0)
    for row in rows:
        assert found.held_ns(*row) == pytest.approx(true.held_ns(*row), rel=0.01)
    # a coefficient that would come out negative is dropped instead
    assert _fit(rows, [10_000.0 - row[0] for row in rows], 0).per_request == 0
