"""Llama, Qwen2 and Qwen3: their numbers, what of them cannot run, and what they cost."""

from __future__ import annotations

import json
from contextlib import suppress
from math import prod
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnic.catalog.llama import from_checkpoint, tensors_of
from omnic.catalog.llama_config import DEFAULTS, config_of
from omnic.catalog.resolve import CatalogError, ModelSource, resolve
from omnic.expr import evaluate
from tests.catalog.checkpoints import (
    LLAMA_METADATA,
    LLAMA_TENSORS,
    TINY,
    gguf,
    shapes,
    write_checkpoint,
    write_safetensors,
)

QWEN2 = TINY | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
QWEN3 = TINY | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 32}


@pytest.mark.parametrize(
    ("model_type", "name"), [("llama", "LlamaConfig"), ("qwen2", "Qwen2Config"), ("qwen3", "Qwen3Config")]
)
def test_what_a_config_leaves_out_is_the_default_of_its_class(model_type, name):
    import transformers

    theirs = getattr(transformers, name)()
    ours = config_of(model_type, {}, "nothing")
    for field in ours.keys() & set(theirs.to_dict()) - {"eos_token_id"}:
        assert (field, ours[field]) == (field, getattr(theirs, field))
    assert ours["rope_theta"] == theirs.rope_parameters["rope_theta"]
    assert ours["eos_token_id"] == ([] if theirs.eos_token_id is None else [theirs.eos_token_id])
    assert ours["head_dim"] == getattr(theirs, "head_dim", theirs.hidden_size // theirs.num_attention_heads)
    assert theirs.hidden_act == DEFAULTS[model_type]["hidden_act"]


@pytest.mark.parametrize("config", [TINY, QWEN2, QWEN3, TINY | {"attention_bias": True, "mlp_bias": True},
                                    TINY | {"tie_word_embeddings": True}])  # fmt: skip
def test_the_tensors_are_those_that_the_library_makes(config):
    import transformers

    kind = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[config["model_type"]]
    model = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**config))
    theirs = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert tensors_of(config_of(config["model_type"], config, "tiny")) == theirs


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize("config", [TINY, QWEN2, QWEN3, TINY | {"tie_word_embeddings": True}])
def test_bytes_are_those_of_the_loaded_tensors(config, precision):
    from omnic.manifest import Model
    from omnic.runtime.families import llama as runtime
    from omnic.runtime.weights import Checkpoint

    options = {k: v for k, v in config.items() if k not in ("architectures", "model_type")}
    model = resolve(ModelSource("random", config["model_type"], tuple(options.items())), Path())
    cost = model.parts["generate"].cost_as(precision)
    dtype = {"bf16": "bfloat16", "fp32": "float32"}[precision]
    given = Model("lm", "random", config["model_type"], model.family, model.format, model.config)
    loaded = runtime.load(Checkpoint(given, None), dtype, lambda done, total: None)
    assert cost.weight_bytes == loaded.weight_bytes
    assert cost.kv_bytes_per_token * 3 * 128 == loaded.kv_bytes(3, 128)


def test_rope_is_read_from_both_styles_of_config():
    old = TINY | {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}}
    new = TINY | {"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0}}
    assert config_of("llama", old, "old") == config_of("llama", new, "new")
    assert config_of("llama", old, "old")["rope_scaling"] == {"rope_type": "linear", "factor": 2.0}
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 8192}  # fmt: skip
    assert config_of("llama", TINY | {"rope_scaling": llama3}, "3.1")["rope_scaling"] == llama3


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope type `yarn`"),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "rope type `dynamic`"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial rotary embeddings"),
        ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 64}, "sliding window attention"),
        ({"model_type": "qwen3", "layer_types": ["full_attention", "sliding_attention"]}, "sliding window attention"),
        ({"hidden_act": "gelu"}, "activation `gelu`"),
        ({"quantization_config": {"quant_method": "gptq"}}, "checkpoints quantised with gptq"),
        ({"pretraining_tp": 2}, "`pretraining_tp` other than 1"),
    ],
)
def test_what_cannot_run_exactly_is_refused(change, why):
    config = TINY | change
    with pytest.raises(CatalogError) as error:
        config_of(config["model_type"], config, "tiny/config.json")
    assert error.value.id == "not-supported-yet"
    assert error.value.message == f"tiny/config.json: omnic cannot run {why} yet"


