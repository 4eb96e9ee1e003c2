"""The python stage of relay.omni."""


def close(text: str, sign_off: str | None) -> str:
    """The text, signed if the request says how."""
    return f"{text}\n\n{sign_off}" if sign_off else text
