"""Python stages of the cases."""


def shout(text):
    """Upper case. text: str -> str."""
    return text.upper()
