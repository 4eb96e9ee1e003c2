"""Prints an answer as it is made. usage: python examples/chat_streamed.py [QUESTION]"""

import os
import sys

from openai import OpenAI

client = OpenAI(base_url=os.environ.get("OMNIC_URL", "http://127.0.0.1:8000/v1"), api_key="none")
question = sys.argv[1] if len(sys.argv) > 1 else "Why is the sky blue?"

stream = client.chat.completions.create(
    model="assistant",
    messages=[{"role": "user", "content": question}],
    max_tokens=120,
    stream=True,
    stream_options={"include_usage": True},
)
for chunk in stream:
    if chunk.choices and chunk.choices[0].delta.content:
        print(chunk.choices[0].delta.content, end="", flush=True)
    if chunk.usage:
        print(f"\n({chunk.usage.prompt_tokens} tokens in, {chunk.usage.completion_tokens} out)", file=sys.stderr)
