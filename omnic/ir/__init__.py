"""The pipeline between language and build: a value that passes map, with a text form and a verifier."""
