"""The real step against a reference that loops over rows, heads and positions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import pytest
import torch

from synthetic_models import Architecture
from synthetic_models.torch_kernels import (
    EPSILON,
    ROPE_BASE,
    WORKSPACE_BYTES,
    TransformerStep,
    cache_tokens,
    memory_bytes,
)

TINY = Architecture(
    name="tiny",
    layers=2,
    hidden=24,
    heads=4,
    kv_heads=2,
    head_dim=8,
    intermediate=40,
    vocab=50,
    tied_embeddings=True,
)
SHAPES = {
    "grouped": TINY,
    "bias, untied": replace(TINY, qkv_bias=True, tied_embeddings=False),
    "qk norm, one kv head": replace(TINY, qk_norm=True, kv_heads=1),
    "all, ungrouped": replace(TINY, qkv_bias=True, qk_norm=True, kv_heads=4, layers=1),
}


INPUTS = torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6])


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def cpu_step(architecture: Architecture = TINY, *, batch: int = 3, context: int = 16, seed: int = 0) -> TransformerStep:
    return TransformerStep(architecture, batch=batch, context=context, device="cpu", dtype=torch.float32, seed=seed)


def logits_of(step: TransformerStep, ids: torch.Tensor, seq_lens: torch.Tensor) -> torch.Tensor:
    step.forward(ids, seq_lens)
    assert step.logits is not None
    return step.logits


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.pow(2).mean() + EPSILON).sqrt() * weight


def rotated(x: torch.Tensor, position: int) -> torch.Tensor:
    """Dimensions i and i + half as one complex number, turned."""
    half = len(x) // 2
    angle = torch.tensor([position * ROPE_BASE ** (-i / half) for i in range(half)])
    turned = torch.complex(x[:half], x[half:]) * torch.polar(torch.ones(half), angle)
    return torch.cat((turned.real, turned.imag))


def reference(step: TransformerStep, cache: torch.Tensor, ids: list[int], seq_lens: list[int]) -> torch.Tensor:
    """Logits of each row; writes the new keys and values into `cache`."""
    a, logits = step.architecture, []
    for row, (token, seq_len) in enumerate(zip(ids, seq_lens, strict=True)):
        position = min(max(seq_len - 1, 0), step.context - 1)
        x = step.embedding[token % a.vocab]
        for index, layer in enumerate(step.layers):
            qkv = layer.qkv @ rms(x, layer.attention_norm)
            if layer.qkv_bias is not None:
                qkv = qkv + layer.qkv_bias
            q, k, v = (part.view(-1, a.head_dim) for part in torch.split(qkv, [a.q_width, a.kv_width, a.kv_width]))
            if layer.qk_norm is not None:
                q = torch.stack([rms(head, layer.qk_norm[0]) for head in q])
                k = torch.stack([rms(head, layer.qk_norm[1]) for head in k])
            keys, values = cache[index, 0, row], cache[index, 1, row]
            keys[position] = torch.stack([rotated(head, position) for head in k])
            values[position] = v
            attended = []
            for head in range(a.heads):
                kv_head = head // (a.heads // a.kv_heads)
                scores = keys[: position + 1, kv_head] @ rotated(q[head], position) / a.head_dim**0.5
                attended.append(scores.softmax(0) @ values[: position + 1, kv_head])
            x = x + layer.output @ torch.cat(attended)
            gate, up = (layer.gate_up @ rms(x, layer.mlp_norm)).view(2, -1)
            x = x + layer.down @ (gate / (1 + torch.exp(-gate)) * up)
        logits.append(step.head @ rms(x, step.final_norm))
    return torch.stack(logits)


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_cache_follow_the_reference(shape: str) -> None:
    step = cpu_step(SHAPES[shape])
    cache = step.cache.clone()
    ids, seq_lens = [3, 49, 1_000], [1, 9, 15]
    for _ in range(3):  # the last row runs into the end of its cache
        logits = logits_of(step, torch.tensor(ids, dtype=torch.int32), torch.tensor(seq_lens, dtype=torch.int32))
        torch.testing.assert_close(logits, reference(step, cache, ids, seq_lens), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(step.cache, cache, atol=1e-4, rtol=1e-4)
        sampled = step.sample()
        assert sampled.dtype == torch.int64
        ids, seq_lens = sampled.tolist(), [n + 1 for n in seq_lens]


def test_what_lies_behind_the_position_changes_nothing() -> None:
    step = cpu_step()
    before = logits_of(step, *INPUTS)
    step.cache[:, :, :, 6:] = 1e3
    assert torch.equal(before, logits_of(step, *INPUTS))
    step.cache[:, :, :, 0] = 2.0
    assert not torch.allclose(before, logits_of(step, *INPUTS))


def test_fewer_rows_than_built_for() -> None:
    few, full = cpu_step(), cpu_step()
    expected = logits_of(full, *INPUTS)[:2]
    torch.testing.assert_close(logits_of(few, *(values[:2] for values in INPUTS)), expected)
    assert few.sample().tolist() == full.sample().tolist()[:2]


def test_a_seed_decides_everything() -> None:
    one, same, other = (logits_of(cpu_step(seed=seed), *INPUTS) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.allclose(one, other)


def test_activations_stay_finite_in_bfloat16_over_many_layers() -> None:
    step = TransformerStep(replace(TINY, layers=40), batch=3, context=8, device="cpu")
    logits = logits_of(step, *INPUTS)
    assert logits.dtype == torch.bfloat16
    assert logits.isfinite().all()
    assert 0.01 < logits.float().std() < 10


def tensors(step: TransformerStep) -> dict[int, torch.Tensor]:
    """Every tensor that holds memory of its own, by address."""
    of_layers = [getattr(layer, field.name) for layer in step.layers for field in fields(layer)]
    everything = [*vars(step).values(), *of_layers]
    roots = [t if t._base is None else t._base for t in everything if isinstance(t, torch.Tensor)]
    return {t.data_ptr(): t for t in roots}


@pytest.mark.parametrize("shape", SHAPES)
def test_memory_is_told_up_front(shape: str) -> None:
    a, batch, context = SHAPES[shape], 3, 20
    step = TransformerStep(a, batch=batch, context=context, device="cpu")
    held = sum(t.nbytes for t in tensors(step).values())
    assert step.cache.nbytes == 32 * batch * a.kv_bytes_per_token
    indices = sum(t.nbytes for t in (step.tokens, step.first_slot, step.ids, step.seq_lens))
    tables = step.cos.nbytes + step.sin.nbytes
    assert held - indices - tables == a.weight_bytes + step.cache.nbytes
    assert held < memory_bytes(a, batch=batch, context=context) < held + WORKSPACE_BYTES + 10_000


def test_no_layer_shares_weights_with_another() -> None:
    step = cpu_step()
    matrices = [m.data_ptr() for x in step.layers for m in (x.qkv, x.output, x.gate_up, x.down)]
    assert len(set(matrices)) == 4 * TINY.layers


@pytest.mark.parametrize(("context", "tokens"), [(1, 16), (16, 16), (17, 32), (4096, 4096)])
def test_the_cache_is_whole_pages(context: int, tokens: int) -> None:
    assert cache_tokens(context) == tokens


def test_errors_are_one_line() -> None:
    with pytest.raises(ValueError, match=r"^head_dim of tiny must be even for RoPE, not 7$"):
        cpu_step(replace(TINY, head_dim=7))
    with pytest.raises(ValueError, match=r"^nothing to sample from: run a forward first$"):
        cpu_step().sample()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU that torch sees")
def test_on_a_gpu_attention_is_fused_and_memory_within_what_was_told() -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    a = replace(TINY, hidden=256, heads=8, head_dim=64, intermediate=1024, vocab=32_000, layers=4)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step = TransformerStep(a, batch=64, context=1024)
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]):
        logits = logits_of(step, torch.arange(64, device="cuda"), torch.full((64,), 1000, device="cuda"))
    assert logits.isfinite().all()
    assert torch.cuda.max_memory_allocated() - before <= memory_bytes(a, batch=64, context=1024)
