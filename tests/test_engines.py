"""Engine work: what grows with what, and that prices follow."""

from __future__ import annotations

from importlib import import_module

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


@pytest.mark.parametrize("name", [n for n in ENGINES if n != "sglang-0.4.0.post1"])
def test_later_engines_send_only_what_is_new(name: str) -> None:
    short, long = (bytes_sent(name, generated=n) for n in (40, 400))
    assert abs(long - short) <= 0.1 * short
    assert (short > 0) == (name != "minimal")


@pytest.mark.parametrize("name", ENGINES)
def test_without_streaming_nothing_is_sent_before_the_end(name: str) -> None:
    assert bytes_sent(name, generated=40, stream=False) == 0


@pytest.mark.parametrize("module", ["sglang", "sglang_0_4_0", "sglang_0_4_9", "sglang_0_5_15"])
def test_a_request_has_as_many_fields_as_the_engines(module: str) -> None:
    request_class = import_module(f"microbench.engines.{module}").Request
    request = request_class("r", [1, 2], [3], 9, True)
    assert len(vars(request)) == request_class.fields
    assert len(vars(request.sampling)) == request_class.sampling_fields


@pytest.mark.parametrize("name", ["sglang-0.5.23", "vllm-v1", "tensorrt-llm", "mini-sglang"])
def test_a_request_known_to_end_is_not_scheduled_again(name: str) -> None:
    assert engine(name).skips_finishing
    work = real_work(engine(name), Workload(requests=2, max_prompt=4, generated=3, output_tokens=(2, 2)), overlap=True)
    try:
        for _ in range(2):  # both steps in flight, neither result known
            batch = work.schedule()
            assert batch.size == 2
            work.outputs(batch, work.futures(batch))
        assert work.schedule() is None
    finally:
        work.close()


@pytest.mark.parametrize("name", ENGINES)
def test_rewinding_brings_back_the_first_lengths(name: str) -> None:
    work = real_work(engine(name), Workload(requests=3, max_prompt=8, generated=5, output_tokens=(2, 4)), overlap=True)
    try:
        first = [list(r.output_ids) for r in work.all_requests]
        lengths = work.batch.seq_lens.tolist()
        while (batch := work.schedule()) is not None:
            ids = batch.next_ids()
            work.outputs(batch, ids)
            taken = work.snapshot(batch)
            work.process(taken, ids.tolist())
            work.stream(taken)
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
        ("vllm-v1", 500, 512),
        ("tensorrt-llm", 129, None),
        ("minimal", 500, 512),
    ],
)
def test_a_batch_is_padded_up_to_the_next_captured_graph(name: str, batch: int, graph: int | None) -> None:
    assert engine(name).captured_batch(batch) == graph


@pytest.mark.parametrize(
    ("name", "gib", "largest"),
    [
        ("sglang-0.4.0.post1", 24, 8),
        ("sglang-0.4.9", 80, 160),
        ("sglang-0.4.9", 141, 256),
        ("sglang-0.4.9", 179, 512),
        ("sglang-0.5.4", 16, 8),
        ("sglang-0.5.4", 24, 16),
        ("sglang-0.5.4", 48, 32),
        ("sglang-0.5.4", 80, 256),
        ("sglang-0.5.4", 141, 256),
        ("sglang-0.5.4", 179, 512),
        ("mini-sglang", 79, 160),
        ("mini-sglang", 141, 256),
    ],
)
def test_graphs_reach_as_far_as_the_memory_allows(name: str, gib: int, largest: int) -> None:
    profile = engine(name)
    assert profile.captured_batch(largest, gib << 30) == largest
    assert profile.captured_batch(largest + 1, gib << 30) is None


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
