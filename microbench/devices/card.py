"""A device file: one GPU as `microbench calibrate --gpu` measured it, for `sim:<file>` to model."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from microbench.devices.spec import LaunchCost
from microbench.errors import UsageError
from synthetic_models import Gpu, UnknownName, gpu

SCHEMA_VERSION = 1
LARGEST_FILE_BYTES = 4_000_000


@dataclass(frozen=True, kw_only=True)
class GraphCost:
    """Host time of one graph replay in ns, without the GIL: a part that every replay pays, and one for each node."""

    fixed_ns: int
    node_ns: float

    def replay(self, nodes: int) -> LaunchCost:
        return LaunchCost(gil_ns=0, free_ns=round(self.fixed_ns + self.node_ns * nodes))


@dataclass(frozen=True, kw_only=True)
class DeviceCard:
    """What was measured on one GPU.

    gpu: the model of its kernels, with fitted efficiencies. launch: host time of one launch of the torch step.
    copy_*: a device-to-host copy into pinned memory. exclusive: kernels of two streams did not run side by side.
    measured: device, driver, library, date and target of the measurement, in words. rows: every figure behind it.
    """

    gpu: Gpu
    launch: LaunchCost
    graph: GraphCost
    copy_latency_ns: int
    copy_bytes_per_s: float
    exclusive: bool
    measured: Mapping[str, str]
    rows: tuple[Mapping[str, Any], ...] = field(default=(), compare=False)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON; `read_card` reads it back."""
        return {"schema_version": SCHEMA_VERSION, "kind": "device", **asdict(self), "measured": dict(self.measured)}


def read_card(path: Path) -> DeviceCard:
    """The device file at `path`. Raises UsageError saying which field is wrong."""
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise UsageError(f"{path}: larger than {LARGEST_FILE_BYTES} bytes; a device file is smaller")
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not a device file: {error}") from None
    if not isinstance(data, dict) or data.get("kind") != "device":
        raise UsageError(f"{path}: not a device file; make one with `microbench calibrate --gpu` on a GPU")
    if data.get("schema_version") != SCHEMA_VERSION:
        raise UsageError(
            f"{path}: schema {data.get('schema_version')!r}, this version reads {SCHEMA_VERSION}; calibrate again"
        )
    try:
        base = gpu(data["gpu"]["like"]) if "like" in data["gpu"] else gpu("a100-80g")
        return DeviceCard(
            gpu=_filled(base, data["gpu"], "gpu"),
            launch=_filled(LaunchCost(gil_ns=0, free_ns=0), data["launch"], "launch"),
            graph=_filled(GraphCost(fixed_ns=0, node_ns=0.0), data["graph"], "graph"),
            copy_latency_ns=_number(data["copy_latency_ns"], "copy_latency_ns", int),
            copy_bytes_per_s=_number(data["copy_bytes_per_s"], "copy_bytes_per_s", float, above=0),
            exclusive=bool(data["exclusive"]),
            measured={str(k): str(v) for k, v in data["measured"].items()},
            rows=tuple(data.get("rows", ())),
        )
    except UnknownName as error:
        raise UsageError(f"{path}: {error}") from None
    except KeyError as error:
        raise UsageError(f"{path}: the field {error} is missing; calibrate again") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: {error}; calibrate again") from None


def _filled(base: Any, data: Mapping[str, Any], where: str) -> Any:
    """`base` with the values of `data`, each of the type it has in `base`."""
    changes: dict[str, Any] = {}
    for known in fields(base):
        if known.name not in data:
            continue
        value, old = data[known.name], getattr(base, known.name)
        name = f"{where}.{known.name}"
        if is_dataclass(old):
            changes[known.name] = _filled(old, value, name)
        elif isinstance(old, bool | str):
            changes[known.name] = type(old)(value)
        elif isinstance(old, tuple):
            changes[known.name] = tuple(value)
        elif value is None:
            changes[known.name] = None
        else:
            changes[known.name] = _number(value, name, type(old) if old is not None else float)
    return replace(base, **changes)


def _number(value: Any, name: str, kind: type, *, above: float = -1e-9) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= above:
        raise ValueError(f"{name} is {value!r}, not a number {'above 0' if above >= 0 else 'of at least 0'}")
    return kind(value)
