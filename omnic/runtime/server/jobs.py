"""Long work that outlives its request: jobs in an SQLite database that several server processes may share.

A job is queued, in_progress, then completed or failed. Whichever live server of the same build has room takes the
oldest queued one. A server holds a lock on a file of its own as long as it lives, so that what it ran when it died is
known to have failed, and what it left in line is taken up by the next.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSION = 1  # of the tables
WAIT_SECONDS = 10.0  # for another process to let go of the database
_TABLES = """
CREATE TABLE IF NOT EXISTS jobs (
  number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, build TEXT NOT NULL, owner TEXT,
  model TEXT NOT NULL, prompt TEXT NOT NULL, method TEXT NOT NULL, seed INTEGER,
  size TEXT NOT NULL, seconds TEXT NOT NULL, status TEXT NOT NULL DEFAULT 'queued',
  progress INTEGER NOT NULL DEFAULT 0, created REAL NOT NULL, ended REAL, expires REAL, code TEXT, message TEXT
);
CREATE TABLE IF NOT EXISTS requests (id TEXT PRIMARY KEY REFERENCES jobs(id) ON DELETE CASCADE, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS jobs_status ON jobs(status);
"""
_STOPPED = "the server that ran this job stopped before it was done"
_REBUILT = "the pipeline was built anew before this job began"


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it stands. Times are seconds since 1970; `owner` is the server that runs it."""

    id: str
    build: str
    model: str
    prompt: str
    method: str
    seed: int | None
    size: str
    seconds: str
    status: str = "queued"
    progress: int = 0  # percent
    created: float = 0.0
    ended: float | None = None
    expires: float | None = None
    code: str | None = None  # why it failed, as one word
    message: str | None = None  # and for people
    owner: str | None = None
    number: int = 0


_FIELDS = tuple(Job.__dataclass_fields__)
_COLUMNS = ", ".join(_FIELDS)


class Store:
    """The jobs in a directory, and the files they made, as one server of `build` sees them. Used from one thread.

    Raises OSError or sqlite3.Error where they cannot be kept.
    """

    def __init__(self, directory: Path, build: str, keep_seconds: float) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.directory, self.build, self._keep_seconds = directory, build, keep_seconds
        self.owner = secrets.token_hex(8)
        self._lock = (directory / f"{build}-{self.owner}.server").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._db = sqlite3.connect(directory / "jobs.sqlite3", timeout=WAIT_SECONDS, isolation_level=None)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._db.close()
        self._lock.close()
        Path(self._lock.name).unlink(missing_ok=True)

    def file(self, id: str) -> Path:
        """Where the result of a job lies once it is completed."""
        return self.directory / f"{id}.mp4"

    def part(self, id: str) -> Path:
        """Where it lies until then."""
        return self.directory / f"{id}.part.mp4"

    # --- what clients ask --------------------------------------------------------------------------------------------

    def add(self, job: Job, body: bytes) -> Job:
        """Puts a job in line, with what it is to run."""
        with self._writing() as db:
            values = {"created": time.time(), **{name: getattr(job, name) for name in _GIVEN}}
            names = ", ".join(values)
            db.execute(f"INSERT INTO jobs ({names}) VALUES ({', '.join('?' * len(values))})", tuple(values.values()))
            db.execute("INSERT INTO requests VALUES (?, ?)", (job.id, body))
        found = self.get(job.id)
        assert found is not None
        return found

    def get(self, id: str) -> Job | None:
        return next(self._jobs("WHERE id = ? AND (expires IS NULL OR expires > ?)", id, time.time()), None)

    def page(self, limit: int, after: int | None, newest_first: bool) -> list[Job]:
        """Up to `limit` jobs, those that come after the one of number `after`."""
        way, order = ("<", "DESC") if newest_first else (">", "ASC")
        where = "WHERE (expires IS NULL OR expires > ?)" + (f" AND number {way} {after}" if after is not None else "")
        return list(self._jobs(f"{where} ORDER BY number {order} LIMIT {limit}", time.time()))

    def delete(self, id: str) -> bool:
        """Forgets a job and what it made; whoever runs it finds out by `mine`. Whether there was one."""
        with self._writing() as db:
            gone = db.execute("DELETE FROM jobs WHERE id = ?", (id,)).rowcount
        self.file(id).unlink(missing_ok=True)
        return gone > 0

    def waiting(self) -> int:
        """Jobs in line for servers of this build."""
        (count,) = self._db.execute(
            "SELECT count(*) FROM jobs WHERE status = 'queued' AND build = ?", (self.build,)
        ).fetchone()
        return int(count)

    # --- what the server that runs them does -------------------------------------------------------------------------

    def claim(self) -> tuple[Job, bytes] | None:
        """Takes the oldest job in line, which no other server can then take, and what it is to run."""
        with self._writing() as db:
            row = db.execute(
                "SELECT id FROM jobs WHERE status = 'queued' AND build = ? ORDER BY number LIMIT 1", (self.build,)
            ).fetchone()
            if row is None:
                return None
            db.execute("UPDATE jobs SET status = 'in_progress', owner = ? WHERE id = ?", (self.owner, *row))
            (body,) = db.execute("SELECT body FROM requests WHERE id = ?", row).fetchone()
            db.execute("DELETE FROM requests WHERE id = ?", row)
        return next(self._jobs("WHERE id = ?", *row)), body

    def mine(self) -> set[str]:
        """The jobs that this server runs and that nobody has deleted."""
        rows = self._db.execute("SELECT id FROM jobs WHERE status = 'in_progress' AND owner = ?", (self.owner,))
        return {id for (id,) in rows}

    def progress(self, id: str, percent: int) -> None:
        with self._writing() as db:
            db.execute("UPDATE jobs SET progress = ? WHERE id = ? AND status = 'in_progress'", (percent, id))

    def complete(self, id: str, size: str, seconds: str) -> bool:
        """Makes the file `part` the result. False, and the file is gone, if the job was deleted meanwhile."""
        self.part(id).replace(self.file(id))
        with self._writing() as db:
            done = db.execute(
                "UPDATE jobs SET status = 'completed', progress = 100, size = ?, seconds = ?, ended = ?, expires = ? "
                "WHERE id = ? AND status = 'in_progress'",
                (size, seconds, time.time(), time.time() + self._keep_seconds, id),
            ).rowcount
        if not done:
            self.file(id).unlink(missing_ok=True)
        return done > 0

    def fail(self, id: str, code: str, message: str) -> None:
        self.part(id).unlink(missing_ok=True)
        with self._writing() as db:
            self._fail(db, id, code, message)

    def tend(self) -> None:
        """Says of jobs whose server is gone that they have failed, and forgets those whose time is over."""
        builds = self._alive()
        owners = {owner for build_owners in builds.values() for owner in build_owners}
        with self._writing() as db:
            for id, owner in db.execute("SELECT id, owner FROM jobs WHERE status = 'in_progress'").fetchall():
                if owner not in owners:
                    self.part(id).unlink(missing_ok=True)
                    self._fail(db, id, "server_stopped", _STOPPED)
            for id, build in db.execute("SELECT id, build FROM jobs WHERE status = 'queued'").fetchall():
                if build not in builds:
                    self._fail(db, id, "pipeline_changed", _REBUILT)
            over = db.execute("SELECT id FROM jobs WHERE expires <= ?", (time.time(),)).fetchall()
            db.executemany("DELETE FROM jobs WHERE id = ?", over)
        for (id,) in over:
            self.file(id).unlink(missing_ok=True)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("PRAGMA foreign_keys = ON")
        with self._writing() as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version not in (0, VERSION):
                raise OSError(f"{self.directory} holds jobs of another omnic")
            for statement in _TABLES.split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {VERSION}")

    def _fail(self, db: sqlite3.Connection, id: str, code: str, message: str) -> None:
        db.execute("DELETE FROM requests WHERE id = ?", (id,))
        db.execute(
            "UPDATE jobs SET status = 'failed', code = ?, message = ?, ended = ?, expires = ? "
            "WHERE id = ? AND status IN ('queued', 'in_progress')",
            (code, message, time.time(), time.time() + self._keep_seconds, id),
        )

    def _alive(self) -> dict[str, set[str]]:
        """The servers that live, by the build they serve."""
        found: dict[str, set[str]] = {self.build: {self.owner}}
        for path in self.directory.glob("*.server"):
            build, _, owner = path.stem.rpartition("-")
            if owner != self.owner and _locked(path):
                found.setdefault(build, set()).add(owner)
        return found

    def _jobs(self, where: str, *values: Any) -> Iterator[Job]:
        for row in self._db.execute(f"SELECT {_COLUMNS} FROM jobs {where}", values):
            yield Job(*row)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that no other process writes within."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


_GIVEN = ("id", "build", "model", "prompt", "method", "seed", "size", "seconds")


def _locked(path: Path) -> bool:
    """Whether the server whose file this is still lives; the file of one that does not is removed."""
    try:
        with path.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
            return False
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False


def directory_of(build: Path, pipeline: str) -> Path:
    """Where the jobs of a build are kept unless told otherwise: in the user's state, under the build's own path."""
    import hashlib

    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")
    place = hashlib.sha256(os.fsencode(build.resolve())).hexdigest()[:12]
    return state / "omnic" / "jobs" / f"{pipeline}-{place}"
