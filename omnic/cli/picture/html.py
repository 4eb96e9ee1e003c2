"""A graph as one HTML page that needs nothing else."""

from __future__ import annotations

from html import escape

from omnic.cli.picture import svg
from omnic.cli.picture.graph import Graph


def draw(graph: Graph) -> str:
    """The picture of `svg`, in a page with its title."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{escape(graph.title)}</title>
<style>body {{ margin: 2rem; font: 15px system-ui, sans-serif }} svg {{ max-width: 100%; height: auto }}</style>
</head>
<body>
{svg.draw(graph)}</body>
</html>
"""
