"""`omnic check` as a whole process, what its phases take, and long files.

The process is timed against `python -c pass`, the two alternating. Phases are timed in a fresh process each, since the
first parse of a process builds its lexers. Long files are one pipeline of many stages and many pipelines of few; twice
the lines should take twice the time.

    python -m benchmarks.check [--pairs 7] [--lines 5000] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
ASSISTANT = ROOT / "pipelines" / "assistant.omni"

PHASES = """
import json, sys, time
from pathlib import Path
marks = [("", time.perf_counter())]
def mark(name):
    marks.append((name, time.perf_counter()))
from omnic.diagnostics import Sink
from omnic.source import Source
mark("import leaves")
import lark
mark("import lark")
from omnic.dsl.parse import parse
mark("import parser")
from omnic.dsl.check import check
mark("import checker and catalog")
from omnic.dsl.tables import parser
parser()
mark("load tables")
path = Path(sys.argv[1])
sink = Sink()
file = parse(Source(str(path), path.read_text()), sink)
mark("parse")
checked = check(file, base=path.parent, sink=sink)
mark("check")
from omnic.dsl.lower import lower
mark("import lowering")
if checked is not None and len(checked.pipelines) == 1:
    lower(checked, None, None, (), sink)
    mark("lower")
from omnic.dsl.fmt import format
format(Source(str(path), path.read_text()), sink)
mark("format")
print(json.dumps([(name, 1e3 * (at - before)) for (_, before), (name, at) in zip(marks, marks[1:])]))
assert not sink.has_errors
"""


def wall(command: list[str]) -> float:
    """Seconds that a process takes, start to end."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    return time.perf_counter() - start


def phases(path: Path, runs: int) -> dict[str, float]:
    """Milliseconds of each phase, medians over fresh processes."""
    found = []
    for _ in range(runs):
        command = [sys.executable, "-c", PHASES, str(path)]
        found.append(dict(json.loads(subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout)))
    return {name: statistics.median(run[name] for run in found) for name in found[0]}


def many_pipelines(lines: int) -> str:
    """The assistant, over and over."""
    text = ASSISTANT.read_text()
    count = -(-lines // len(text.splitlines()))
    return "".join(text.replace("pipeline assistant", f"pipeline assistant_{n}") for n in range(count))


def many_stages(lines: int) -> str:
    """One pipeline with `lines / 5` stages that each hang on the same text."""
    head = 'pipeline long {\n  model voice = pypi("hibari-tts")\n  input text: text\n'
    one = (
        "  output speech_{n}: audio<24kHz>\n"
        "  param speed_{n}: float = 1.0 in 0.5..2.0\n"
        "  stage speak_{n} = voice.synthesize {{ speed = speed_{n} }}\n"
        "  text -> speak_{n}.text {{ stream = sentence }}\n"
        "  speak_{n}.audio -> speech_{n}\n"
    )
    return head + "".join(one.format(n=n) for n in range(lines // 5)) + "}\n"


def long_files(lines: int, runs: int) -> list[dict[str, Any]]:
    rows = []
    shapes: dict[str, Callable[[int], str]] = {"many pipelines": many_pipelines, "many stages": many_stages}
    with tempfile.TemporaryDirectory() as directory:
        for shape, made in shapes.items():
            for count in (lines // 4, lines // 2, lines):
                path = Path(directory) / f"long_{count}.omni"
                path.write_text(made(count))
                found = phases(path, runs)
                rows.append({"shape": shape, "lines": count, "ms": {k: found[k] for k in ("parse", "check", "format")}})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--lines", type=int, default=5000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        print("(bytecode is written for this: compiling every module each time is not what a user pays)\n")

    check = [sys.executable, "-m", "omnic", "check", str(ASSISTANT)]
    wall(check)
    pairs = [(wall([sys.executable, "-c", "pass"]), wall(check)) for _ in range(options.pairs)]
    bare, whole = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(
        f"omnic check pipelines/assistant.omni   {whole:6.3f} s   (at most 0.25; best {min(w for _, w in pairs):.3f})"
    )
    print(f"python -c pass                         {bare:6.3f} s")
    print(f"median ratio                           {statistics.median(w / b for b, w in pairs):6.1f} x\n")

    own = phases(ASSISTANT, options.pairs)
    for name, ms in own.items():
        print(f"  {name:28} {ms:8.2f} ms")
    print()
    rows = long_files(options.lines, max(3, options.pairs // 2))
    print(f"{'file':16} {'lines':>6} {'parse':>9} {'check':>9} {'format':>9}   parse + check, at most 2 s")
    for row in rows:
        ms = row["ms"]
        total = (ms["parse"] + ms["check"]) / 1e3
        print(
            f"{row['shape']:16} {row['lines']:6} {ms['parse']:6.0f} ms {ms['check']:6.0f} ms {ms['format']:6.0f} ms"
            f"   {total:.2f} s, {1e6 * total / row['lines']:.0f} us a line"
        )
    if options.json:
        versions = {name: metadata.version(name) for name in ("omnic", "lark")} | {"python": platform.python_version()}
        record = {
            "device": f"{os.cpu_count()} x {platform.machine()}",
            "versions": versions,
            "check_seconds": {"median": whole, "all": [w for _, w in pairs]},
            "bare_seconds": {"median": bare, "all": [b for b, _ in pairs]},
            "phases_ms": own,
            "long_files": rows,
        }
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