@pytest.mark.parametrize(
    "change", [{"sliding_window": 4096, "use_sliding_window": False}, {"layer_types": ["full_attention"] * 2}]
)
def test_a_sliding_window_that_is_not_used_does_no_harm(change):
    config_of("qwen2", QWEN2 | change, "tiny")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"num_attention_heads": 5}, "5 heads, 2 KV heads of 12 do not fit"),
        ({"vocab_size": "many"}, "`vocab_size` is 'many', not a positive whole number"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope type `linear` needs `factor`"),
        ({"rope_scaling": {"rope_type": "linear", "factor": "2"}}, "`factor` is '2', not a positive number"),
        ({"rms_norm_eps": "small"}, "`rms_norm_eps` is 'small', not a positive number"),
        ({"rms_norm_eps": float("nan")}, "`rms_norm_eps` is nan, not a positive number"),
        ({"rope_theta": "1e4"}, "`rope_theta` is '1e4', not a positive number"),
        ({"rope_scaling": "linear"}, "`rope_scaling` is 'linear', not an object"),
        ({"rope_parameters": [1]}, "`rope_parameters` is [1], not an object"),
        ({"quantization_config": "int4"}, "`quantization_config` is 'int4', not an object"),
        ({"tie_word_embeddings": "yes"}, "`tie_word_embeddings` is 'yes', neither true nor false"),
        ({"eos_token_id": "end"}, "`eos_token_id` is 'end', not a token id or a list of them"),
        ({"eos_token_id": [None]}, "`eos_token_id` is [None], not a token id or a list of them"),
        ({"hidden_size": 1 << 40}, "`hidden_size` is 1099511627776, not a positive whole number"),
    ],
)
def test_numbers_that_make_no_sense_are_named(change, why):
    with pytest.raises(CatalogError) as error:
        config_of("llama", TINY | change, "tiny")
    assert (error.value.id, error.value.message) == ("bad-checkpoint", f"tiny: {why}")


def altered(tmp_path: Path, change) -> CatalogError:
    folder = write_checkpoint(tmp_path / "tiny")
    tensors = shapes()
    change(tensors)
    write_safetensors(folder / "model.safetensors", tensors)
    with pytest.raises(CatalogError) as error:
        resolve(ModelSource("path", "tiny"), tmp_path)
    return error.value


def test_tensors_must_be_just_those_that_the_config_asks_for(tmp_path):
    name = "model.layers.1.mlp.up_proj.weight"
    assert altered(tmp_path, lambda t: t.pop(name)).message == f"tiny/config.json: tensor `{name}` is missing"
    assert altered(tmp_path, lambda t: t.update({name: (128, 65)})).message == (
        f"tiny/config.json: `{name}` is [128, 65]; by its config it should be [128, 64]"
    )
    assert altered(tmp_path, lambda t: t.update({"model.layers.2.x": (1,)})).message == (
        "tiny/config.json: tensor `model.layers.2.x` has no place in family `llama`"
    )


def test_what_loads_nothing_is_ignored(tmp_path):
    folder = write_checkpoint(tmp_path / "tiny", TINY | {"tie_word_embeddings": True})
    tensors = shapes() | {"model.layers.0.self_attn.rotary_emb.inv_freq": (8,)}
    write_safetensors(folder / "model.safetensors", tensors)  # with a head that is tied, and old rotary tables
    model = resolve(ModelSource("path", "tiny"), tmp_path)
    assert model.parts["generate"].cost.weight_bytes == 2 * sum(
        prod(shape) for name, shape in shapes().items() if name != "lm_head.weight"
    )


def test_quantised_tensors_come_later(tmp_path):
    write_checkpoint(tmp_path / "tiny", dtype="F8_E4M3")
    with pytest.raises(CatalogError, match="stored as F8_E4M3"):
        resolve(ModelSource("path", "tiny"), tmp_path)


