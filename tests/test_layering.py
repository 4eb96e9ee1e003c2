"""Who may import whom. The table is read from docs/architecture.md, so that text and code cannot part."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "omnic"
FREE = {"contract", "expr", "hub", "spelling"}  # importable from everywhere but from below
BELOW = {
    "source": set(),
    "expr": set(),
    "hub": set(),
    "spelling": set(),
    "installed": set(),
    "target": {"expr", "spelling"},
    "diagnostics": set(),
    "contract": {"expr", "spelling"},
}
SERVE_LIBRARIES = {  # jinja2 too: chat templates are written in it, so transformers needs it
    "torch", "transformers", "tokenizers", "safetensors", "numpy", "fastapi", "starlette", "pydantic", "uvicorn",
    "soundfile", "av", "prometheus_client", "gguf", "accelerate", "huggingface_hub", "msgspec", "onnxruntime", "hibari",
    "jinja2", "diffusers", "PIL", "multipart", "python_multipart", "ftfy", "fa3_fwd_interface",
}  # fmt: skip


def table() -> dict[str, str]:
    """Package to the text of its `may import` cell."""
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)
    return dict(rows)


TABLE = table()


def modules() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if "templates" not in p.parts)


def owner(path: Path) -> str:
    """The row of the table that a file belongs to."""
    first = path.relative_to(PACKAGE).parts[0]
    return {"__main__.py": "cli", "__init__.py": "source"}.get(first, first.removesuffix(".py"))


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every module that the code imports, lazily or not, by statement or by `import_module("…")`, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((alias.name, node.lineno) for alias in names)
            case ast.ImportFrom(module="omnic", names=names):
                yield from ((f"omnic.{alias.name}", node.lineno) for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module, node.lineno
            case ast.ImportFrom():
                yield "omnic.relative-import", node.lineno
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module"),
                args=[ast.Constant(str(name)), *_],
            ):
                yield name, node.lineno


def outside(tree: ast.AST) -> Iterator[ast.AST]:
    """The parts of a module that run when it is imported: everything but function bodies and typing-only blocks."""
    for node in ast.iter_child_nodes(tree):
        typing_only = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not typing_only:
            yield node
            yield from outside(node)


def allowed(package: str) -> tuple[set[str], set[str], bool]:
    """What a row allows: packages of omnic, libraries, and whether it allows all of omnic."""
    words = set(re.findall(r"`(\w+)`", TABLE[package]))
    anything = "everything" in TABLE[package]
    ours = words & TABLE.keys() | {package} | BELOW.get(package, FREE)
    libraries = words - TABLE.keys() | (SERVE_LIBRARIES if "serve" in words else set())
    return ours, libraries, anything


def test_every_package_has_a_row_and_every_row_a_package() -> None:
    assert {owner(path) for path in modules()} == TABLE.keys()


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_follow_the_table(path: Path) -> None:
    ours, libraries, anything = allowed(owner(path))
    wrong = []
    for name, line in imports(ast.parse(path.read_text())):
        root, _, rest = name.partition(".")
        first = rest.partition(".")[0]
        if root == "omnic":
            fine = anything or first in ours or first == "__version__"
        else:
            fine = root in sys.stdlib_module_names or root in libraries
        if not fine:
            wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert wrong == []


@pytest.mark.parametrize("package", ["driver", "engines", "cli"])
def test_the_runtime_is_imported_late(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in modules()
        if owner(path) == package
        for part in outside(ast.parse(path.read_text()))
        if isinstance(part, ast.Import | ast.ImportFrom)
        for name, line in imports(part)
        if name.startswith("omnic.runtime")
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests/golden").rglob("*.py")), ids=lambda p: f"{p.parent.name}/{p.name}"
)
def test_generated_code_imports_what_serving_has(path: Path) -> None:
    allowed = {"runtime", "contract", "expr", "manifest"}
    ours = {name.split(".")[1] for name, _ in imports(ast.parse(path.read_text())) if name.startswith("omnic.")}
    assert ours <= allowed


def test_importing_omnic_loads_no_library() -> None:
    loaded = python("import omnic, sys; print(*sys.modules)").split()
    heavy = {"torch", "lark", "typer", "rich", "msgspec", "jinja2", "transformers", "numpy", "pydantic", "fastapi"}
    assert heavy.isdisjoint(loaded)


def test_the_fast_commands_load_no_typer() -> None:
    loaded = python(
        "import sys; from omnic.__main__ import run\n"
        f"status = run(['check', {str(ROOT / 'pipelines/assistant.omni')!r}]); print(status, *sys.modules)"
    ).split()
    assert {"typer", "rich", "msgspec", "torch", "transformers", "jinja2", "asyncio"}.isdisjoint(loaded)


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- each half without the other --------------------------------------------------------------------------------------

COMPILER = (
    "lark",
    "typer",
    "rich",
    "omnic.dsl",
    "omnic.ir",
    "omnic.passes",
    "omnic.codegen",
    "omnic.catalog",
    "omnic.driver",
)
RUNTIME = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "onnxruntime", "hibari", "fastapi")
PIPELINE = """\
pipeline small {
  model lm = random("llama", seed = 0)

  input  messages: chat<text>
  output reply: text

  param max_tokens: int = 8 in 1..16

  stage think = lm.generate { max_tokens = max_tokens }

  messages   -> think.messages
  think.text -> reply

  serve chat.completions
}
"""


def without(names: tuple[str, ...], folder: Path) -> dict[str, str]:
    """An environment whose Python processes, children included, cannot import `names`."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if any(name == gone or name.startswith(gone + '.') for gone in {names!r}):\n"
        "            raise ModuleNotFoundError(f'{name} is absent in this test', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
    )
    return os.environ | {"PYTHONPATH": str(folder), "HF_HUB_OFFLINE": "1"}


