"""A pipeline in which everything is too long for a line or named so that it clashes: `write` puts it in a folder."""

from __future__ import annotations

from pathlib import Path

OPTIONAL = tuple(f"extra_context_that_a_request_may_bring_{n}" for n in range(6))
MOST, BESIDE, MORE = (
    "most_tokens_of_the_answer",
    "tokens_beside_those_for_good_measure",
    "tokens_for_those_who_want_more",
)
LONG = "a stop string that is so long that nobody would ever think of it, let alone write it down in a file"
INPUTS = "\n".join(f"  input {name}: text?" for name in OPTIONAL)
EDGES = "\n".join(f"  {name} -> compose.{name}" for name in OPTIONAL)
PORTS = ", ".join(f"{name}: text" for name in OPTIONAL)
SOURCE = f"""\
pipeline words {{
  model lm = random("llama")

  input messages: chat<text>
{INPUTS}
  output reply: text?

  param temperature: float = 0.01 in [{", ".join(f"0.{n:02}" for n in range(1, 40))}]
  param {MOST}: int = 64 in 16..100
  param {BESIDE}: int = 4 in 0..8
  param {MORE}: int = 4 in 0..8
  require {MOST} + {BESIDE} * 3 <= 400 or {MOST} == 7 and {MORE} == 0

  stage think = lm.generate {{
    temperature = temperature
    max_tokens = {MOST} - ({BESIDE} - {MORE}) + 8 * ceil({BESIDE} / 9)
    stop = ["Any Size of Words, and math.Range", "{LONG}, and {LONG}", "b"]
  }}
  stage compose = python("one/glue.py:compose", fn(text: text, {PORTS}) -> (text: text))
  stage shout = python("two/glue.py:shout", fn(text: text) -> (text: text))

  messages -> think.messages
  think.text -> compose.text
{EDGES}
  compose.text -> shout.text
  shout.text -> reply

  serve chat.completions
}}
"""
FILES = {
    'math "x".omni': SOURCE,
    "one/glue.py": f"def compose(text, {', '.join(OPTIONAL)}):\n    return text + {OPTIONAL[0]}\n",
    "two/glue.py": "def shout(text):\n    return text.upper()\n",
}


def write(folder: Path) -> Path:
    """The pipeline's file."""
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder / next(iter(FILES))
