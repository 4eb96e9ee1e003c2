"""Arguments that several commands take, described once."""

from __future__ import annotations

from typing import Annotated

import typer

File = Annotated[str, typer.Argument(help="The pipeline, an .omni file.", metavar="FILE", show_default=False)]
BuildDirectory = Annotated[
    str, typer.Argument(help="A directory that `omnic build` made.", metavar="BUILD", show_default=False)
]
Deploy = Annotated[
    str | None, typer.Option("--deploy", metavar="NAME", help="The deploy block to plan for.", show_default=False)
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="TARGET",
        help="Where it shall run: cpu, a preset such as gpu:h200*2 (see `omnic targets`), or a JSON file. "
        "Stronger than the deploy block.",
        show_default=False,
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="STAGE.KEY=VALUE",
        help="Set a stage's key; stronger than the file. May be given several times.",
        show_default=False,
    ),
]
