"""Device files: written and read back, refused in one line when they are not what they say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microbench.case import model_spec
from microbench.devices.card import LARGEST_FILE_BYTES, DeviceCard, GraphCost, read_card
from microbench.devices.spec import LaunchCost
from microbench.engines import engine
from microbench.errors import UsageError
from microbench.target import open_target, parse_target
from synthetic_models import architecture, gpu

CARD = DeviceCard(
    gpu=replace(gpu("h200"), launch_latency_ns=6_123),
    launch=LaunchCost(gil_ns=3_000, free_ns=2_000),
    graph=GraphCost(fixed_ns=9_000, node_ns=41.5),
    copy_latency_ns=8_000,
    copy_bytes_per_s=5.5e10,
    exclusive=True,
    measured={"device": "a card", "date": "2026-12-04", "driver": "580"},
    rows=({"group": "launch", "measured": 5.0},),
)


def saved(folder: Path, document: Any) -> Path:
    path = folder / "card.json"
    path.write_text(json.dumps(document))
    return path


def test_a_device_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    assert read_card(saved(tmp_path, CARD.to_json())) == CARD


@pytest.mark.parametrize("host", ["virtual", "real"])
def test_a_target_models_what_the_file_measured(tmp_path: Path, host: str) -> None:
    path = saved(tmp_path, CARD.to_json())
    target = parse_target(f"{host}+sim:{path}")
    assert str(target) == f"{host}+sim:{path}"
    assert "modelled GPU h200 calibrated 2026-12-04" in target.says
    device: Any = open_target(target)[1]
    assert (device.launch_latency_ns, device.copy_latency_ns, device.exclusive) == (6_123, 8_000, True)
    assert device.copy_bytes_per_s == 5.5e10


def test_launches_cost_what_the_file_measured_unless_told_otherwise() -> None:
    small, h200, sglang = architecture("qwen2.5-0.5b"), gpu("h200"), engine("sglang-0.5.4")
    eager = model_spec(small, h200, sglang, batch=500, context=100, card=CARD)
    assert eager.launch == eager.sample_launch == CARD.launch
    graph = model_spec(small, h200, sglang, batch=8, context=100, card=CARD)
    assert graph.graph == LaunchCost(gil_ns=0, free_ns=9_000 + round(41.5 * len(graph.forward_ns)))
    told = LaunchCost(gil_ns=1, free_ns=1)
    assert model_spec(small, h200, sglang, batch=500, context=100, card=CARD, launch=told).launch == told
    assert model_spec(small, h200, sglang, batch=500, context=100).launch == sglang.launch


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "run"}, "not a device file"),
        ({"schema_version": 99}, "schema 99"),
        ({"copy_latency_ns": -1}, "copy_latency_ns is -1"),
        ({"copy_bytes_per_s": 0}, "copy_bytes_per_s is 0"),
        ({"copy_bytes_per_s": True}, "copy_bytes_per_s is True"),
        ({"launch": {"gil_ns": "x"}}, "launch.gil_ns is 'x'"),
        ({"graph": {"fixed_ns": float("inf")}}, "graph.fixed_ns is inf"),
        ({"gpu": 5}, "calibrate again"),
        ({"measured": []}, "calibrate again"),
        ({"rows": 5}, "calibrate again"),
    ],
)
def test_a_wrong_field_is_named_in_one_line(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_card(saved(tmp_path, CARD.to_json() | change))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("field", ["gpu", "launch", "graph", "copy_latency_ns", "exclusive", "measured"])
def test_a_missing_field_is_named(tmp_path: Path, field: str) -> None:
    document = CARD.to_json()
    del document[field]
    with pytest.raises(UsageError, match=f"the field '{field}' is missing"):
        read_card(saved(tmp_path, document))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00", "[" * 100_000])
def test_what_is_no_json_object_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "card.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="not a device file"):
        read_card(path)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_bytes(b" " * (LARGEST_FILE_BYTES + 1))
    with pytest.raises(UsageError, match="larger than"):
        read_card(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None)
@given(field=st.sampled_from(sorted(CARD.to_json())), value=JSON)
def test_any_value_in_any_field_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, field: str, value: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(CARD.to_json() | {field: value}))
    try:
        read_card(path)
    except UsageError as error:
        assert str(error)
