"""The messages of a conversation, as the API writes them, held against a pipeline's `chat<…>` input."""

from __future__ import annotations

from typing import Any

from omnic.contract.types import MODALITIES, Type
from omnic.contract.values import Violation, mistyped, not_blank, same, show

ROLES = ("system", "developer", "user", "assistant")
_TOOL_ROLES = ("tool", "function")
_PARTS = {"text": "text", "image_url": "image", "input_audio": "audio", "video_url": "video"}  # part type: modality
_EMPTY: dict[str, tuple[Any, ...]] = {
    "name": (),
    "tool_calls": ([],),
    "function_call": (),
    "refusal": (),
    "audio": (),
    "annotations": ([],),
}
_WHY = {
    "name": "participants cannot be told apart",
    "tool_calls": "tools are not supported",
    "function_call": "tools are not supported",
    "refusal": "refusals are not part of a prompt here",
    "audio": "spoken answers are not kept: send their words as `content`",
    "annotations": "annotations are not part of a prompt here",
}


def conversation(raw: Any, type_: Type, field: str = "messages") -> list[dict[str, str]]:
    """The messages in the form stages take: `role` is system, user or assistant, `content` is text.

    A `developer` is a `system` by another name; the text parts of a message are joined by newlines. Raises Violation.
    """
    if not isinstance(raw, list):
        raise mistyped(field, "a list of messages", raw)
    if not raw:
        raise Violation(f"`{field}` is empty", field)
    modalities = tuple(m for m in MODALITIES if any(str(a) == m for a in type_.args)) or ("text",)
    messages = [_message(item, f"{field}[{i}]", modalities) for i, item in enumerate(raw)]
    if not any(m["role"] == "user" for m in messages):
        raise Violation(f"`{field}` holds no message of the user", field)
    return messages


def _message(raw: Any, at: str, modalities: tuple[str, ...]) -> dict[str, str]:
    if not isinstance(raw, dict):
        raise mistyped(at, "a message", raw)
    if "role" not in raw:
        raise Violation(f"`{at}.role` is missing", f"{at}.role", "missing_required_parameter")
    role = raw["role"]
    if role in _TOOL_ROLES:
        raise Violation(f"`{at}.role` is {show(role)}, and tools are not supported", f"{at}.role", "unsupported_value")
    if role not in ROLES:
        wanted = ", ".join(map(show, ROLES))
        raise Violation(f"`{at}.role` must be one of {wanted}, not {show(role)}", f"{at}.role")
    for key, value in raw.items():
        if key in ("role", "content") or value is None:
            continue
        if key not in _EMPTY:
            raise Violation(f"`{at}.{key}` is not a field of a message", f"{at}.{key}", "unknown_parameter")
        if not any(same(value, empty) for empty in _EMPTY[key]):
            raise Violation(f"`{at}.{key}` cannot be used: {_WHY[key]}", f"{at}.{key}", "unsupported_parameter")
    if raw.get("content") is None:
        raise Violation(f"`{at}.content` is missing", f"{at}.content", "missing_required_parameter")
    content = _content(raw["content"], f"{at}.content", modalities)
    if role == "user":
        not_blank(f"{at}.content", content)
    return {"role": "system" if role == "developer" else role, "content": content}


def _content(raw: Any, at: str, modalities: tuple[str, ...]) -> str:
    if isinstance(raw, str):
        return raw
    if not isinstance(raw, list):
        raise mistyped(at, "a text or a list of parts", raw)
    if not raw:
        raise Violation(f"`{at}` is empty", at)
    return "\n".join(_part(part, f"{at}[{i}]", modalities) for i, part in enumerate(raw))


def _part(raw: Any, at: str, modalities: tuple[str, ...]) -> str:
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str):
        raise mistyped(at, 'a part with a `type`, such as {"type": "text", "text": "…"}', raw)
    modality = _PARTS.get(raw["type"])
    if modality is None:
        wanted = ", ".join(show(name) for name, m in _PARTS.items() if m in modalities)
        raise Violation(f"`{at}.type` must be one of {wanted}, not {show(raw['type'])}", f"{at}.type")
    if modality not in modalities:
        raise Violation(
            f"`{at}` is {modality}, and this pipeline takes {' and '.join(modalities)}", at, "unsupported_value"
        )
    if modality != "text":
        raise Violation(f"`{at}`: {modality} in messages cannot be served yet", at, "unsupported_value")
    extra = next((key for key in raw if key not in ("type", "text")), None)
    if extra is not None:
        raise Violation(f"`{at}.{extra}` is not a field of a text part", f"{at}.{extra}", "unknown_parameter")
    if not isinstance(raw.get("text"), str):
        raise mistyped(f"{at}.text", "a text", raw.get("text"))
    return str(raw["text"])
