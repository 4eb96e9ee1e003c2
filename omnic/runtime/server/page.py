"""The page at /docs: what this build answers, and a form to try it. It asks nobody but this server for anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from omnic.contract.openapi import openapi
from omnic.manifest import Manifest

Json = dict[str, Any]

HEADERS = {
    "content-security-policy": "default-src 'none'; connect-src 'self'; img-src data:; media-src blob:; "
    "script-src 'unsafe-inline'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
}
_TEXT = "Why is the sky blue?"


def page(content: Manifest) -> str:
    """The whole page of a build, as HTML."""
    paths = openapi(content)["paths"]
    endpoints = "\n".join(_endpoint(path, one["post"], content) for path, one in paths.items() if "post" in one)
    facts = ((path, one["get"]["summary"]) for path, one in paths.items() if "get" in one)
    template = (Path(__file__).parent / "page.html").read_text()
    for mark, text in {
        "title": escape(content.pipeline),
        "endpoints": endpoints,
        "facts": _table((_link(path), escape(summary)) for path, summary in facts),
    }.items():
        template = template.replace(f"{{{{{mark}}}}}", text)
    return template


def _endpoint(path: str, operation: Json, content: Manifest) -> str:
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    schema["properties"]["model"]["enum"] = [content.pipeline]
    fields = dict(_flat(schema["properties"]))
    [ours] = ({f.name for f in e.fields} for e in content.endpoints if e.name == operation["operationId"])
    body = {name: example(one) for name, one in schema["properties"].items() if name in schema["required"]}
    rules = f"<p>{escape(schema['description'])}</p>" if "description" in schema else ""
    output = "" if "application/json" in operation["responses"]["200"]["content"] else f" --output {Path(path).name}"
    return f"""<section>
<h2><code>POST {escape(path)}</code></h2>
<p>{escape(operation["summary"])}.</p>{rules}
<form data-path="{escape(path)}" data-output="{output}">
<label>The request
<textarea spellcheck="false">{escape(json.dumps(body, indent=2))}</textarea></label>
<button type="submit">Send</button>
<pre class="curl"></pre>
<div class="answer" aria-live="polite"></div>
</form>
<p>Press the name of a field to put it into the request.</p>
{_table(_row(n, f, n in schema["required"]) for n, f in fields.items() if n in ours)}
<details><summary>Taken for the sake of clients that send them, without effect</summary>
{_table(_row(n, f, False) for n, f in fields.items() if n not in ours)}
</details>
</section>"""


def _flat(properties: Json) -> Iterator[tuple[str, Json]]:
    """Fields with dotted names for nested ones."""
    for name, schema in properties.items():
        if "properties" in schema:
            yield from ((f"{name}.{inner}", one) for inner, one in schema["properties"].items())
        else:
            yield name, schema


def _row(name: str, schema: Json, required: bool) -> tuple[str, str, str]:
    shown = f"<code>{escape(name)}</code>"
    if not required:
        value = escape(json.dumps(another(schema)))
        shown = f'<button type="button" data-name="{escape(name)}" data-value="{value}">{shown}</button>'
    default = schema.get("default", ())
    standing = "required" if required else f"else {json.dumps(default)}" if default != () else ""
    about = [escape(text) for text in (schema.get("description", ""), standing) if text]
    return shown, escape(allowed(schema)), "; ".join(about)


def _table(rows: Iterator[tuple[str, ...]]) -> str:
    lines = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows)
    return "<table>\n" + "".join(f"<tr>{line}</tr>\n" for line in lines) + "</table>"


def _link(path: str) -> str:
    shown = f"<code>GET {escape(path)}</code>"
    return shown if "{" in path else f'<a href="{escape(path[1:])}">{shown}</a>'


def allowed(schema: Json) -> str:
    """In words, what a JSON Schema of `contract.schema` allows."""
    if "anyOf" in schema:
        return " or ".join(allowed(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    kinds = schema.get("type", "any value")
    if kinds == "array":
        most = f", at most {schema['maxItems']}" if "maxItems" in schema else ""
        return f"a list of {allowed(schema['items'])}{most}"
    if kinds == "object" and "properties" in schema:
        return "{" + ", ".join(schema["properties"]) + "}"
    words = " or ".join([kinds] if isinstance(kinds, str) else kinds)
    if "minimum" in schema:
        words += f" in {schema['minimum']}..{schema['maximum']}"
    if "multipleOf" in schema:
        words += f" step {schema['multipleOf']}"
    if "maxLength" in schema:
        words += f", at most {schema['maxLength']} characters"
    return words


def example(schema: Json) -> Any:
    """A value that a JSON Schema of `contract.schema` allows: its default if it has one."""
    if "default" in schema:
        return schema["default"]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return example(schema["anyOf"][0])
    match schema.get("type"):
        case "string":
            return _TEXT
        case "array":
            return [example(schema["items"])]
        case "object":
            made = {name: example(one) for name, one in schema.get("properties", {}).items()}
            return made | ({"role": "user"} if "role" in made else {})
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
    return None


def another(schema: Json) -> Any:
    """What a field is set to when its name is pressed: not its default where there is a plain alternative."""
    default = schema.get("default")
    if "enum" in schema:
        return next((value for value in schema["enum"] if value != default), default)
    if schema.get("type") == "boolean":
        return not default
    return schema.get("items", {}).get("enum") or example(schema)
