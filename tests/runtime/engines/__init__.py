"""Engines made ahead: each piece by itself, and all tiny families through the exporter and the real builder."""
