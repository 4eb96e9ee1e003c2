"""Draws a picture and shows how far it is. usage: python examples/draw.py [TEXT] [FILE.png]"""

import base64
import os
import sys
from pathlib import Path

from openai import OpenAI

client = OpenAI(base_url=os.environ.get("OMNIC_URL", "http://127.0.0.1:8000/v1"), api_key="none")
text = sys.argv[1] if len(sys.argv) > 1 else "a red heart"
file = sys.argv[2] if len(sys.argv) > 2 else "picture.png"

for event in client.images.generate(prompt=text, stream=True, partial_images=2):
    if event.type == "image_generation.completed":
        Path(file).write_bytes(base64.b64decode(event.b64_json))
        print(f"wrote {file}: {event.size}", file=sys.stderr)
    elif event.type == "image_generation.partial_image":
        print("a first look came", file=sys.stderr)
    else:  # omnic's own: how far it is
        print(f"{event.stage}: {event.step}/{event.steps}", file=sys.stderr)
