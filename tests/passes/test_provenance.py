"""Who decided: a typed flag wins over the deploy block, that over the stage, that over the catalog and the planner."""

from __future__ import annotations

import json

import pytest

from omnic.ir.pipeline import ORIGINS, Setting, get
from omnic.passes.base import decide
from omnic.passes.report import plan_json, plan_text
from tests.passes.planning import ANSWER, plan, row

STAGE = ANSWER.replace("max_tokens = 128", "max_tokens = 128, slots = 3, precision = fp32, temperature = 0.5")
DEPLOY = STAGE + "deploy here { stage think { slots = 5 } }\n"


@pytest.mark.parametrize(
    ("text", "deploy", "sets", "slots", "origin"),
    [
        (ANSWER, None, (), 8, "planner"),
        (STAGE, None, (), 3, "stage block"),
        (DEPLOY, None, (), 3, "stage block"),  # a deploy block that is not chosen says nothing
        (DEPLOY, "here", (), 5, "deploy block"),
        (DEPLOY, "here", ("think.slots=7",), 7, "flag"),
        (STAGE, None, ("think.slots=7",), 7, "flag"),
    ],
)
def test_the_strongest_wins_and_the_plan_says_who_it_was(text, deploy, sets, slots, origin):
    planned = plan(text, deploy=deploy, sets=sets)
    setting = get(planned.pipeline.stage("think").how, "slots")
    assert (setting.value, setting.origin) == (slots, origin)
    shown = row(plan_text(planned.pipeline, planned.context), "slots")
    assert shown[1] == str(slots)
    assert shown[2].startswith(origin)
    assert origin != "flag" or shown[2] == "flag (--set think.slots=7)"
    record = json.loads(plan_json(planned.pipeline, planned.context))["stages"]["think"]["how"]["slots"]
    assert (record["value"], record["origin"]) == (slots, origin)


def test_a_flag_wins_over_a_bool_of_the_source():
    text = ANSWER.replace("max_tokens = 128", "max_tokens = 128, deterministic = false, engine = eager")
    assert plan(text, sets=("think.deterministic=false",)).ids == []


def test_a_default_of_the_catalog_is_never_taken_for_something_typed():
    planned = plan(ANSWER)
    keys = dict(planned.pipeline.stage("think").keys)
    assert keys["temperature"].origin == "catalog default"
    assert keys["max_tokens"].origin == "stage block"
    text = plan_text(planned.pipeline, planned.context)
    assert row(text, "temperature")[2:] == ["catalog default", "catalog, for small models"]
    assert row(text, "max_tokens")[2] == "stage block (answer.omni:5)"


def test_a_pinned_sampling_key_is_no_longer_a_request_field():
    keys = dict(plan(STAGE).pipeline.stage("think").keys)
    assert (keys["temperature"].value, keys["temperature"].origin) == (0.5, "stage block")


@pytest.mark.parametrize("held", range(len(ORIGINS)))
@pytest.mark.parametrize("coming", range(len(ORIGINS)))
def test_what_is_decided_yields_only_to_something_stronger(held, coming):
    before = (("slots", Setting(1, ORIGINS[held])),)
    after = decide(before, "slots", 2, "because", ORIGINS[coming])
    assert get(after, "slots").value == (2 if coming < held else 1)
