"""GPUs, kernel and step times."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthetic_models import (
    ARCHITECTURES,
    GPUS,
    Architecture,
    Batch,
    Gpu,
    Kernel,
    KernelClass,
    UnknownName,
    architecture,
    decode_step,
    gpu,
    kernel_ns,
    step_kernels,
    step_time,
)
from synthetic_models.fitted import FITTED
from synthetic_models.kernels import gemm

ANY_GPU = st.sampled_from(list(GPUS.values()))
MODELS = st.sampled_from(list(ARCHITECTURES.values()))

# ms of the forward of a bf16 decode step at context 2048, batch 1, 32, 128, 500: AIConfigurator 0.12.0 (Apache-2.0).
ESTIMATES = {
    ("a100", "qwen2.5-3b", "vLLM 0.14.0"): (6.40, 8.12, 15.11, 42.89),
    ("a100", "llama-3.1-8b", "vLLM 0.14.0"): (12.01, 19.14, 34.45, 115.63),
    ("h100", "qwen2.5-0.5b", "vLLM 0.24.0"): (1.21, 1.42, 2.47, 6.47),
    ("h100", "qwen2.5-3b", "vLLM 0.24.0"): (3.55, 4.41, 7.17, 19.52),
    ("h100", "llama-3.1-8b", "vLLM 0.24.0"): (6.24, 9.63, 18.13, 55.45),
    ("h200", "qwen2.5-0.5b", "SGLang 0.5.14"): (1.22, 1.30, 2.11, 5.33),
    ("h200", "qwen2.5-3b", "SGLang 0.5.14"): (2.89, 3.57, 5.83, 15.64),
    ("h200", "llama-3.1-8b", "SGLang 0.5.14"): (4.88, 6.92, 13.46, 47.10),
}


@pytest.mark.parametrize("key", ESTIMATES, ids=" ".join)
def test_decode_steps_come_near_the_estimates(key: tuple[str, str, str]) -> None:
    name, model, _ = key
    errors = [
        abs(step_time(architecture(model), gpu(name), Batch.decode(n, 2048)).forward_total_ns / 1e6 / ms - 1)
        for n, ms in zip((1, 32, 128, 500), ESTIMATES[key], strict=True)
    ]
    assert median(errors) < 0.12
    assert max(errors) < 0.25


def test_the_names() -> None:
    assert list(GPUS) == ["a100-80g", "h100", "h200", "b200", "l4", "l40s", "a10g", "rtx-4090"]


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("A100", "a100-80g"),
        ("NVIDIA A100-SXM4-80GB", "a100-80g"),
        ("a100_sxm", "a100-80g"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("rtx4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA L40S", "l40s"),
    ],
)
def test_other_names(alias: str, name: str) -> None:
    assert gpu(alias) is GPUS[name]


@pytest.mark.parametrize("name", ["", "v100", "a100-40g", "h100-pcie", "a\nb", "x" * 10_000, None])
def test_an_unknown_name_lists_the_known_ones_in_one_line(name: object) -> None:
    with pytest.raises(UnknownName) as caught:
        gpu(name)  # type: ignore[arg-type]
    assert str(caught.value).endswith("; known: a100-80g, h100, h200, b200, l4, l40s, a10g, rtx-4090")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("each", GPUS.values(), ids=GPUS)
def test_every_gpu_says_where_its_numbers_come_from(each: Gpu) -> None:
    text = " ".join(each.source)
    assert "NVIDIA" in text and "memory" in text
    assert (each.fit_error is None) == ("unmeasured here" in text) == (each.fit_against == "nothing: unmeasured")
    for limits in (each.gemm, each.attention, each.prefill_attention, each.elementwise):
        shares = (limits.compute, limits.memory, limits.serial, limits.ramp)
        assert all(0 < share <= 1 for share in shares) and limits.floor_ns > 0 and limits.depth_ns >= 0


LIMITS = st.sampled_from(
    [getattr(g, name) for g in GPUS.values() for name in ("gemm", "attention", "prefill_attention")]
)
WORK = st.floats(0, 1e9)


@given(LIMITS, WORK, WORK, st.integers(0, 65_536), st.floats(1, 2))
def test_a_launch_takes_longer_the_more_it_does(
    limits: KernelClass, memory: float, compute: float, depth: int, more: float
) -> None:
    base = limits.launch_ns(memory, compute, depth) * (1 - 1e-9)  # rounding
    assert limits.launch_ns(memory * more, compute, depth) >= base
    assert limits.launch_ns(memory, compute * more, depth) >= base
    assert limits.launch_ns(memory, compute, round(depth * more)) >= base
    assert base >= max(limits.floor_ns, memory / limits.memory, compute / limits.compute) * (1 - 1e-6)


def test_a_launch_by_hand() -> None:
    limits = KernelClass(compute=0.5, memory=0.8, floor_ns=1_000, depth_ns=100, serial=0.5)
    assert limits.launch_ns(800, 0) == 2_000
    assert limits.launch_ns(0, 0, depth=64) == 1_100
    assert limits.launch_ns(2_400, 2_000) == pytest.approx(1_000 + 5_000)  # 3000 and 4000, at a right angle
    ramped = KernelClass(compute=0.5, memory=0.8, floor_ns=1_000, ramp=0.5)
    assert ramped.launch_ns(800, 0) == pytest.approx((1_000**0.5 * 2) ** 2)


def test_a_deeper_gemm_of_the_same_size_takes_longer() -> None:
    h100 = gpu("h100")
    flat, deep = gemm("flat", 8, 4096, 1024, size=2), gemm("deep", 8, 1024, 4096, size=2)
    assert kernel_ns(h100, deep) > kernel_ns(h100, flat)


@pytest.mark.parametrize("each", GPUS.values(), ids=GPUS)
def test_prompts_and_decode_have_classes_of_their_own(each: Gpu) -> None:
    def attention(batch: Batch) -> Kernel:
        return next(k for k in step_kernels(architecture("llama-3.1-8b"), batch).layer if k.kind == "attention")

    assert each.kernel_class(attention(Batch.prefill(1, 512))) is each.prefill_attention
    assert each.kernel_class(attention(Batch.decode(64, 8192))) is each.attention
    mostly_decode = Batch(query_lens=(16,) + (1,) * 100, context_lens=(16,) + (4096,) * 100)
    assert each.kernel_class(attention(mostly_decode)) is each.attention
    sampled = step_kernels(architecture("llama-3.1-8b"), Batch.decode(1, 1)).sampling[0]
    assert each.kernel_class(sampled) is each.elementwise


def test_measured_gpus_have_errors_and_the_others_have_none() -> None:
    assert {name for name, each in GPUS.items() if each.fit_error is not None} == set(FITTED)
    for name, fitted in FITTED.items():
        assert GPUS[name].gemm == fitted.gemm and GPUS[name].attention == fitted.attention
        assert all(0 < e.median <= e.p90 and e.n > 20 for e in fitted.held_out.values())
        assert fitted.attention.compute == fitted.prefill_attention.compute


def test_a_kernel_by_hand() -> None:
    kernel = Kernel(name="x", kind="gemm", flops=0, read_bytes=10**9, write_bytes=0, launches=3)
    h100 = gpu("h100")
    assert kernel_ns(h100, kernel) == 3 * h100.gemm.floor_ns + round(1e18 / (3_350e9 * h100.gemm.memory))
    compute = Kernel(name="x", kind="gemm", flops=10**12, read_bytes=1, write_bytes=1)
    assert kernel_ns(h100, compute) == h100.gemm.floor_ns + round(1e21 / (989e12 * h100.gemm.compute))


@given(ANY_GPU, MODELS, st.integers(1, 600), st.integers(1, 8192), st.integers(1, 200))
def test_time_grows_with_batch_and_context(each: Gpu, model: Architecture, n: int, context: int, more: int) -> None:
    base = step_time(model, each, Batch.decode(n, context)).total_ns
    assert step_time(model, each, Batch.decode(n + more, context)).total_ns >= base
    assert step_time(model, each, Batch.decode(n, context + more)).total_ns >= base


@given(ANY_GPU, MODELS, st.integers(1, 64), st.integers(1, 4096))
def test_no_step_beats_the_bandwidth(each: Gpu, model: Architecture, n: int, context: int) -> None:
    must_read = model.layers * model.layer_parameters * 2 + n * context * model.kv_bytes_per_token
    assert step_time(model, each, Batch.decode(n, context)).forward_total_ns > 1e9 * must_read / each.bandwidth


@given(ANY_GPU, MODELS, st.integers(1, 300), st.integers(1, 4096))
def test_a_step_has_one_duration_per_launch(each: Gpu, model: Architecture, n: int, context: int) -> None:
    batch = Batch.decode(n, context)
    time, kernels = step_time(model, each, batch), decode_step(model, batch)
    forward = [kernel for kernel in kernels if kernel.kind != "sampling"]
    assert len(time.forward_ns) == sum(kernel.launches for kernel in forward)
    assert time.forward_total_ns == sum(kernel_ns(each, kernel) for kernel in forward)
    assert len(time.sample_ns) == 10
    assert time.total_ns == sum(kernel_ns(each, kernel) for kernel in kernels)
    assert all(type(ns) is int and ns > 0 for ns in time.forward_ns + time.sample_ns)


def test_a_long_prompt_is_bound_by_compute() -> None:
    model, h100 = architecture("llama-3.1-8b"), gpu("h100")
    one, two = (step_time(model, h100, Batch.prefill(1, n)).forward_total_ns for n in (4096, 8192))
    assert 2 <= two / one < 2.3
    assert one > 1e9 * 2 * 4096 * model.layers * model.layer_parameters / h100.bf16_flops


def test_a_mixed_batch_takes_longer_than_its_parts_alone() -> None:
    model, a100 = architecture("qwen2.5-3b"), gpu("a100")
    mixed = step_time(model, a100, Batch(query_lens=(512, 1, 1), context_lens=(512, 2048, 2048)))
    assert mixed.forward_total_ns > step_time(model, a100, Batch.prefill(1, 512)).forward_total_ns
