"""The server of a build: an ASGI app over a worker process, in the form of OpenAI's API."""

from omnic import installed

installed.require("serve")  # says which library is missing or too old, before one of them says something else
