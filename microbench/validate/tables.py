"""Reads measured kernel times: the tables inside the PyPI package `aiconfigurator-core` (Apache-2.0, NVIDIA).

A folder of tables holds `SYSTEM/gemm/ENGINE/VERSION/gemm_perf` and `SYSTEM/attention/ENGINE/VERSION/` with
`generation_attention_perf` and `context_attention_perf`, as Parquet or CSV with the same columns; `latency` is in ms.
They were taken with CUDA graphs, six runs after three warm-ups, without emptying the L2 cache in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from microbench.errors import Unavailable, UsageError

PACKAGE: Final = "aiconfigurator-core"
SYSTEMS: Final = {"a100-80g": "a100_sxm", "h100": "h100_sxm", "h200": "h200_sxm", "b200": "b200_sxm"}
ENGINES: Final = 3
"""A shape counts where this many engines measured it: vLLM, SGLang and TensorRT-LLM."""
LARGEST_FILE_BYTES: Final = 400_000_000
LARGEST_INTEGER: Final = 2**40

_FILES: Final = {
    "gemm": ("gemm", "gemm_perf"),
    "decode attention": ("attention", "generation_attention_perf"),
    "prefill attention": ("attention", "context_attention_perf"),
}
_ATTENTION: Final = ("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim")
_SHAPE: Final = {"gemm": ("m", "n", "k"), "decode attention": _ATTENTION, "prefill attention": _ATTENTION}
_BF16: Final = {
    "gemm": {"gemm_dtype": "bfloat16"},
    "decode attention": {"attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16"},
    "prefill attention": {"attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16"},
}
OPERATORS: Final = tuple(_FILES)

Shape = tuple[int, ...]
"""m, n, k of a GEMM; batch, new tokens, earlier tokens, heads, KV heads and head_dim of attention."""


def tables_folder(given: Path | None) -> Path:
    """`given`, or the tables inside the installed package. Raises Unavailable without it, UsageError for no folder."""
    if given is not None:
        if not given.is_dir():
            raise UsageError(f"{given}: not a folder; give the one that holds {', '.join(SYSTEMS.values())}")
        return given
    found = find_spec("aiconfigurator_core")
    if found is None or not found.submodule_search_locations:
        raise Unavailable(
            f"the measured tables are in the package {PACKAGE} (Apache-2.0), which is not installed: "
            "pip install 'overlap-microbench[validate]', or give --tables DIR"
        )
    return Path(found.submodule_search_locations[0]) / "systems" / "data"


def measured(folder: Path, gpu: str, operator: str) -> dict[Shape, float]:
    """ns of every bf16 shape that all three engines measured: the median over engines.

    Of an engine only its newest version counts, and of several kernels for one shape its fastest. Raises UsageError if
    a table is missing or broken.
    """
    import pandas as pd

    engines = [_fastest(read_table(path, operator), operator) for path in _newest(folder, gpu, operator)]
    together = pd.concat(engines).groupby(level=list(range(len(_SHAPE[operator]))))
    median, engines_of = together.median(), together.size()
    kept = median[engines_of >= ENGINES]
    return {tuple(map(int, shape)): float(ms) * 1e6 for shape, ms in kept.items()}


def read_table(path: Path, operator: str) -> Any:
    """The bf16 rows of one file as a data frame: shape in integers, `latency` in ms.

    Raises UsageError naming the file, and the column and row if a value is wrong.
    """
    import pandas as pd

    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise UsageError(f"{path}: larger than {LARGEST_FILE_BYTES} bytes; a table is smaller")
        if path.suffix == ".csv":
            frame = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8", on_bad_lines="error")
        else:
            frame = pd.read_parquet(path)
    except UsageError:
        raise
    except Exception as failure:  # parsers of both formats raise too many kinds of errors to list
        raise UsageError(f"{path}: not a readable table: {' '.join(str(failure).split())[:200]}") from None
    wanted = (*_SHAPE[operator], *_BF16[operator], "latency")
    if missing := [name for name in wanted if list(frame.columns).count(name) != 1]:
        raise UsageError(
            f"{path}: needs exactly one column {missing[0]!r}; it has {str([str(name) for name in frame])[:200]}"
        )
    for column, dtype in _BF16[operator].items():
        frame = frame[frame[column] == dtype]
    for column in ("window_size", "beam_width"):  # sliding windows and beams are not modelled
        if list(frame.columns).count(column) == 1:
            ordinary = "0" if column == "window_size" else "1"
            frame = frame[frame[column].astype(str).isin((ordinary, f"{ordinary}.0"))]
    for column in _SHAPE[operator]:
        frame = frame.assign(**{column: _numbers(path, frame[column], least=0 if column == "step" else 1)})
    latency = _numbers(path, frame["latency"], least=0, whole=False)
    return frame.assign(latency=latency)[[*_SHAPE[operator], "latency"]]


def _numbers(path: Path, column: Any, *, least: int, whole: bool = True) -> Any:
    """The column as numbers: integers from `least` up, or figures above it. Raises UsageError at the first other."""
    import pandas as pd

    values = pd.to_numeric(column, errors="coerce").astype(float)
    good = (values >= least) & (values % 1 == 0) if whole else values > least
    bad = ~(good & (values <= LARGEST_INTEGER))
    if bad.any():
        at = int(bad.to_numpy().argmax())
        shown = str(column.iloc[at])[:40]
        kind = f"an integer of at least {least}" if whole else f"a number above {least}"
        raise UsageError(f"{path}: {column.name} in data row {column.index[at] + 1} is {shown!r}, not {kind}")
    return values.astype("int64") if whole else values


def _fastest(frame: Any, operator: str) -> Any:
    shape = list(_SHAPE[operator])
    return frame.groupby(shape)["latency"].min()


def _newest(folder: Path, gpu: str, operator: str) -> Iterator[Path]:
    """The file of each engine's newest version."""
    group, name = _FILES[operator]
    top = folder / SYSTEMS[gpu] / group
    found = sorted(path for suffix in ("parquet", "csv") for path in top.glob(f"*/*/{name}.{suffix}"))
    engines = {path.parent.parent.name for path in found}
    if len(engines) < ENGINES:
        raise UsageError(
            f"{top}: {name} of {len(engines)} engines found, {ENGINES} needed: is this a folder of tables?"
        )
    for engine in sorted(engines):
        yield max((path for path in found if path.parent.parent.name == engine), key=_version)


def _version(path: Path) -> tuple[tuple[int, ...], str]:
    return tuple(map(int, re.findall(r"\d{1,9}", path.parent.name))), path.suffix
