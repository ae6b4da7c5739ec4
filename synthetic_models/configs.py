"""An Architecture from the config.json of a Hugging Face model. The file is untrusted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .architectures import LIMITS, Architecture
from .errors import BadConfig, short

MAX_CONFIG_BYTES: Final = 2**20

_FIELDS: Final = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "intermediate": "intermediate_size",
    "vocab": "vocab_size",
}
_EXPERTS: Final = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_ENCODERS: Final = frozenset(
    ("albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "mpnet", "modernbert", "roberta",
     "vit", "wav2vec2", "xlm-roberta")
)  # fmt: skip
# Their MLP has two matrices, not three, so the weights would come out too large.
_UNGATED: Final = frozenset(("bloom", "codegen", "falcon", "gpt_neox", "gptj", "mpt", "opt", "phi", "starcoder2"))


def architecture_from_config(source: Path | str | Mapping[str, object]) -> Architecture:
    """The architecture that a config.json (a path, or its parsed content) of a dense decoder describes, in 16 bits.

    `head_dim` defaults to hidden_size / num_attention_heads and `num_key_value_heads` to num_attention_heads. A sliding
    window is ignored: contexts are taken to fit in it. Raises BadConfig, in one line, when the file can't be read or is
    over 1 MiB, when a field is missing or absurd, and for encoders, mixtures of experts, latent attention, two-matrix
    MLPs and quantised weights, which need other formulas.
    """
    if isinstance(source, Mapping):
        return _parse(source, where="config", name=source.get("_name_or_path") or source.get("model_type"))
    path = Path(source)
    where = str(path) if str(path).isprintable() else short(str(path))
    name = path.parent.name if path.name == "config.json" else path.stem
    return _parse(_load(path, where), where=where, name=name)


def _load(path: Path, where: str) -> Mapping[str, object]:
    try:
        # Anything but a regular file may block or never end.
        if not path.is_file():
            raise BadConfig(f"{where}: no such file; pass the path of a model's config.json")
        with path.open("rb") as file:
            text = file.read(MAX_CONFIG_BYTES + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, BadConfig):
            raise
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadConfig(f"{where}: can't be read ({reason}); pass the path of a model's config.json") from None
    if len(text) > MAX_CONFIG_BYTES:
        raise BadConfig(f"{where}: over 1 MiB; pass the config.json of the model, not its weights or tokenizer")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        raise BadConfig(f"{where}: not JSON that can be read; download the model's config.json again") from None
    if not isinstance(config, dict):
        raise BadConfig(f"{where}: holds no JSON object; pass the model's config.json")
    return config


def _parse(config: Mapping[str, object], *, where: str, name: object) -> Architecture:
    _refuse_other_families(config, where)
    model_type = config.get("model_type")
    layers = _integer(config, "layers", where)
    hidden = _integer(config, "hidden", where)
    heads = _integer(config, "heads", where)
    kv_heads = _integer(config, "kv_heads", where, default=heads)
    if heads % kv_heads:
        raise BadConfig(
            f"{where}: num_attention_heads ({heads}) is no multiple of num_key_value_heads ({kv_heads}); correct one"
        )
    if config.get("head_dim") is None and hidden % heads:
        raise BadConfig(
            f"{where}: hidden_size ({hidden}) is no multiple of num_attention_heads ({heads}); add head_dim"
        )
    return Architecture(
        name=name if isinstance(name, str) and name.isprintable() and 0 < len(name) <= 200 else "config",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=_integer(config, "head_dim", where, default=hidden // heads),
        intermediate=_integer(config, "intermediate", where),
        vocab=_integer(config, "vocab", where),
        tied_embeddings=_flag(config, "tie_word_embeddings", where, default=str(model_type).startswith("gemma")),
        # Qwen2 has the bias in code, not in its config.
        qkv_bias=_flag(config, "attention_bias", where, default=False) or model_type in ("qwen2", "qwen2_vl"),
        qk_norm=model_type == "qwen3",
    )


def _refuse_other_families(config: Mapping[str, object], where: str) -> None:
    model_type = config.get("model_type")
    known_type = model_type if isinstance(model_type, str) else ""
    if _flag(config, "is_encoder_decoder", where, default=False):
        raise BadConfig(f"{where}: is_encoder_decoder is true; pass the config.json of a decoder-only model")
    if known_type.lower() in _ENCODERS:
        raise BadConfig(f"{where}: model_type {short(model_type)} is an encoder; pass the config.json of a decoder")
    if known_type.lower() in _UNGATED:
        raise BadConfig(f"{where}: model_type {short(model_type)} has no gated MLP; pass a model that has one")
    for field in _EXPERTS:
        experts = config.get(field)
        if experts is None:
            continue
        if type(experts) is not int or experts < 0:
            raise BadConfig(f"{where}: {field} must be an integer from 0, not {short(experts)}; correct it")
        if experts > 1:
            raise BadConfig(f"{where}: {field} is {short(experts)}, a mixture of experts; pass a dense model")
    if config.get("kv_lora_rank") is not None:
        raise BadConfig(f"{where}: kv_lora_rank means latent attention; pass a model with a plain KV cache")
    if config.get("quantization_config") is not None:
        raise BadConfig(f"{where}: quantization_config is set; pass the config.json of the model in 16 bits")


def _integer(config: Mapping[str, object], field: str, where: str, *, default: int | None = None) -> int:
    key = _FIELDS[field]
    value = config.get(key)
    if value is None:
        if default is not None:
            # A default can be out of range too: hidden // heads of a wide model with one head.
            value = default
        else:
            cure = "pass the text_config inside it" if "text_config" in config else "add it, or pass another model"
            raise BadConfig(f"{where}: {key} is missing; {cure}")
    if type(value) is not int or not 1 <= value <= LIMITS[field]:
        raise BadConfig(f"{where}: {key} must be an integer from 1 to {LIMITS[field]}, not {short(value)}; correct it")
    return value


def _flag(config: Mapping[str, object], key: str, where: str, *, default: bool) -> bool:
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadConfig(f"{where}: {key} must be true or false, not {short(value)}; correct it")
    return value