def test_stored_dtype_changes_the_digest_and_not_the_bytes(tmp_path):
    half = resolve(ModelSource("path", str(write_checkpoint(tmp_path / "a", dtype="BF16"))), tmp_path)
    full = resolve(ModelSource("path", str(write_checkpoint(tmp_path / "b", dtype="F32"))), tmp_path)
    split = resolve(ModelSource("path", str(write_checkpoint(tmp_path / "c", shards=3))), tmp_path)
    assert half.parts["generate"].cost == full.parts["generate"].cost
    assert half.digest != full.digest
    assert half.digest == split.digest


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        ({}, (0.2, 0.9, 0, 1.1)),
        ({"eos_token_id": 2, "max_length": 100}, (0.2, 0.9, 0, 1.1)),
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20}, (0.6, 0.95, 20, 1.0)),
        ({"temperature": 0.7}, (0.7, 1.0, 0, 1.0)),
        ({"do_sample": True}, (1.0, 1.0, 0, 1.0)),
        ({"do_sample": True, "repetition_penalty": 1.05}, (1.0, 1.0, 0, 1.05)),
        ({"repetition_penalty": 1.05}, (0.0, 1.0, 0, 1.05)),
        ({"do_sample": False, "temperature": 0.7}, (0.0, 1.0, 0, 1.0)),
    ],
)
def test_sampling_defaults_follow_the_checkpoint(generation, expected):
    part = from_checkpoint("llama", TINY, None, generation, "tiny").parts["generate"]
    kinds = {"temperature": float, "top_p": float, "top_k": int, "repetition_penalty": float}
    assert tuple(part.key(name).default for name in kinds) == expected
    assert all(type(part.key(name).default) is kind for name, kind in kinds.items())


@pytest.mark.parametrize(
    "generation",
    [{"temperature": "hot"}, {"temperature": -1}, {"temperature": float("inf")}, {"top_p": 1.5}, {"top_k": 2.5},
     {"top_k": float("inf")}, {"repetition_penalty": 0}, {"do_sample": "no"}],
)  # fmt: skip
def test_sampling_that_cannot_be_meant_is_refused(generation):
    (name,) = generation
    with pytest.raises(CatalogError, match=f"tiny: `{name}` cannot be "):
        from_checkpoint("llama", TINY, None, generation, "tiny")


def test_a_number_is_said_to_come_from_the_file_that_holds_it(tmp_path):
    folder = write_checkpoint(tmp_path / "tiny")
    (folder / "generation_config.json").write_text('{"temperature": 0.7}')
    part = resolve(ModelSource("path", "tiny"), tmp_path).parts["generate"]
    assert part.key("temperature").origin == "tiny/generation_config.json"
    (folder / "generation_config.json").write_text('{"eos_token_id": "end"}')
    with pytest.raises(CatalogError, match=r"tiny/generation_config\.json: `eos_token_id` is 'end'"):
        resolve(ModelSource("path", "tiny"), tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)
OTHERS = ("model_type", "architectures", "rope_parameters", "layer_types", "quantization_config", "pretraining_tp")
FIELDS = sorted({*DEFAULTS["llama"], *DEFAULTS["qwen3"], *OTHERS, "partial_rotary_factor"})
SAMPLING = ["eos_token_id", "temperature", "top_k", "do_sample"]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3),
    st.dictionaries(st.sampled_from(SAMPLING), JSON, max_size=2),
)
def test_whatever_a_config_holds_is_read_or_refused(tmp_path, config, generation):
    folder = write_checkpoint(tmp_path / "tiny")
    (folder / "config.json").write_text(json.dumps(TINY | config))
    (folder / "generation_config.json").write_text(json.dumps(generation))
    with suppress(CatalogError):
        assert msgspec.json.encode(resolve(ModelSource("path", "tiny"), tmp_path).config)


def test_a_default_is_always_in_its_domain():
    part = from_checkpoint("llama", TINY, None, {"temperature": 3, "top_k": 4096}, "tiny").parts["generate"]
    assert all(k.default in k.domain for k in part.keys if k.domain is not None)


