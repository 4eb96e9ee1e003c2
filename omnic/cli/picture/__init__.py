"""Pictures of a pipeline: `graph` says what is drawn, `layout` where, `svg`, `html` and `mermaid` how."""
