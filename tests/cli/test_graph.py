"""Pictures: what they show, that they are well formed, and that nothing in them overlaps."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnic.cli.picture import html, mermaid, svg
from omnic.cli.picture.graph import Arrow, Box, Graph, of
from omnic.cli.picture.layout import lay_out
from omnic.contract.types import parse_type
from omnic.ir.pipeline import Channel, Device, Endpoint, Input, Output, Pipeline, Setting, Stage

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def assistant() -> Pipeline:
    text, audio = parse_type("text"), parse_type("audio<24kHz>")
    return Pipeline(
        "assistant",
        "cpu",
        inputs=(Input("messages", parse_type("chat<text>")),),
        stages=(
            Stage(
                "think", "generate", "lm", "generate", (("messages", "messages"),), (("text", text),),
                how=(("slots", Setting(8)),),
            ),
            Stage("speak", "decode", "voice", "synthesize", (("text", "c0"),), (("audio", audio),)),
        ),
        channels=(Channel("c0", "think.text", "speak.text", text, how=(("stream", Setting("sentence")),)),),
        outputs=(Output("reply", text, "think.text"), Output("speech", audio, "speak.audio")),
        endpoints=(Endpoint("chat.completions"),),
        devices=(Device("cpu", 1 << 34, (("think weights", 269 << 20),)),),
    )  # fmt: skip


def test_boxes_carry_what_is_planned(assistant: Pipeline) -> None:
    boxes = {box.title: box.lines for box in of(assistant).boxes}
    assert boxes["think"] == ("lm.generate", "slots = 8", "weights: 269 MiB on cpu")
    assert boxes["messages"] == ("chat<text>",)


def test_arrows_say_what_flows_and_how(assistant: Pipeline) -> None:
    assert [(a.source, a.target, a.text) for a in of(assistant).arrows] == [
        ("input messages", "stage think", "messages"),
        ("stage think", "stage speak", "text, sentence"),
        ("stage think", "output reply", ""),
        ("stage speak", "output speech", ""),
    ]


def test_stages_inside_a_stage_are_drawn(assistant: Pipeline) -> None:
    """Where a stage is a pipeline, its stages have dots in their names."""
    think, speak = assistant.stages
    inside = replace(
        assistant,
        stages=(replace(think, name="answer.think"), speak),
        channels=(replace(assistant.channels[0], source="answer.think.text"),),
        outputs=(replace(assistant.outputs[0], source="answer.think.text"), assistant.outputs[1]),
    )
    assert [(a.source, a.target) for a in of(inside).arrows] == [
        ("input messages", "stage answer.think"),
        ("stage answer.think", "stage speak"),
        ("stage answer.think", "output reply"),
        ("stage speak", "output speech"),
    ]
    assert all(draw(of(inside)) for draw in (svg.draw, html.draw, mermaid.draw))


def test_mermaid(assistant: Pipeline) -> None:
    assert mermaid.draw(of(assistant)).splitlines()[3:] == [
        "flowchart LR",
        '  n0(["<b>messages</b><br/>chat#60;text#62;"])',
        '  n1["<b>think</b><br/>lm.generate<br/>slots = 8<br/>weights: 269 MiB on cpu"]',
        '  n2["<b>speak</b><br/>voice.synthesize"]',
        '  n3(["<b>reply</b><br/>text"])',
        '  n4(["<b>speech</b><br/>audio#60;24kHz#62;"])',
        '  n0 -->|"messages"| n1',
        '  n1 -->|"text, sentence"| n2',
        "  n1 --> n3",
        "  n2 --> n4",
    ]


def test_svg_is_well_formed_and_holds_every_text(assistant: Pipeline) -> None:
    root = ElementTree.fromstring(svg.draw(of(assistant)))
    texts = {element.text for element in root.iter(f"{SVG}text")}
    assert {"assistant on cpu", "think", "lm.generate", "text, sentence", "audio<24kHz>"} <= texts
    assert len(list(root.iter(f"{SVG}path"))) == 1 + len(of(assistant).arrows)  # and the arrow head


def test_html_holds_the_svg(assistant: Pipeline) -> None:
    graph = of(assistant)
    page = html.draw(graph)
    assert svg.draw(graph) in page
    assert "<script" not in page
    assert "http" not in re.sub(r'xmlns="[^"]*"', "", page)  # needs nothing else


def test_text_cannot_break_out() -> None:
    graph = Graph('<b>&"x"', (Box("input a", "input", "</svg><script>", ('a|b"]',)),), ())
    assert "<script>" not in svg.draw(graph) + html.draw(graph) + mermaid.draw(graph)
    ElementTree.fromstring(svg.draw(graph))


def graphs() -> st.SearchStrategy[Graph]:
    """Graphs of up to eight boxes with arrows any way round, as feedback makes them."""
    pairs = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=14)
    return st.tuples(st.integers(1, 8), pairs).map(_graph)


def _graph(drawn: tuple[int, list[tuple[int, int]]]) -> Graph:
    count, pairs = drawn
    boxes = tuple(Box(f"stage s{n}", "stage", f"s{n}", ("a fact",) * (n % 3)) for n in range(count))
    arrows = tuple(
        Arrow(boxes[a % count].id, boxes[b % count].id, f"t{a}{b}") for a, b in pairs if a % count != b % count
    )
    return Graph("any", boxes, arrows)


@given(graphs())
def test_boxes_never_overlap_and_stay_on_the_page(graph: Graph) -> None:
    layout = lay_out(graph)
    for one, other in combinations(layout.places, 2):
        apart_x = one.x + one.width <= other.x or other.x + other.width <= one.x
        apart_y = one.y + one.height <= other.y + 1e-6 or other.y + other.height <= one.y + 1e-6
        assert apart_x or apart_y
    for place in layout.places:
        assert 0 <= place.x <= place.x + place.width <= layout.width
        assert 0 <= place.y <= place.y + place.height <= layout.height


@given(graphs())
def test_arrows_run_from_left_to_right_unless_they_close_a_cycle(graph: Graph) -> None:
    for route in lay_out(graph).routes:
        xs = [x for x, _ in route.points]
        assert route.backward or xs == sorted(xs)


@given(graphs())
def test_the_same_graph_gives_the_same_picture(graph: Graph) -> None:
    assert svg.draw(graph) == svg.draw(graph)
