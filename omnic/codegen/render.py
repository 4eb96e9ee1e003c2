"""Templates: each gets one frozen view, and lays it out."""

from __future__ import annotations

from typing import Any


def render(template: str, view: Any) -> str:
    """The text of `templates/<template>.j2` over `view`. A name the view lacks is an error."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("omnic.codegen", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template(f"{template}.j2").render(view=view).rstrip() + "\n"
