"""Hypothesis strategies for sound pipelines."""

from __future__ import annotations

from hypothesis import strategies as st

from omnic.contract.domains import Choices, Domain, Range
from omnic.contract.types import Type, parse_type
from omnic.expr import Binary, Call, Literal, Name, Quantity, Size, Unary
from omnic.ir.pipeline import (
    ORIGINS,
    Channel,
    Device,
    Endpoint,
    Input,
    Model,
    Open,
    Output,
    Param,
    Pipeline,
    Setting,
    Slice,
    Stage,
)

TYPES = tuple(
    parse_type(text)
    for text in (
        "text", "text<max_tokens = 512>", "chat<text, image, tokens = 2048>", "audio<24kHz>",
        "audio<16kHz, seconds = 60>?",
        "video<16fps, audio<16kHz>>", "codes<16 @ 12.5Hz>", "hidden<2048>", "embeds<64 @ 25Hz>", "latents<16, /4x8x8>",
        "tensor<f32, [77, d]>", 'enum("a b", "c\\"d")', "state<talker>", "image?", "json",
    )
)  # fmt: skip
RESERVED = {"open", "from", "in", "not", "and", "or", "none", "true", "false", "input", "output", "channel", "step"}

names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
numbers = st.integers(-(10**12), 10**12) | st.floats(-1e9, 1e9, allow_nan=False)
quantities = st.builds(Quantity, st.integers(0, 10**6) | st.floats(0.1, 1000).map(lambda x: round(x, 3)),
                       st.sampled_from(["kHz", "ms", "GiB", "GB/s", "fps"]))  # fmt: skip
sizes = st.builds(Size, st.integers(1, 4096), st.integers(1, 4096), st.none() | st.integers(1, 64))
literals = st.none() | st.booleans() | numbers | texts | quantities | sizes
expressions = st.recursive(
    st.builds(Literal, st.integers(0, 99) | texts | quantities)
    | st.builds(Name, st.lists(names.filter(lambda n: n not in RESERVED), min_size=1, max_size=3).map(tuple)),
    lambda inner: (
        st.builds(Binary, st.sampled_from(["+", "-", "*", "/", "<=", "==", "and", "or"]), inner, inner)
        | st.builds(Call, st.sampled_from(["ceil", "max", "chunk"]), st.lists(inner, max_size=3).map(tuple))
        | st.builds(Unary, st.just("not"), inner)
    ),
    max_leaves=6,
)
domains: st.SearchStrategy[Domain] = st.builds(
    Range, st.integers(-9, 9), st.integers(10, 99), st.none() | st.integers(1, 9)
) | st.lists(numbers | texts | sizes, min_size=1, max_size=4).map(lambda values: Choices(tuple(values)))
opens = st.builds(Open, names, st.sampled_from(TYPES), literals | st.just(()), st.none() | domains)
values = st.recursive(literals, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=6)
settings = st.lists(
    st.tuples(
        names | st.just("high.guidance"),
        st.builds(
            Setting,
            values | opens | expressions.filter(lambda e: not isinstance(e, Literal)),
            st.sampled_from(ORIGINS),
            reason=texts,
        ),
    ),
    max_size=4,
    unique_by=lambda item: item[0],
).map(tuple)


def _distinct(draw: st.DrawFn, count: int, taken: set[str]) -> list[str]:
    found = draw(st.lists(names.filter(lambda n: n not in taken), min_size=count, max_size=count, unique=True))
    taken.update(found)
    return found


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    """A sound pipeline: a random graph over random types, settings of every kind on everything."""
    taken: set[str] = set()
    models = tuple(
        Model(
            n,
            draw(st.sampled_from(['hf("a/b", revision = "c")', "pypi('x')", "weird"])),
            "llama",
            draw(st.none() | texts),
        )
        for n in _distinct(draw, draw(st.integers(0, 2)), set())
    )
    inputs = tuple(Input(n, draw(st.sampled_from(TYPES))) for n in _distinct(draw, draw(st.integers(1, 3)), taken))
    params = tuple(
        Param(n, draw(st.sampled_from(TYPES)), *draw(st.just((None, None)) | domains.map(_default)))
        for n in _distinct(draw, draw(st.integers(0, 3)), set())
    )
    sources: dict[str, Type] = {i.name: i.type for i in inputs}
    stages: list[Stage] = []
    channels: list[Channel] = []
    for name in _distinct(draw, draw(st.integers(1, 4)), set()):
        if draw(st.booleans()):
            name = f"sub.{name}"
        wired = []
        for port in draw(st.lists(names, max_size=3, unique=True)):
            source = draw(st.sampled_from(sorted(sources)))
            if "." in source or draw(st.booleans()):
                (channel,) = _distinct(draw, 1, taken)
                channels.append(Channel(channel, source, f"{name}.{port}", sources[source], draw(settings)))
                source = channel
            wired.append((port, source))
        ports = draw(st.lists(names, min_size=1, max_size=2, unique=True))
        outputs = tuple((port, draw(st.sampled_from(TYPES))) for port in ports)
        sources |= {f"{name}.{port}": type_ for port, type_ in outputs}
        model = draw(st.sampled_from([None, *(m.name for m in models)]))
        part = draw(names if model else names | st.just("dir/glue.py:f"))
        on = draw(st.just(()) | st.just((("on", Setting(("gpu0", "gpu1"), "flag")),)))
        how = on + tuple((n, s) for n, s in draw(settings) if n != "on")
        optional = tuple(port for port, _ in wired if draw(st.booleans()))
        kind = draw(st.sampled_from(["generate", "decode", "transform", "python", "denoise"]))
        stages.append(Stage(name, kind, model, part, tuple(wired), outputs, optional, draw(settings), how))
    outputs_ = []
    for name in _distinct(draw, draw(st.integers(1, 2)), set()):
        source = draw(st.sampled_from(sorted(sources)))
        outputs_.append(Output(name, sources[source], source))
        if draw(st.booleans()):
            (channel,) = _distinct(draw, 1, taken)
            channels.append(Channel(channel, source, f"output {name}", sources[source]))
    everything = Slice(tuple(o.name for o in outputs_), tuple(s.name for s in stages))
    ports = [f"{s.name}.{port}" for s in stages for port, _ in s.inputs]
    endpoint = Endpoint(
        "chat.completions",
        draw(st.none() | st.sampled_from(ports)) if ports else None,
        draw(st.sampled_from([(), (("audio.voice", "v"), ("input", "text"))])),
        draw(st.sampled_from([(), (everything,)])),
    )
    return Pipeline(
        draw(names),
        draw(texts),
        models,
        inputs,
        params,
        draw(st.lists(expressions, max_size=2).map(tuple)),
        tuple(stages),
        tuple(channels),
        tuple(outputs_),
        (endpoint,),
        draw(st.lists(expressions, max_size=1).map(tuple)),
        draw(st.sampled_from([(), (Device("cpu", 0, (("think weights", 5), ('a "b"', 0))), Device("gpu0", 1 << 40))])),
    )


def _default(domain: Domain) -> tuple[object, Domain]:
    return (domain.low if isinstance(domain, Range) else domain.values[0]), domain
