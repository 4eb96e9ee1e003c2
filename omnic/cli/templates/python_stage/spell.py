"""What stands between the two models. Checking reads the signature only; the worker that serves imports the file."""

SPELLED = {"e.g.": "for example", "i.e.": "that is", "etc.": "and so on", "%": " per cent", "&": " and "}


def spell_out(text: str) -> str:
    """The text with its abbreviations and signs as words."""
    for short, long in SPELLED.items():
        text = text.replace(short, long)
    return text
