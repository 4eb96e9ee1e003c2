"""The OpenAPI that a manifest implies."""

from __future__ import annotations

import json
from typing import Any

from omnic.contract.domains import Range
from omnic.contract.endpoints import ParamSpec, bind
from omnic.contract.openapi import openapi, openapi_json
from omnic.contract.schema import request_schema
from omnic.contract.types import parse_type
from omnic.expr import Size, parse
from tests.assistant import assistant, chat, speech, with_param


def properties(schema: dict[str, Any], path: str) -> Any:
    body = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return body["properties"]


def test_ranges_and_defaults_of_params_are_in_the_schema() -> None:
    found = properties(openapi(assistant()), "/v1/chat/completions")
    assert found["max_tokens"] == {"type": "integer", "minimum": 1, "maximum": 1024, "default": 256}
    assert (found["temperature"]["minimum"], found["temperature"]["maximum"]) == (0.0, 2.0)


def test_a_range_that_changes_in_the_source_changes_the_schema() -> None:
    narrow = assistant(with_param("max_tokens", ParamSpec(parse_type("int"), Range(1, 64), 32)))
    found = properties(openapi(narrow), "/v1/chat/completions")
    assert (found["max_tokens"]["maximum"], found["max_completion_tokens"]["maximum"]) == (64, 64)


def test_a_range_of_sizes_is_told_beside_what_the_field_is() -> None:
    sizes = ParamSpec(parse_type("size"), Range(Size(256, 256), Size(1024, 1024)), Size(512, 512), "how large")
    endpoint = bind("audio.speech", with_param("size", sizes), {}, "speak.text")
    found = request_schema(endpoint)["properties"]["size"]
    assert (found["description"], found["default"]) == ("how large; in 256x256..1024x1024", "512x512")


def test_nested_fields_are_nested() -> None:
    audio = request_schema(chat())["properties"]["audio"]["properties"]
    assert audio["format"]["enum"] == ["wav", "mp3", "opus", "aac", "flac", "pcm16"]
    assert audio["format"]["default"] == "wav"


def test_lengths_lists_and_required_fields() -> None:
    body = request_schema(speech())
    assert body["properties"]["input"]["maxLength"] == 4096
    assert (body["required"], body["additionalProperties"]) == (["input"], False)
    assert request_schema(chat())["properties"]["stop"]["anyOf"][1]["maxItems"] == 4


def test_what_is_refused_whatever_its_value_is_not_offered() -> None:
    offered = request_schema(chat())["properties"]
    assert "web_search_options" not in offered
    assert offered["tools"]["enum"] == [[]]


def test_rules_are_in_the_description() -> None:
    assert (
        request_schema(chat(), (parse("max_tokens * speed <= 512"),))["description"]
        == "Rules: max_tokens * speed <= 512"
    )


def test_only_what_is_served_is_described() -> None:
    from dataclasses import replace

    mute = replace(assistant(), endpoints=(chat(),))
    assert "/v1/audio/speech" not in openapi(mute)["paths"]
    assert "/v1/audio/voices" not in openapi(mute)["paths"]


def test_the_file_is_the_same_each_time() -> None:
    assert openapi_json(assistant()) == openapi_json(assistant())
    assert json.loads(openapi_json(assistant())) == openapi(assistant())
