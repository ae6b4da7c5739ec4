"""`microbench validate gpu`: reading tables, splitting, fitting, scoring; on tables made from a model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from microbench.cli import main
from microbench.errors import Unavailable, UsageError
from microbench.validate import gpu as validation
from microbench.validate import tables
from microbench.validate.estimates import HEADER, estimates, median_engine, read_estimates, recompute
from microbench.validate.fit import fit, launches_ns
from microbench.validate.points import Point, decode_points, points, prefill_points
from synthetic_models import GPUS, KernelClass, gpu, kernel_ns
from synthetic_models.fitted import FITTED
from synthetic_models.kernels import gemm

H100 = gpu("h100")
ENGINES = {"vllm/0.24.0": 0.98, "sglang/0.5.14": 1.0, "trtllm/1.3.0": 1.02}
ATTENTION = "attn_dtype,kv_cache_dtype,batch_size,isl,step,num_heads,num_key_value_heads,head_dim,window_size,latency"
WEIGHTS = (896, 1536, 2048, 4096, 8192, 18944, 65536)
HEADS = ((14, 2, 64), (12, 2, 128), (16, 2, 128), (28, 4, 128), (32, 8, 128), (32, 8, 64), (8, 8, 128), (24, 8, 128))
installed = pytest.mark.skipif(
    find_spec("aiconfigurator_core") is None, reason="needs the extra `validate` (aiconfigurator-core), not installed"
)


def rows(operator: str) -> Iterator[tuple[str, Point]]:
    """Every shape of the made-up tables: its columns, and a point of it."""
    if operator == "gemm":
        for n in WEIGHTS:
            for k in WEIGHTS[:-1]:
                for m in (1, 16, 128, 512, 4096):
                    yield (
                        f"bfloat16,{m},{n},{k}",
                        Point(shape=(m, n, k), weights=(n, k), kernels=(gemm("gemm", m, n, k, size=2),), ns=1),
                    )
        return
    for heads in HEADS:
        for batch, tokens in ((1, 128), (1, 4096), (8, 1024), (64, 2048), (256, 512), (500, 2560)):
            if operator == "decode attention":
                shape, make = (batch, 1, tokens - 1, *heads), decode_points
            else:
                shape, make = (min(batch, 8), tokens, 0, *heads), prefill_points
            (point,) = make([(shape, 1.0)])
            yield "bfloat16,bfloat16," + ",".join(map(str, shape)) + ",0", point


def write_tables(folder: Path, *, names: Sequence[str] = ("h100",)) -> Path:
    """Tables in which each kernel takes what the model of h100 says, times a factor for each engine."""
    files = {
        "gemm": ("gemm", "gemm_perf", "gemm_dtype,m,n,k,latency"),
        "decode attention": ("attention", "generation_attention_perf", ATTENTION),
        "prefill attention": ("attention", "context_attention_perf", ATTENTION),
    }
    for operator, (group, name, header) in files.items():
        for engine, factor in ENGINES.items():
            lines = [
                f"{shape},{factor * sum(kernel_ns(H100, k) for k in point.kernels) / 1e6!r}"
                for shape, point in rows(operator)
            ]
            for gpu_name in names:
                at = folder / tables.SYSTEMS[gpu_name] / group / engine
                at.mkdir(parents=True, exist_ok=True)
                (at / f"{name}.csv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tables(tmp_path_factory.mktemp("tables"))


@pytest.mark.parametrize("operator", tables.OPERATORS)
def test_tables_come_back_as_the_median_engine(made: Path, operator: str) -> None:
    found = points(made, "h100", operator)
    assert len(found) == len({shape for shape, _ in rows(operator)})
    for point in found:
        assert point.ns == pytest.approx(sum(kernel_ns(H100, k) for k in point.kernels), rel=1e-9)
    assert 0.2 < sum(point.held_out for point in found) / len(found) < 0.8


@pytest.mark.parametrize("operator", tables.OPERATORS)
def test_a_weight_shape_is_held_out_whole(made: Path, operator: str) -> None:
    found = points(made, "h100", operator)
    for weights in {point.weights for point in found}:
        assert len({point.held_out for point in found if point.weights == weights}) == 1


def test_the_newest_version_and_the_fastest_kernel_count(tmp_path: Path) -> None:
    latencies = {"vllm/0.9.0": 9.0, "vllm/0.10.0": 1.0, "sglang/0.5.14": 2.0, "trtllm/1.3.0": 4.0}
    for version, ms in latencies.items():
        at = tmp_path / "h100_sxm/gemm" / version
        at.mkdir(parents=True)
        text = f"gemm_dtype,m,n,k,latency\nbfloat16,1,2,3,{ms}\nbfloat16,1,2,3,{ms + 5}\nfp8,1,2,3,nonsense\n"
        (at / "gemm_perf.csv").write_text(text + ("bfloat16,9,9,9,1\n" if "vllm" in version else ""), encoding="utf-8")
    assert tables.measured(tmp_path, "h100", "gemm") == {(1, 2, 3): 2e6}  # 9, 9, 9 was measured on one engine only


GOOD = "gemm_dtype,m,n,k,latency\nbfloat16,1,2,3,0.5\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a readable table"),
        ("m,n,k,latency\n1,2,3,4\n", "needs exactly one column 'gemm_dtype'"),
        (GOOD.replace("latency", "late"), "needs exactly one column 'latency'"),
        (GOOD.replace("0.5", "nan"), "latency in data row 1 is 'nan', not a number above 0"),
        (GOOD.replace("0.5", "-1"), "latency in data row 1"),
        (GOOD.replace("0.5", "1e999"), "latency in data row 1"),
        (GOOD.replace("0.5", ""), "latency in data row 1 is '', not"),
        (GOOD.replace(",1,2,", ",1.5,2,"), "m in data row 1 is '1.5', not an integer of at least 1"),
        (GOOD.replace(",1,2,", ",0,2,"), "m in data row 1"),
        (GOOD + "bfloat16,1,x,3,0.5\n", "n in data row 2 is 'x'"),
        (GOOD + "bfloat16,1,2,3,0.5,6,7\n", "not a readable table"),
    ],
)
def test_a_broken_table_is_named_with_its_row(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "gemm_perf.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        tables.read_table(path, "gemm")
    assert says in str(caught.value) and str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_binary_rubbish_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"gemm_perf.{suffix}"
    path.write_bytes(bytes(range(256)) * 8)
    with pytest.raises(UsageError, match="gemm_perf"):
        tables.read_table(path, "gemm")


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200), st.booleans())
def test_any_text_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, text: str, head: bool
) -> None:
    path = tmp_path_factory.mktemp("hostile") / "gemm_perf.csv"
    path.write_bytes(((GOOD if head else "") + text).encode("utf-8", "replace"))
    try:
        frame = tables.read_table(path, "gemm")
    except UsageError as refused:
        assert len(str(refused).splitlines()) == 1
    else:
        assert ((frame[["m", "n", "k"]] >= 1).all() & (frame["latency"] > 0).all()).all()


CLASSES = st.builds(
    KernelClass,
    compute=st.floats(0.05, 1),
    memory=st.floats(0.05, 1),
    floor_ns=st.integers(0, 30_000),
    depth_ns=st.integers(0, 1_000),
    serial=st.floats(0.05, 1),
    ramp=st.floats(0.5, 1),
)
WORK = st.floats(1e-3, 1e9)


@given(CLASSES, WORK, WORK, st.integers(0, 65_536))
def test_many_launches_take_what_each_takes(limits: KernelClass, memory: float, compute: float, depth: int) -> None:
    import numpy as np

    constants = {name: float(getattr(limits, name)) for name in KernelClass.__dataclass_fields__}
    many = launches_ns(constants, np.array([memory]), np.array([compute]), np.log2(1 + np.array([depth]) / 64))
    assert many[0] == pytest.approx(limits.launch_ns(memory, compute, depth), rel=1e-6)


@pytest.mark.parametrize("operator", validation.FREE)
def test_a_fit_finds_the_constants_that_made_the_points(made: Path, operator: str) -> None:
    name, free = validation.FREE[operator]
    known = points(made, "h100", operator)
    odd = [replace(point, ns=point.ns * 5) if i % 25 == 0 else point for i, point in enumerate(known)]
    found = fit(replace(H100, **{name: getattr(gpu("b200"), name)}), name, free, odd)
    for constant in free:
        assert getattr(found, constant) == pytest.approx(getattr(getattr(H100, name), constant), rel=0.06), constant


def test_too_few_points_are_no_fit(made: Path) -> None:
    with pytest.raises(UsageError, match="3 points are too few to fit 3 constants"):
        fit(H100, "attention", ("memory", "floor_ns", "ramp"), points(made, "h100", "decode attention")[:3])


def test_a_planted_error_misses_the_targets(made: Path) -> None:
    right = validation.scores(H100, made, estimates())
    assert {one.met for one in right} == {True, None}
    assert all(one.median < 1e-3 for one in right if "step" not in one.name)
    off = replace(H100.gemm, memory=H100.gemm.memory * 0.5, floor_ns=3 * H100.gemm.floor_ns)
    wrong = {one.name: one for one in validation.scores(replace(H100, gemm=off), made, estimates())}
    assert wrong["GEMM"].met is False and wrong["GEMM"].median > 0.08
    assert wrong["decode step, each engine"].met is False
    assert wrong["decode attention, KV >= 64 MB"].met is True


@pytest.mark.parametrize("each", validation.measured_gpus(), ids=lambda each: each.name)
def test_the_shipped_step_errors_are_those_of_the_shipped_estimates(each: validation.Gpu) -> None:
    found = {one.name: one for one in validation.step_scores(each, estimates())}
    shipped = {name: error for name, error in FITTED[each.name].held_out.items() if "step" in name}
    assert set(found) == set(shipped)
    for name, error in shipped.items():
        assert (error.n, error.median, error.p90) == (
            found[name].n,
            pytest.approx(found[name].median, abs=6e-4),
            pytest.approx(found[name].p90, abs=6e-4),
        )
    assert each.fit_error == FITTED[each.name].held_out["decode step, each engine"].median


@installed
@pytest.mark.parametrize("each", validation.measured_gpus(), ids=lambda each: each.name)
def test_the_shipped_errors_are_those_on_the_measured_tables(each: validation.Gpu) -> None:
    found = {one.name: one for one in validation.scores(each, tables.tables_folder(None), estimates())}
    assert set(found) == set(FITTED[each.name].held_out)
    for name, error in FITTED[each.name].held_out.items():
        assert (error.n, error.median, error.p90) == (
            found[name].n,
            pytest.approx(found[name].median, abs=6e-4),
            pytest.approx(found[name].p90, abs=6e-4),
        ), name


@installed
def test_the_shipped_constants_are_those_that_the_fit_finds() -> None:
    a100 = gpu("a100-80g")
    again = validation.refit(a100, tables.tables_folder(None))
    for name in ("gemm", "attention", "prefill_attention"):
        for constant in KernelClass.__dataclass_fields__:
            found, shipped = getattr(getattr(again, name), constant), getattr(getattr(a100, name), constant)
            assert found == pytest.approx(shipped, rel=0.01), (name, constant)


@installed
def test_the_shipped_estimates_are_what_the_package_computes() -> None:
    some = [one for one in estimates() if one.gpu == "h100" and one.engine == "vllm" and one.context == 2048][::7]
    assert len(some) >= 5
    for shipped, again in zip(some, recompute(some), strict=True):
        assert again.ns == pytest.approx(shipped.ns, rel=1e-3)


def test_the_shipped_estimates_name_what_is_modelled() -> None:
    shipped = estimates()
    assert len(shipped) == len({(e.gpu, e.engine, e.model, e.batch, e.context) for e in shipped}) == 1197
    assert {e.gpu for e in shipped} == set(tables.SYSTEMS) < set(GPUS)
    middle = median_engine(shipped)
    assert len(middle) == len(shipped) / 3 and {e.engine for e in middle} == {"median"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the first line must be"),
        ("gpu,engine\n", "the first line must be"),
        (HEADER + "\nh100,vllm,1,m,1,1\n", "line 2"),
        (HEADER + "\nh100,vllm,1,m,1,1,nan\n", "line 2: figures must be positive"),
        (HEADER + "\nh100,vllm,1,m,1,1,1\nh100,vllm,1,m,-1,1,1\n", "line 3: figures must be positive"),
        (HEADER + "\nh100,vllm,1,m,x,1,1\n", "line 2"),
    ],
)
def test_broken_estimates_are_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_estimates(text)


@given(st.text(max_size=200))
def test_any_estimates_are_read_or_refused(text: str) -> None:
    try:
        read_estimates(HEADER + "\n" + text)
    except UsageError as refused:
        assert len(str(refused).splitlines()) == 1


def test_without_tables_the_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"overlap-microbench\[validate\]"):
        tables.tables_folder(None)
    done = CliRunner().invoke(main, ["validate", "gpu"])
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1 and "--tables DIR" in done.stderr


@pytest.mark.parametrize("args", [["--tables", "/no/such"], ["--gpu", "l4"], ["--gpu", "nope"]])
def test_wrong_input_is_one_line(args: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["validate", "gpu", "--tables", str(tmp_path), *args])
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)


def test_the_command_prints_scores_and_json(made: Path) -> None:
    base = ["validate", "gpu", "--gpu", "h100", "--tables", str(made)]
    shown = CliRunner().invoke(main, base)
    assert shown.exit_code == 0 and "h100, decode step, each engine" in shown.stdout and "Missed" not in shown.stdout
    done = CliRunner().invoke(main, [*base, "--fit", "--json"])
    document = json.loads(done.stdout)
    assert (document["kind"], document["refitted"]) == ("validate gpu", True)
    by_name = {one["name"]: one for one in document["scores"]}
    assert by_name["GEMM"]["met"] is True and by_name["GEMM"]["target_median"] == 0.08
    assert document["constants"]["h100"].strip().startswith('"h100": Fitted(')
