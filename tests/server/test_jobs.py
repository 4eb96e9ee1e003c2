"""The store of jobs: in line, taken, ended, forgotten, by servers that share it and servers that have died."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from omnic.runtime.server.jobs import Job, Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path, "build", 60)) as made:
        yield made


def job(id: str, build: str = "build") -> Job:
    return Job(id, build, "studio", "a fox", "videos_clip", 7, "64x64", "1")


def finished(store: Store, id: str) -> None:
    store.part(id).write_bytes(b"film")
    assert store.complete(id, "64x64", "1.5")


def test_a_job_from_its_beginning_to_its_end(store: Store) -> None:
    added = store.add(job("a"), b"what to run")
    assert (added.status, added.progress, added.prompt, added.seed) == ("queued", 0, "a fox", 7)
    claimed = store.claim()
    assert claimed is not None
    assert (claimed[0].id, claimed[0].status, claimed[1]) == ("a", "in_progress", b"what to run")
    store.progress("a", 40)
    assert store.get("a").progress == 40  # type: ignore[union-attr]
    finished(store, "a")
    done = store.get("a")
    assert done is not None
    assert (done.status, done.progress, done.size, done.seconds) == ("completed", 100, "64x64", "1.5")
    assert done.expires == pytest.approx(time.time() + 60, abs=5)
    assert store.file("a").read_bytes() == b"film"


def test_first_come_first_served(store: Store) -> None:
    for id in "abc":
        store.add(job(id), b"")
    assert store.waiting() == 3
    assert [store.claim()[0].id for _ in "abc"] == ["a", "b", "c"]  # type: ignore[index]
    assert store.claim() is None
    assert store.mine() == {"a", "b", "c"}


def test_pages(store: Store) -> None:
    numbers = [store.add(job(f"{n}"), b"").number for n in range(5)]
    assert [j.id for j in store.page(2, None, True)] == ["4", "3"]
    assert [j.id for j in store.page(2, numbers[3], True)] == ["2", "1"]
    assert [j.id for j in store.page(9, numbers[2], False)] == ["3", "4"]


def test_a_failure_says_why_and_leaves_no_file(store: Store) -> None:
    store.add(job("a"), b"")
    store.claim()
    store.part("a").write_bytes(b"half")
    store.fail("a", "stage_failed", "no")
    failed = store.get("a")
    assert failed is not None
    assert (failed.status, failed.code, failed.message) == ("failed", "stage_failed", "no")
    assert not store.part("a").exists()
    store.fail("a", "other", "again")
    assert store.get("a") == failed


def test_what_was_deleted_meanwhile_does_not_come_back(store: Store) -> None:
    store.add(job("a"), b"")
    store.claim()
    assert store.delete("a")
    assert store.mine() == set()
    store.part("a").write_bytes(b"film")
    assert not store.complete("a", "64x64", "1")
    assert store.get("a") is None
    assert not store.file("a").exists()
    assert not store.delete("a")


def test_a_job_is_forgotten_when_its_time_is_over(tmp_path: Path) -> None:
    with closing(Store(tmp_path, "build", 0)) as store:
        store.add(job("a"), b"")
        store.claim()
        finished(store, "a")
        assert store.get("a") is None
        assert store.page(9, None, True) == []
        store.tend()
        assert not store.file("a").exists()


def test_servers_share_what_is_in_line_and_none_takes_what_another_has(tmp_path: Path) -> None:
    with closing(Store(tmp_path, "build", 60)) as store:
        for n in range(60):
            store.add(job(f"{n}"), b"")
    taken: list[list[str]] = [[], [], []]

    def work(mine: list[str]) -> None:
        with closing(Store(tmp_path, "build", 60)) as store:
            while claimed := store.claim():
                mine.append(claimed[0].id)
                store.progress(claimed[0].id, 50)
                store.fail(claimed[0].id, "x", "x")

    threads = [threading.Thread(target=work, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(int(id) for mine in taken for id in mine) == [*range(60)]


def test_a_server_takes_jobs_of_its_own_build_only(tmp_path: Path) -> None:
    with closing(Store(tmp_path, "one", 60)) as one, closing(Store(tmp_path, "other", 60)) as other:
        one.add(job("a", "one"), b"")
        other.tend()
        assert (other.waiting(), other.claim(), one.waiting()) == (0, None, 1)


def test_what_is_in_line_for_a_build_that_is_gone_fails_truthfully(tmp_path: Path) -> None:
    with closing(Store(tmp_path, "one", 60)) as one:
        one.add(job("a", "one"), b"")
    with closing(Store(tmp_path, "one", 60)) as again:
        again.tend()
        assert again.waiting() == 1  # the same build: it is taken up
    with closing(Store(tmp_path, "other", 60)) as other:
        other.tend()
        assert other.get("a").code == "pipeline_changed"  # type: ignore[union-attr]


DYING = """
import os, sys
from pathlib import Path
from omnic.runtime.server.jobs import Store
store = Store(Path(sys.argv[1]), "build", 60)
print(store.claim()[0].id, flush=True)
store.part("a").write_bytes(b"half")
sys.stdin.read(1)
os._exit(9)
"""


def test_what_a_dead_server_ran_has_failed_and_what_a_living_one_runs_has_not(tmp_path: Path) -> None:
    with closing(Store(tmp_path, "build", 60)) as store:
        store.add(job("a"), b"")
        store.add(job("b"), b"")
        command = [sys.executable, "-c", DYING, str(tmp_path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "a\n"
            store.tend()
            assert store.get("a").status == "in_progress"  # type: ignore[union-attr]
            process.communicate("x")
        store.tend()
        failed = store.get("a")
        assert failed is not None
        assert (failed.status, failed.code) == ("failed", "server_stopped")
        assert not store.part("a").exists()
        assert store.claim()[0].id == "b"  # type: ignore[index]
        assert len(list(tmp_path.glob("*.server"))) == 1


def test_another_version_of_the_tables_is_refused_and_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "jobs.sqlite3")) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(OSError, match="another omnic"):
        Store(tmp_path, "build", 60)