def test_a_generation_config_names_the_tokens_that_end_an_answer():
    model = from_checkpoint("llama", TINY, None, {"eos_token_id": [5, 6]}, "tiny")
    assert model.config["eos_token_id"] == [5, 6]


def test_a_gguf_file_gives_the_config_that_its_tensors_have(tmp_path):
    metadata = [*LLAMA_METADATA, ("general.sampling.temp", 0.5), ("general.sampling.top_k", 30)]
    (tmp_path / "m.gguf").write_bytes(gguf(metadata, LLAMA_TENSORS))
    model = resolve(ModelSource("path", "m.gguf"), tmp_path)
    expected = {
        "hidden_size": 64, "vocab_size": 320, "num_key_value_heads": 2, "rope_theta": 50000.0, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True, "attention_bias": False, "eos_token_id": [2], "bos_token_id": 1,
    }  # fmt: skip
    assert {k: model.config[k] for k in expected} == expected
    part = model.parts["generate"]
    assert part.cost.weight_bytes == 2 * sum(prod(shape) for shape, _ in LLAMA_TENSORS.values())  # as dequantised
    assert (part.key("temperature").default, part.key("top_k").default) == (0.5, 30)


@pytest.mark.parametrize(
    ("metadata", "tensors", "id", "why"),
    [
        ([("general.architecture", "mamba")], {}, "unknown-family", "omnic does not know architecture `mamba`"),
        ([("llama.expert_count", 8)], {}, "not-supported-yet", "mixtures of experts"),
        ([("llama.rope.scaling.type", "yarn")], {}, "not-supported-yet", "rope type `yarn`"),
        ([], {"rope_freqs.weight": ((16,), 0)}, "not-supported-yet", "rope factors"),
        ([("llama.block_count", 2)], {}, "bad-checkpoint", "tensor `model.layers.1.input_layernorm.weight` is missing"),
        ([], {"blk.0.odd.weight": ((4,), 0)}, "bad-checkpoint", "tensor `model.layers.0.odd.weight` has no place"),
        ([("llama.attention.head_count", [4, 4])], {}, "bad-checkpoint", "`num_attention_heads` is (4, 4)"),
        ([("llama.embedding_length", "64")], {}, "bad-checkpoint", "`hidden_size` is '64'"),
        ([("llama.rope.freq_base", "x")], {}, "bad-checkpoint", "`rope_theta` is 'x'"),
    ],
)
def test_what_a_gguf_file_cannot_be_is_said(tmp_path, metadata, tensors, id, why):
    (tmp_path / "m.gguf").write_bytes(gguf([*dict([*LLAMA_METADATA, *metadata]).items()], LLAMA_TENSORS | tensors))
    with pytest.raises(CatalogError) as error:
        resolve(ModelSource("path", "m.gguf"), tmp_path)
    assert error.value.id == id
    assert why in error.value.message


def test_a_gguf_file_without_a_number_names_it(tmp_path):
    (tmp_path / "m.gguf").write_bytes(gguf([m for m in LLAMA_METADATA if "feed_forward" not in m[0]], LLAMA_TENSORS))
    with pytest.raises(CatalogError, match="its header does not give `intermediate_size`"):
        resolve(ModelSource("path", "m.gguf"), tmp_path)


def test_costs_grow_with_the_request():
    cost = from_checkpoint("qwen3", QWEN3, None, {}, "tiny").parts["generate"].cost
    shape = {"batch": 1, "tokens": 1, "context": 100}
    small = evaluate(cost.activation_bytes, shape)
    assert all(evaluate(cost.activation_bytes, shape | {name: 50}) > small for name in ("batch", "tokens"))
    per_token = evaluate(cost.flops_per_token, {"context": 0})
    matmuls = sum(prod(s) for n, s in shapes(QWEN3).items() if len(s) == 2 and "embed" not in n)
    assert per_token == 2 * matmuls
    assert evaluate(cost.flops_per_token, {"context": 10}) == per_token + 10 * 4 * 2 * 4 * 32  # layers, heads, head_dim


def test_the_config_that_ships_is_json():
    json.dumps(from_checkpoint("qwen3", QWEN3, None, {}, "tiny").config)
