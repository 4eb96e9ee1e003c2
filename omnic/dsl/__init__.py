"""The language: a `.omni` file as text, as a tree, checked (`check/`), and lowered to the IR (`lower`)."""
