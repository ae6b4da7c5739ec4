"""Architectures from config.json, honest and hostile."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthetic_models import Architecture, BadConfig, architecture, architecture_from_config

# The fields that matter of Qwen/Qwen2.5-0.5B, Qwen/Qwen3-8B, mistralai/Mistral-7B-v0.3.
QWEN25: dict[str, object] = {
    "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14,
    "num_hidden_layers": 24, "num_key_value_heads": 2, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
QWEN3: dict[str, object] = {
    "model_type": "qwen3", "attention_bias": False, "head_dim": 128, "hidden_size": 4096, "intermediate_size": 12288,
    "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "tie_word_embeddings": False,
    "vocab_size": 151936,
}  # fmt: skip
MISTRAL: dict[str, object] = {
    "model_type": "mistral", "head_dim": None, "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 32768,
}  # fmt: skip


def refusal(source: Path | dict[str, object]) -> str:
    with pytest.raises(BadConfig) as caught:
        architecture_from_config(source)
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and message.isprintable() and len(message) < 400
    return message


@pytest.mark.parametrize(("config", "name"), [(QWEN25, "qwen2.5-0.5b"), (QWEN3, "qwen3-8b")])
def test_a_config_gives_the_named_architecture(config: dict[str, object], name: str, tmp_path: Path) -> None:
    path = tmp_path / name / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(config))
    assert architecture_from_config(path) == architecture(name)
    assert architecture_from_config(str(path)) == architecture(name)
    assert replace(architecture_from_config(config), name=name) == architecture(name)


def test_mistral() -> None:
    # 7,248,023,552 is the count published for Mistral-7B-v0.3.
    assert architecture_from_config(MISTRAL).parameters == 7_248_023_552


def test_defaults_are_plain_attention_and_an_untied_head() -> None:
    bare = {k: v for k, v in MISTRAL.items() if k not in ("num_key_value_heads", "model_type")}
    model = architecture_from_config(bare)
    assert (model.kv_heads, model.head_dim, model.tied_embeddings) == (32, 128, False)
    assert (model.name, model.qkv_bias, model.qk_norm) == ("config", False, False)


@pytest.mark.parametrize("field", ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"])
def test_a_missing_field(field: str) -> None:
    config = {k: v for k, v in QWEN25.items() if k != field}
    assert refusal(config) == f"config: {field} is missing; add it, or pass another model"


def test_a_vision_model_points_to_its_text_config() -> None:
    assert refusal({"text_config": QWEN25}) == "config: num_hidden_layers is missing; pass the text_config inside it"


@pytest.mark.parametrize(
    "value", [0, -24, True, False, 24.0, float("nan"), "24", [24], {}, 10**9, 10**5000], ids=lambda v: str(type(v))
)
@pytest.mark.parametrize(
    "field",
    ["num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size"],
)
def test_an_absurd_value(field: str, value: object) -> None:
    assert refusal({**QWEN25, field: value}).startswith(f"config: {field} must be an integer from 1 to ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"num_key_value_heads": 4},
            "num_attention_heads (14) is no multiple of num_key_value_heads (4); correct one",
        ),
        ({"hidden_size": 900}, "hidden_size (900) is no multiple of num_attention_heads (14); add head_dim"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be an integer from 1 to 1000, not 0; correct it"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings must be true or false, not 'yes'; correct it"),
        (
            {"is_encoder_decoder": True},
            "is_encoder_decoder is true; pass the config.json of a decoder-only model",
        ),
        ({"model_type": "bert"}, "model_type 'bert' is an encoder; pass the config.json of a decoder"),
        ({"model_type": "opt"}, "model_type 'opt' has no gated MLP; pass a model that has one"),
        ({"num_experts": 128}, "num_experts is 128, a mixture of experts; pass a dense model"),
        ({"num_local_experts": 8}, "num_local_experts is 8, a mixture of experts; pass a dense model"),
        ({"n_routed_experts": "8"}, "n_routed_experts must be an integer from 0, not '8'; correct it"),
        ({"kv_lora_rank": 512}, "kv_lora_rank means latent attention; pass a model with a plain KV cache"),
        (
            {"quantization_config": {"quant_method": "awq"}},
            "quantization_config is set; pass the config.json of the model in 16 bits",
        ),
    ],
)
def test_what_is_refused(changes: dict[str, object], message: str) -> None:
    assert refusal({**QWEN25, **changes}) == f"config: {message}"


def test_one_expert_is_a_dense_model() -> None:
    assert architecture_from_config({**QWEN25, "num_local_experts": 1, "num_experts": 0}).layers == 24


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON that can be read; download the model's config.json again"),
        (b"{", "not JSON that can be read; download the model's config.json again"),
        (b"\xff\xfe\x00\xd8", "not JSON that can be read; download the model's config.json again"),
        (b"[" * 200_000, "not JSON that can be read; download the model's config.json again"),
        (b'{"a":' * 100_000, "not JSON that can be read; download the model's config.json again"),
        (b'{"hidden_size":' + b"9" * 5000 + b"}", "not JSON that can be read; download the model's config.json again"),
        (b"[]", "holds no JSON object; pass the model's config.json"),
        (b"null", "holds no JSON object; pass the model's config.json"),
        (b" " * (2**20 + 1), "over 1 MiB; pass the config.json of the model, not its weights or tokenizer"),
    ],
    ids=["empty", "cut", "utf16", "deep list", "deep object", "long number", "list", "null", "large"],
)
def test_a_hostile_file(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    assert refusal(path) == f"{path}: {message}"


def test_a_file_of_exactly_one_mib_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN25).ljust(2**20))
    assert architecture_from_config(path).layers == 24


@pytest.mark.parametrize("name", ["absent.json", "", "a\0b", "x" * 5000])
def test_a_path_that_is_no_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"(no such file|can't be read .*); pass the path of a model's config\.json$"):
        architecture_from_config(tmp_path / name)


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    os.mkfifo(path)
    assert refusal(path) == f"{path}: no such file; pass the path of a model's config.json"


def test_an_odd_file_name_stays_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a\nb.json"
    path.write_text("{}")
    assert "num_hidden_layers is missing" in refusal(path)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 10_000, 7, ["a"]])
def test_an_odd_model_name_is_dropped(name: object) -> None:
    assert architecture_from_config({**QWEN25, "_name_or_path": name}).name in ("config", "qwen2")


# A small alphabet: to build the whole of Unicode takes seconds.
TEXT = st.text("a0\n\0\u2028\ud800", max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from([*QWEN25, "head_dim", "num_experts", "is_encoder_decoder", "attention_bias", "_name_or_path"])


@given(st.dictionaries(KEYS, JSON, max_size=3))
def test_any_values_give_an_architecture_or_one_line(changes: dict[str, object]) -> None:
    try:
        assert isinstance(architecture_from_config({**QWEN25, **changes}), Architecture)
    except BadConfig as error:
        assert len(str(error).splitlines()) == 1
