"""omnic: a compiler for pipelines of models."""

__version__ = "0.1.0"
