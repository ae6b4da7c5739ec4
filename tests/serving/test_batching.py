"""Continuous batching: memory is never exceeded, no token is lost or made up, whatever order results come in."""

from __future__ import annotations

from collections import deque

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from microbench.serving.batching import ContinuousBatching, Limits, Step


def batching(prompt: list[int], produced: list[int], **limits: int) -> ContinuousBatching:
    return ContinuousBatching(np.array(prompt), np.array(produced), Limits(**limits))


def run(b: ContinuousBatching, late: int, trickle: bool = False) -> list[Step]:
    """Form every batch before the `late` last results are settled; `trickle`: requests arrive one a step."""
    steps: list[Step] = []
    flying: deque[Step] = deque()
    coming = list(range(len(b.prompt)))
    if not trickle:
        b.arrive(coming)
        coming = []
    while not b.all_finished:
        if coming:
            b.arrive([coming.pop(0)])
        step = b.next()
        assert step or flying or coming, "stuck"
        assert b.used == b.slots.sum() <= b.limits.kv_tokens
        if step:
            steps.append(step)
            flying.append(step)
        while flying and (len(flying) > late or step is None):
            b.settle(flying.popleft())
            if step is None:
                break
        assert len(steps) < 100_000
    while flying:
        b.settle(flying.popleft())
    return steps


def test_one_request_by_hand() -> None:
    b = batching([5], [3], kv_tokens=100)
    steps = run(b, late=0)
    assert [(s.prefill, s.query.tolist(), s.context.tolist()) for s in steps] == [
        (True, [5], [5]),
        (False, [1], [6]),
        (False, [1], [7]),
    ]
    assert (b.used, b.most_used, b.dead_rows) == (0, 7, 0)


def test_settled_one_step_late_there_is_one_dead_row_a_request() -> None:
    b = batching([5, 7], [3, 9], kv_tokens=100)
    steps = run(b, late=1)
    assert [len(s.rows) for s in steps] == [2, *[2] * 3, *[1] * 6]
    assert (b.dead_rows, b.used) == (2, 0)
    assert b.done.tolist() == [3, 9]


def test_a_long_prompt_is_cut_into_chunks_and_only_the_last_gives_a_token() -> None:
    b = batching([25, 3], [2, 2], kv_tokens=100, chunk_tokens=10)
    steps = run(b, late=0)
    prefills = [s for s in steps if s.prefill]
    assert [s.query.tolist() for s in prefills] == [[10], [10], [5, 3]]
    assert [s.context.tolist() for s in prefills] == [[10], [20], [25, 3]]
    assert [s.emits.tolist() for s in prefills] == [[False], [False], [True, True]]


def test_a_request_waits_until_its_prompt_and_output_fit() -> None:
    b = batching([40, 40], [10, 10], kv_tokens=60)
    steps = run(b, late=0)
    assert [len(s.rows) for s in steps] == [1] * 20
    assert b.retractions == 0


def test_memory_that_runs_out_sends_a_request_back_and_its_tokens_are_kept() -> None:
    # Of a running request only a share of the output to come is reserved: the second is let in, and later can't stay.
    b = batching([10, 10], [60, 60], kv_tokens=126)
    run(b, late=0, trickle=True)
    assert b.retractions > 0
    assert b.done.tolist() == [60, 60]
    assert b.used == 0


def test_no_more_requests_run_than_allowed() -> None:
    b = batching([4] * 9, [5] * 9, kv_tokens=1000, running=3)
    assert max(len(s.rows) for s in run(b, late=0) if not s.prefill) == 3
    assert b.done.tolist() == [5] * 9


def test_a_request_known_to_end_is_left_out_where_the_engine_does_so() -> None:
    b = ContinuousBatching(np.array([5, 7]), np.array([1, 4]), Limits(kv_tokens=100), skips_finishing=True)
    steps = run(b, late=1)
    assert [len(s.rows) for s in steps] == [2, 1, 1, 1]
    assert (b.dead_rows, b.used) == (0, 0)


workloads = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 25)), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(
    lengths=workloads,
    spare=st.integers(0, 60),
    chunk=st.integers(1, 40),
    running=st.integers(1, 12),
    late=st.integers(0, 3),
    trickle=st.booleans(),
    skips=st.booleans(),
)
def test_every_request_gets_exactly_its_tokens_within_the_memory(
    lengths: list[tuple[int, int]], spare: int, chunk: int, running: int, late: int, trickle: bool, skips: bool
) -> None:
    prompt, produced = [p for p, _ in lengths], [o for _, o in lengths]
    room = max(p + o for p, o in lengths) + 1 + spare
    limits = Limits(kv_tokens=room, chunk_tokens=chunk, running=running)
    b = ContinuousBatching(np.array(prompt), np.array(produced), limits, skips_finishing=skips)
    steps = run(b, late, trickle=trickle)
    told = np.concatenate([s.told for s in steps if s.told is not None])
    assert np.bincount(told, minlength=len(prompt)).tolist() == produced == b.done.tolist()
    assert b.used == 0
    assert not b.slots.any()
    assert b.most_used <= room
    assert all(s.query.sum() <= chunk for s in steps if s.prefill)
    assert all((s.context >= s.query).all() for s in steps)
    if late == 0 or skips:
        assert b.dead_rows == 0
    if not b.retractions:
        assert sum(int(s.query.sum()) for s in steps if s.prefill) == sum(prompt)
