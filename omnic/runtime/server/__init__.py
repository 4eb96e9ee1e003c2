"""The server of a build: an ASGI app over a worker process, in the form of OpenAI's API."""
