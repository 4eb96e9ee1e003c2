"""The parser, from tables that ship with the package; `python -m omnic.dsl.tables` writes them.

Building them from the grammar takes some 300 ms, loading them a few. They are used only with the lark they were
made by; with another one, or without the file, the parser is built from the grammar, in memory.
"""

from __future__ import annotations

import functools
import hashlib
import io
from importlib import resources

import lark

from omnic.dsl.newlines import Newlines

GRAMMAR, TABLES = "omni.lark", "omni.tables"
STARTS = ("start", "setting")
STARTS = ("start", "setting")


@functools.cache
def parser() -> lark.Lark:
    """The parser of `.omni` files. It holds no state between parses."""
    file = resources.files("omnic.dsl").joinpath(TABLES)
    tables = file.read_bytes() if file.is_file() else b""
    header, _, body = tables.partition(b"\n")
    if header.split(b" ")[:2] == [b"lark", lark.__version__.encode()]:
        return lark.Lark.load(io.BytesIO(body))
    return build(grammar())


def build(text: str, *, strict: bool = False) -> lark.Lark:
    """A parser made from grammar text. `strict` also refuses terminals that collide (needs `interegular`)."""
    options = {"parser": "lalr", "lexer": "contextual", "maybe_placeholders": True}
    return lark.Lark(text, start=[*STARTS], postlex=Newlines(), strict=strict, **options)


def grammar() -> str:
    return resources.files("omnic.dsl").joinpath(GRAMMAR).read_text(encoding="utf-8")


def header(text: str) -> bytes:
    """First line of the tables of a grammar: what they were made by and of."""
    digest = hashlib.sha256("\n".join((*STARTS, text)).encode()).hexdigest()
    return f"lark {lark.__version__} grammar {digest}".encode()


def dump(text: str) -> bytes:
    """The tables of a grammar, as they ship."""
    body = io.BytesIO()
    build(text, strict=True).save(body)
    return header(text) + b"\n" + body.getvalue()


if __name__ == "__main__":
    with resources.as_file(resources.files("omnic.dsl").joinpath(TABLES)) as path:
        path.write_bytes(dump(grammar()))
        print(f"wrote {path.name}: {path.stat().st_size} bytes")
