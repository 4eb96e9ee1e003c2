"""Streams speech for a text into a file. usage: python examples/read_aloud.py [TEXT] [FILE.wav]"""

import os
import sys
import time
from pathlib import Path

from openai import OpenAI

client = OpenAI(base_url=os.environ.get("OMNIC_URL", "http://127.0.0.1:8000/v1"), api_key="none")
text = sys.argv[1] if len(sys.argv) > 1 else "The first sentence is heard while the second is made. This is the second."
file = sys.argv[2] if len(sys.argv) > 2 else "speech.wav"

began = time.monotonic()
with (
    Path(file).open("wb") as out,
    client.audio.speech.with_streaming_response.create(
        model="assistant", voice="default", input=text, response_format="wav", stream_format="audio"
    ) as response,
):
    for number, chunk in enumerate(response.iter_bytes()):
        if number == 0:
            print(f"first bytes after {time.monotonic() - began:.2f} s", file=sys.stderr)
        out.write(chunk)
print(f"wrote {file} after {time.monotonic() - began:.2f} s", file=sys.stderr)
