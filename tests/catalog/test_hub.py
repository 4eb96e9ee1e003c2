"""Repositories in the hub's cache: found on disk, with no network to reach."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest

from omnic import catalog, hub
from omnic.catalog.resolve import CatalogError, ModelSource, resolve
from tests.catalog.checkpoints import TINY, write_checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the catalog opened a socket")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache as `huggingface_hub` leaves it: blobs, snapshots of links, refs."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    repository = tmp_path / "hf" / "hub" / "models--org--tiny"
    whole = write_checkpoint(tmp_path / "whole", shards=2)
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    (repository / "blobs").mkdir()
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for index, file in enumerate(sorted(whole.iterdir())):
        blob = repository / "blobs" / f"{index:064x}"
        blob.write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(Path("../../blobs") / blob.name)
    return repository


def tiny(revision: str | None = None) -> ModelSource:
    return ModelSource("hf", "org/tiny", (("revision", revision),) if revision else ())


def test_a_cached_repository_resolves_without_a_network(cache):
    model = resolve(tiny(), Path())
    assert (model.family, model.format, model.revision) == ("llama", "safetensors", COMMIT)
    assert model.root == str(cache / "snapshots" / COMMIT)
    assert {f.path for f in model.files} == {
        "config.json", "tokenizer.json", "model.safetensors.index.json",
        "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
    }  # fmt: skip
    assert all((Path(model.root) / f.path).stat().st_size == f.bytes for f in model.files)


def test_offline_changes_nothing_for_what_is_there(cache, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert resolve(tiny(), Path()).revision == COMMIT


def test_a_revision_is_a_branch_a_tag_or_a_commit(cache):
    (cache / "refs" / "v1").write_text(COMMIT)
    assert resolve(tiny("v1"), Path()).revision == resolve(tiny(COMMIT), Path()).revision == COMMIT
    with pytest.raises(CatalogError, match=f"`org/tiny` at revision `{OTHER}` is not in the hub cache"):
        resolve(tiny(OTHER), Path())


@pytest.mark.parametrize("missing", ["model-00002-of-00002.safetensors", "tokenizer.json", "config.json"])
@pytest.mark.parametrize("how", ["link gone", "blob gone"])
def test_a_missing_part_is_named_at_once(cache, missing, how):
    link = cache / "snapshots" / COMMIT / missing
    if how == "blob gone":
        link.resolve().unlink()
    else:
        link.unlink()
    start = time.perf_counter()
    with pytest.raises(CatalogError) as error:
        resolve(tiny(), Path())
    assert time.perf_counter() - start < 2
    assert error.value.id == "model-not-found"
    assert missing in error.value.message


@pytest.mark.parametrize(
    ("offline", "help"),
    [
        ("", "fetch it with `hf download org/absent`, or name a directory with `path(…)`"),
        ("1", "HF_HUB_OFFLINE is set: copy the repository into "),
    ],
)
def test_what_is_not_cached_says_how_to_get_it(cache, monkeypatch, offline, help):
    monkeypatch.setenv("HF_HUB_OFFLINE", offline)
    with pytest.raises(CatalogError) as error:
        resolve(ModelSource("hf", "org/absent"), Path())
    assert error.value.id == "model-not-found"
    assert error.value.help.startswith(help)


def test_the_cache_is_where_the_library_looks(tmp_path):
    assert hub.cache({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}) == Path("/a")
    assert hub.cache({"HF_HOME": "/b"}) == Path("/b/hub")
    assert hub.cache({"XDG_CACHE_HOME": "/c"}) == Path("/c/huggingface/hub")
    assert hub.cache({}) == Path("~/.cache/huggingface/hub").expanduser()


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_both_variables_that_forbid_downloads_count(name):
    assert [hub.offline({name: value}) for value in ("1", "on", "Yes", "true", "0", "")] == [name] * 4 + [None] * 2
    assert hub.fetch("org/repo", None, {name: "1"}).startswith(f"{name} is set: copy the repository into ")
    assert hub.fetch("org/repo", "v2", {}) == "fetch it with `hf download org/repo --revision v2`"


def test_a_shipped_description_stands_in_for_weights(cache):
    model = resolve(ModelSource("hf", "Qwen/Qwen3-32B"), Path())
    assert (model.root, model.files, model.family, model.license) == (None, (), "qwen3", "apache-2.0")
    generate = model.parts["generate"]
    assert generate.cost.weight_bytes == 2 * 32_762_123_264
    assert {k.name: (k.default, k.origin) for k in generate.keys}["temperature"] == (
        0.6, "Qwen/Qwen3-32B (published config, shipped with omnic)",
    )  # fmt: skip


def test_what_is_cached_wins_over_the_description(cache):
    snapshot = cache.parent / "models--Qwen--Qwen3-8B" / "snapshots" / OTHER
    write_checkpoint(snapshot, TINY | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]})
    (snapshot.parent.parent / "refs").mkdir()
    (snapshot.parent.parent / "refs" / "main").write_text(OTHER)
    assert resolve(ModelSource("hf", "Qwen/Qwen3-8B"), Path()).config["hidden_size"] == 64


@pytest.mark.parametrize("name", ["a/b/c", "", "../x", "a b", "/etc"])
def test_a_name_that_is_no_repository_is_refused(cache, name):
    with pytest.raises(CatalogError, match="is not"):
        resolve(ModelSource("hf", name), Path())


def test_every_description_matches_its_digest():
    files = sorted((Path(catalog.__file__).parent / "fixtures").glob("Qwen--Qwen3-*.json"))
    assert [f.stem for f in files] == ["Qwen--Qwen3-0.6B", "Qwen--Qwen3-32B", "Qwen--Qwen3-8B"]
    for file in files:
        fixture = json.loads(file.read_text())
        model = resolve(ModelSource("hf", fixture["repository"]), Path())
        assert model.digest == fixture["digest"]
