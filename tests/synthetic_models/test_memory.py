"""What fits beside the weights."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthetic_models import (
    ARCHITECTURES,
    GPUS,
    Architecture,
    DoesNotFit,
    Gpu,
    architecture,
    check_fits,
    gpu,
    kv_capacity_tokens,
    max_batch,
)

ANY_GPU = st.sampled_from(list(GPUS.values()))
MODELS = st.sampled_from(list(ARCHITECTURES.values()))


def test_capacity_by_hand() -> None:
    # (80 GiB * 0.9 - 6,171,877,376) / 36,864
    assert kv_capacity_tokens(architecture("qwen2.5-3b"), gpu("a100")) == 1_929_729
    assert max_batch(architecture("qwen2.5-3b"), gpu("a100"), 2048) == 942


@given(MODELS, ANY_GPU, st.integers(1, 100_000), st.floats(0.1, 1))
def test_the_largest_batch_fits_and_one_more_does_not(
    model: Architecture, each: Gpu, context: int, usable: float
) -> None:
    n = max_batch(model, each, context, usable=usable)
    if n:
        check_fits(model, each, n, context, usable=usable)
        used = model.weight_bytes + n * context * model.kv_bytes_per_token
        assert used <= each.memory_bytes * usable
    with pytest.raises(DoesNotFit, match=f"at most batch {n} does"):
        check_fits(model, each, n + 1, context, usable=usable)


def test_the_message_says_how_many_fit() -> None:
    with pytest.raises(DoesNotFit) as caught:
        check_fits(architecture("qwen2.5-3b"), gpu("a100"), 943, 2048)
    assert str(caught.value) == "qwen2.5-3b on a100-80g: batch 943 at context 2048 does not fit, at most batch 942 does"


def test_the_message_says_when_the_weights_alone_do_not_fit() -> None:
    with pytest.raises(DoesNotFit) as caught:
        check_fits(architecture("qwen2.5-72b"), gpu("a100"), 4, 2048)
    assert str(caught.value) == (
        "qwen2.5-72b on a100-80g: batch 4 at context 2048 does not fit, at most batch 0 does: "
        "the weights alone take 145.4 GB of 77.3 GB usable"
    )
    assert kv_capacity_tokens(architecture("qwen2.5-72b"), gpu("a100")) == 0


@pytest.mark.parametrize("usable", [0, -0.1, 1.01, float("nan")])
def test_usable_is_a_share(usable: float) -> None:
    with pytest.raises(ValueError, match=r"^usable must be above 0 and at most 1, not "):
        kv_capacity_tokens(architecture("qwen2.5-3b"), gpu("a100"), usable=usable)


@pytest.mark.parametrize(
    ("n", "context", "field"), [(0, 5, "n"), (5, 0, "context"), (True, 5, "n"), (5, 1.5, "context")]
)
def test_counts_are_positive_integers(n: int, context: int, field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field} must be a positive integer, not "):
        check_fits(architecture("qwen2.5-3b"), gpu("a100"), n, context)
