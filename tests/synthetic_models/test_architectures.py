"""Named architectures against the totals their publishers state."""

from __future__ import annotations

import pytest

from synthetic_models import ARCHITECTURES, Architecture, UnknownName, architecture

# Element counts of the safetensors files on huggingface.co; a tied head that Qwen3 stores twice is counted once.
PUBLISHED = {
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
}


def test_every_named_architecture_has_the_published_number_of_parameters() -> None:
    assert {name: model.parameters for name, model in ARCHITECTURES.items()} == PUBLISHED


def test_weights_take_two_bytes_each() -> None:
    assert architecture("qwen2.5-0.5b").weight_bytes == 2 * 494_032_768


@pytest.mark.parametrize(
    ("name", "expected"),
    [("qwen2.5-0.5b", 12_288), ("qwen2.5-3b", 36_864), ("qwen2.5-7b", 57_344), ("llama-3.1-8b", 131_072)],
)
def test_kv_bytes_per_token(name: str, expected: int) -> None:
    assert architecture(name).kv_bytes_per_token == expected


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", "qwen2.5-0.5b"),
        ("QWEN2.5-72B", "qwen2.5-72b"),
        ("Qwen/Qwen3-4B-Base", "qwen3-4b"),
        ("Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Llama-3.2-1B", "llama-3.2-1b"),
        (" llama-3.1-70b ", "llama-3.1-70b"),
    ],
)
def test_other_names(alias: str, name: str) -> None:
    assert architecture(alias) is ARCHITECTURES[name]


@pytest.mark.parametrize("name", ["", "qwen", "Qwen/Qwen2.5-Math-7B", "gpt-4\nrm -rf", "x" * 10_000, None, 7])
def test_an_unknown_name_lists_the_known_ones_in_one_line(name: object) -> None:
    with pytest.raises(UnknownName) as caught:
        architecture(name)  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.startswith("unknown architecture ")
    assert message.endswith("known: " + ", ".join(ARCHITECTURES))
    assert len(message.splitlines()) == 1 and len(message) < 500


def test_the_message_for_an_unknown_name() -> None:
    with pytest.raises(ValueError, match=r"^unknown architecture 'gpt-4'; known: qwen2\.5-0\.5b, "):
        architecture("gpt-4")


def tiny(**changes: object) -> Architecture:
    fields: dict[str, object] = {
        "name": "tiny", "layers": 2, "hidden": 8, "heads": 4, "kv_heads": 2, "head_dim": 2, "intermediate": 16,
        "vocab": 32, "tied_embeddings": True,
    }  # fmt: skip
    return Architecture(**{**fields, **changes})  # type: ignore[arg-type]


def test_parameters_by_hand() -> None:
    # 32*8 table; per layer 8*16 QKV, 8*8 O, 3*8*16 MLP, 16 norms; 8 final norm.
    assert tiny().parameters == 256 + 2 * (128 + 64 + 384 + 16) + 8
    assert tiny(tied_embeddings=False).parameters - tiny().parameters == 256
    assert tiny(qkv_bias=True).parameters - tiny().parameters == 2 * 16
    assert tiny(qk_norm=True).parameters - tiny().parameters == 2 * 4


@pytest.mark.parametrize("field", ["layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab"])
@pytest.mark.parametrize("value", [0, -1, True, 1.0, "8", None, 10**12])
def test_a_number_out_of_range_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{field} must be an integer from 1 to "):
        tiny(**{field: value})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_heads": 3}, "heads (4) must be a multiple of kv_heads (3)"),
        ({"name": ""}, "name must be printable text, not ''"),
        ({"name": "a\nb"}, "name must be printable text, not 'a\\nb'"),
        ({"qkv_bias": 1}, "qkv_bias must be True or False, not 1"),
    ],
)
def test_what_else_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        tiny(**changes)
    assert str(caught.value) == message
