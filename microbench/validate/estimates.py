"""Whole decode steps that AIConfigurator 0.12.0 (Apache-2.0, NVIDIA) estimates from its measured operators.

`microbench/data/decode_steps.csv` has its `static_gen` figures in ms: the sum over the operators of one bf16 forward on
one GPU, interpolated in its tables of one engine, with 3 us and bytes at 0.8 of the bandwidth for norms and activation.
Rope and KV writes are part of what its tables call attention, or missing; sampling and the host are not in it. Some of
the larger batches exceed the GPU's memory. A100 has no figures for head_dim 64, so none for Qwen2.5-0.5B.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from microbench.errors import Unavailable, UsageError
from microbench.validate.tables import PACKAGE, SYSTEMS
from synthetic_models import Architecture, architecture

HEADER = "gpu,engine,version,model,batch,context,forward_ms"
FAMILIES = {"qwen2.5": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The forward of one decode step of `batch` rows at `context` tokens takes `ns`, says `engine`'s table."""

    gpu: str
    engine: str
    version: str
    model: str
    batch: int
    context: int
    ns: float


def estimates() -> tuple[Estimate, ...]:
    """The shipped figures."""
    return read_estimates((files("microbench") / "data" / "decode_steps.csv").read_text(encoding="utf-8"))


def read_estimates(text: str) -> tuple[Estimate, ...]:
    """The figures in `text`, CSV under HEADER. Raises UsageError naming the line that is wrong."""
    lines = text.splitlines()
    if not lines or lines[0] != HEADER:
        raise UsageError(f"decode steps: the first line must be {HEADER}")
    found = []
    for at, line in enumerate(lines[1:], 2):
        try:
            gpu, engine, version, model, batch, context, ms = line.split(",")
            one = Estimate(
                gpu=gpu, engine=engine, version=version, model=model, batch=int(batch), context=int(context),
                ns=float(ms) * 1e6,
            )  # fmt: skip
            if not (one.batch > 0 and one.context > 0 and 0 < one.ns < 1e15):
                raise ValueError("figures must be positive")
        except ValueError as wrong:
            raise UsageError(f"decode steps: line {at}: {' '.join(str(wrong).split())[:120]}") from None
        found.append(one)
    return tuple(found)


def median_engine(of: Iterable[Estimate]) -> tuple[Estimate, ...]:
    """One figure a step: the median over the engines."""
    steps: dict[tuple[str, str, int, int], list[Estimate]] = {}
    for one in of:
        steps.setdefault((one.gpu, one.model, one.batch, one.context), []).append(one)
    return tuple(
        replace(same[0], engine="median", version="", ns=median(one.ns for one in same)) for same in steps.values()
    )


def recompute(of: Iterable[Estimate]) -> tuple[Estimate, ...]:
    """The same steps, estimated anew by the installed aiconfigurator-core. Raises Unavailable without it."""
    try:
        from aiconfigurator_core.sdk import common, config  # type: ignore[import-not-found, unused-ignore]
        from aiconfigurator_core.sdk.backends.factory import get_backend  # type: ignore[import-not-found, unused-ignore]
        from aiconfigurator_core.sdk.models import get_model  # type: ignore[import-not-found, unused-ignore]
        from aiconfigurator_core.sdk.perf_database import get_database  # type: ignore[import-not-found, unused-ignore]
    except ImportError as missing:
        raise Unavailable(
            f"{PACKAGE} can't be imported ({missing}): pip install 'overlap-microbench[validate]'"
        ) from None
    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)  # it warns of tables that no dense model reads
    found = []
    with TemporaryDirectory() as folder:
        for one in of:
            bf16 = config.ModelConfig(
                gemm_quant_mode=common.GEMMQuantMode.bfloat16,
                kvcache_quant_mode=common.KVCacheQuantMode.bfloat16,
                fmha_quant_mode=common.FMHAQuantMode.bfloat16,
            )
            model = get_model(_config(Path(folder), architecture(one.model)), bf16, one.engine)
            database = get_database(SYSTEMS[one.gpu], one.engine, one.version)
            assert database is not None, f"{PACKAGE} has no tables of {one.gpu} for {one.engine} {one.version}"
            request = config.RuntimeConfig(batch_size=one.batch, isl=one.context, osl=2, beam_width=1)
            summary = get_backend(one.engine).run_static(model, database, request, "static_gen")
            found.append(replace(one, ns=1e6 * sum(summary.get_generation_latency_dict().values())))
    return tuple(found)


def _config(folder: Path, a: Architecture) -> str:
    """The folder of a Hugging Face `config.json` of `a`."""
    here = folder / a.name
    if not here.exists():
        here.mkdir()
        family = next(name for prefix, name in FAMILIES.items() if a.name.startswith(prefix))
        fields = {
            "architectures": [family], "model_type": family.removesuffix("ForCausalLM").lower(),
            "num_hidden_layers": a.layers, "hidden_size": a.hidden, "num_attention_heads": a.heads,
            "num_key_value_heads": a.kv_heads, "head_dim": a.head_dim, "intermediate_size": a.intermediate,
            "vocab_size": a.vocab, "tie_word_embeddings": a.tied_embeddings, "max_position_embeddings": 32_768,
            "torch_dtype": "bfloat16", "hidden_act": "silu", "rms_norm_eps": 1e-6,
        }  # fmt: skip
        (here / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    return str(here)
