"""Work of the kernels of a step: by hand, and what must hold for any batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthetic_models import ARCHITECTURES, Architecture, Batch, Kernel, architecture, decode_step, prefill_step

MODELS = st.sampled_from(list(ARCHITECTURES.values()))


def launches(kernels: tuple[Kernel, ...], *, sampling: bool) -> int:
    return sum(kernel.launches for kernel in kernels if (kernel.kind == "sampling") == sampling)


def named(kernels: tuple[Kernel, ...], name: str) -> Kernel:
    return next(kernel for kernel in kernels if kernel.name == name)


def test_a_layer_of_qwen2_launches_twelve_kernels() -> None:
    step = decode_step(architecture("qwen2.5-0.5b"), Batch.decode(8, 100))
    assert launches(step, sampling=False) == 24 * 12 + 3 == 288 + 3
    assert launches(step, sampling=True) == 10


def test_qk_norm_adds_two_and_prefill_attention_saves_one() -> None:
    qwen3, qwen2 = architecture("qwen3-0.6b"), architecture("qwen2.5-0.5b")
    assert launches(decode_step(qwen3, Batch.decode(8, 100)), sampling=False) == 28 * 14 + 3
    assert launches(prefill_step(qwen2, Batch.prefill(8, 100)), sampling=False) == 24 * 11 + 3


def test_launch_order() -> None:
    step = decode_step(architecture("qwen2.5-0.5b"), Batch.decode(1, 1))
    names = [kernel.name for kernel in step]
    assert names[0] == "embedding"
    assert names[1:12] == names[12:23] == [
        "attention_norm", "qkv", "rope", "kv_write", "attention", "attention_combine", "o", "mlp_norm", "gate_up",
        "activation", "down",
    ]  # fmt: skip
    assert names[-3:] == ["final_norm", "lm_head", "sampling"]


def test_work_by_hand() -> None:
    # Qwen2.5-0.5B, 2 rows at context 100: 14 query and 2 KV heads of 64, hidden 896, MLP 4864, vocabulary 151936.
    step = decode_step(architecture("qwen2.5-0.5b"), Batch.decode(2, 100))
    qkv = named(step, "qkv")
    assert (qkv.m, qkv.n, qkv.k) == (2, 1152, 896)
    assert qkv.flops == 2 * 2 * 1152 * 896 + 2 * 1152
    assert qkv.weight_bytes == 2 * (1152 * 896 + 1152)
    assert qkv.read_bytes == qkv.weight_bytes + 2 * 2 * 896
    assert qkv.write_bytes == 2 * 2 * 1152
    attention = named(step, "attention")
    assert attention.flops == 4 * 200 * 896
    assert attention.read_bytes == 2 * (2 * 896 + 2 * 200 * 128)
    assert attention.write_bytes == named(step, "attention_combine").read_bytes == 4 * 2 * 14 * 65
    assert named(step, "rope").read_bytes == 2 * 2 * (896 + 128) + 4 * 2 * 64
    assert named(step, "kv_write").write_bytes == 2 * 2 * 2 * 128
    assert named(step, "mlp_norm").read_bytes == 2 * (2 * 2 * 896 + 896)
    assert named(step, "gate_up").n == 2 * 4864
    assert named(step, "activation").read_bytes == 2 * named(step, "activation").write_bytes == 2 * 2 * 2 * 4864
    assert named(step, "embedding").write_bytes == 2 * 2 * 896
    assert named(step, "lm_head").flops == 2 * 2 * 151936 * 896
    assert named(step, "sampling").read_bytes == 2 * 151936 * 14


def test_prefill_samples_only_the_last_token() -> None:
    step = prefill_step(architecture("qwen2.5-0.5b"), Batch.prefill(3, 50))
    assert named(step, "qkv").m == 150
    assert named(step, "lm_head").m == 3
    assert named(step, "attention").flops == 4 * 896 * 3 * 50 * 51 // 2


def test_a_decode_step_takes_one_token_per_row() -> None:
    with pytest.raises(ValueError, match=r"^a decode step has one query token per row; use prefill_step$"):
        decode_step(architecture("qwen2.5-0.5b"), Batch.prefill(1, 2))


@given(MODELS, st.integers(1, 600), st.integers(1, 10_000))
def test_a_step_reads_every_weight_once_but_the_embedding_only_where_asked(
    model: Architecture, n: int, context: int
) -> None:
    step = decode_step(model, Batch.decode(n, context))
    row = model.hidden * model.dtype_bytes
    unread = 0 if model.tied_embeddings else model.vocab * row
    assert named(step, "embedding").weight_bytes == n * row
    assert sum(kernel.weight_bytes for kernel in step[1:]) == model.weight_bytes - unread
    assert all(kernel.weight_bytes <= kernel.read_bytes for kernel in step)


@given(MODELS, st.integers(1, 600), st.integers(1, 10_000))
def test_a_step_reads_and_writes_the_kv_cache_once(model: Architecture, n: int, context: int) -> None:
    step = decode_step(model, Batch.decode(n, context))
    queries = n * model.q_width * model.dtype_bytes * model.layers
    read = sum(kernel.read_bytes for kernel in step if kernel.kind == "attention")
    assert read - queries == n * context * model.kv_bytes_per_token
    assert sum(k.write_bytes for k in step if k.kind == "kv_write") == n * model.kv_bytes_per_token


@given(MODELS, st.integers(1, 600), st.integers(1, 10_000), st.integers(1, 100))
def test_work_grows_with_batch_and_context(model: Architecture, n: int, context: int, more: int) -> None:
    base = decode_step(model, Batch.decode(n, context))
    for grown in (
        decode_step(model, Batch.decode(n + more, context)),
        decode_step(model, Batch.decode(n, context + more)),
    ):
        for one, other in zip(base, grown, strict=True):
            assert other.flops >= one.flops
            assert other.read_bytes >= one.read_bytes
            assert other.write_bytes >= one.write_bytes


@given(MODELS, st.integers(1, 100))
def test_two_flops_per_weight_and_token(model: Architecture, n: int) -> None:
    step = decode_step(model, Batch.decode(n, 1))
    flops = sum(kernel.flops for kernel in step if kernel.kind == "gemm")
    matrices = model.parameters - (0 if model.tied_embeddings else model.vocab * model.hidden)
    assert flops == pytest.approx(2 * n * matrices, rel=0.001)
