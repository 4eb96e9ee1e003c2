"""Asks for an answer in text and speech. usage: python examples/spoken_answer.py [QUESTION] [FILE.wav]"""

import base64
import os
import sys
from pathlib import Path

from openai import OpenAI

client = OpenAI(base_url=os.environ.get("OMNIC_URL", "http://127.0.0.1:8000/v1"), api_key="none")
question = sys.argv[1] if len(sys.argv) > 1 else "Why is the sky blue?"
file = Path(sys.argv[2] if len(sys.argv) > 2 else "answer.wav")

answer = client.chat.completions.create(
    model="assistant",
    messages=[{"role": "user", "content": question}],
    modalities=["text", "audio"],
    audio={"voice": "default", "format": "wav"},
    max_tokens=120,
)
message = answer.choices[0].message
print(message.content or (message.audio and message.audio.transcript))
if message.audio:
    file.write_bytes(base64.b64decode(message.audio.data))
    print(f"wrote {file}", file=sys.stderr)