def run(environment: dict[str, str], *command: str | Path) -> str:
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build made where no library of the runtime can be imported."""
    folder = tmp_path_factory.mktemp("half")
    (folder / "small.omni").write_text(PIPELINE)
    environment = without(RUNTIME, folder / "absent")
    for command in (["check"], ["plan"], ["opt"], ["build", "-o", str(folder / "build")]):
        run(environment, "-m", "omnic", command[0], folder / "small.omni", *command[1:])
    return folder / "build"


def test_absence_is_real(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="torch is absent"):
        run(without(RUNTIME, tmp_path / "absent"), "-c", "import torch")


def test_compiling_needs_no_torch(build: Path) -> None:
    assert (build / "manifest.json").is_file()
    assert (build / "pipeline.py").is_file()


def test_every_runtime_module_imports_without_the_compiler(tmp_path: Path) -> None:
    names = [".".join(p.relative_to(ROOT).with_suffix("").parts) for p in modules() if owner(p) == "runtime"]
    code = f"import importlib\nfor name in {names!r}: importlib.import_module(name)"
    run(without(COMPILER, tmp_path / "absent"), "-c", code)


def test_a_build_runs_without_the_compiler(build: Path, tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        f"sys.path.insert(0, {str(build)!r})\n"
        "from pipeline import Small\n"
        "async def main():\n"
        "    async with Small.load() as small:\n"
        "        asked = small.chat_completions_reply(messages=[{'role': 'user', 'content': 'Hello'}], seed=1)\n"
        "        answer = await asked.result()\n"
        "        print(answer['finished'].completion_tokens)\n"
        "asyncio.run(main())"
    )
    assert int(run(without(COMPILER, tmp_path / "absent"), "-c", code)) > 0


def test_a_build_serves_without_the_compiler(build: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(build / "server.py"), "--port", "0"]
    environment = without(COMPILER, tmp_path / "absent")  # the worker inherits it
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            lines = iter(server.stderr.readline, "")
            url = next(match[1] for line in lines if (match := re.search(r"(http://\S+), ready", line)))
            body = {"messages": [{"role": "user", "content": "Hello"}], "seed": 1}
            asked = Request(
                f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            with urlopen(asked) as reply:
                answer = json.load(reply)
        finally:
            server.kill()
    assert answer["usage"]["completion_tokens"] > 0
