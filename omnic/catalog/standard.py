"""Parts that come with omnic (`std.resample`), and stages written in Python."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omnic.catalog.part import CatalogError, Key, Part, Port
from omnic.contract.domains import Range
from omnic.contract.types import Type
from omnic.expr import Quantity

STANDARD_PARTS: dict[str, Part] = {
    "resample": Part(
        "resample",
        "transform",
        inputs=(Port("audio", Type("audio"), streams=("clause", "sentence", "whole")),),
        outputs=(Port("audio", Type("audio"), streams=("clause", "sentence", "whole"), type_key="rate"),),
        keys=(
            Key(
                "rate",
                Type("int"),
                None,
                Range(Quantity(4, "kHz"), Quantity(192, "kHz")),
                "sample rate to give",
                required=True,
            ),
        ),
        doc="changes the sample rate of sound",
        devices=("cpu",),
    ),
    "mux": Part(
        "mux",
        "transform",
        inputs=(Port("video", Type("video")), Port("audio", Type("audio"))),
        outputs=(Port("clip", Type("video")),),
        doc="joins a video with its sound",
        devices=("cpu",),
        unsupported="omnic has no video stages yet",
    ),
}


def standard_part(name: str) -> Part | None:
    """The part `std.NAME`, or None."""
    return STANDARD_PARTS.get(name)


def python_part(
    path: Path | str,
    function: str,
    inputs: Iterable[tuple[str, Type]],
    outputs: Iterable[tuple[str, Type]],
    *,
    base: Path = Path(),
) -> Part:
    """A stage that calls `function` of the file `path` (relative to `base`). The file is parsed, never imported.

    Raises CatalogError unless the function is there and can be called with the inputs by name.
    """
    import ast

    file = base / path
    if file.suffix != ".py":
        raise _bad(f"{path} is not a `.py` file")
    if file.exists() and not file.is_file():
        raise _bad(f"{path} is no file to read")
    inputs, outputs = tuple(inputs), tuple(outputs)
    try:
        module = ast.parse(file.read_bytes(), str(path))
    except OSError:
        raise _bad(f"there is no file {path}") from None
    except (RecursionError, MemoryError):
        raise _bad(f"{path} is nested too deeply to be read") from None
    except (SyntaxError, ValueError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        raise _bad(f"{path} is not Python: {error.args[0]}{line}") from None
    defined = {n.name: n for n in module.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    found = defined.get(function)
    if found is None:
        raise _bad(f"{path} has no function `{function}`", f"it has {', '.join(defined)}" if defined else None)
    if (other := _left_behind(module, file.parent)) is not None:
        raise CatalogError(
            f"{path} imports `{other}`, which lies beside it; a build takes along {file.name} alone",
            help="put what the function needs into its file, or into an installed package",
            id="not-supported-yet",
        )
    args = found.args
    by_name = [a.arg for a in (*args.args, *args.kwonlyargs)]
    optional = len(args.defaults)
    needed = [a.arg for a in (*args.posonlyargs, *args.args)][: len(args.posonlyargs) + len(args.args) - optional]
    needed += [a.arg for a, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if default is None]
    wired = [name for name, _ in inputs]
    takes = f"it takes {', '.join(needed) or 'nothing'}"
    for name in wired:
        if name not in by_name and args.kwarg is None:
            raise _bad(f"`{function}` of {path} has no parameter `{name}`", takes)
    for name in needed:
        if name not in wired:
            raise _bad(f"`{function}` of {path} also needs `{name}`", takes)
    return Part(
        f"{path}:{function}",
        "python",
        inputs=tuple(Port(name, type_.required, required=not type_.optional) for name, type_ in inputs),
        outputs=tuple(Port(name, type_) for name, type_ in outputs),
        doc=(ast.get_docstring(found) or "").partition("\n")[0],
        devices=("cpu",),
    )


def _left_behind(module: Any, folder: Path) -> str | None:
    """The first module that `module` imports from the folder it lies in."""
    import ast
    import sys

    for node in ast.walk(module):
        match node:
            case ast.ImportFrom(level=level, module=name) if level:
                return "." * level + (name or "")
            case ast.Import(names=names):
                roots = [alias.name.partition(".")[0] for alias in names]
            case ast.ImportFrom(module=str(name)):
                roots = [name.partition(".")[0]]
            case _:
                continue
        for root in sorted({*roots} - sys.stdlib_module_names):
            if (folder / f"{root}.py").is_file() or (folder / root / "__init__.py").is_file():
                return root
    return None


def _bad(message: str, help: str | None = None) -> CatalogError:
    return CatalogError(message, help=help, id="bad-python-stage")
