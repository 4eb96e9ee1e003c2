"""What a pipeline takes and gives: types, domains, endpoint tables, validation, JSON schema.

One truth for the checker, the generated code and the server.
"""
