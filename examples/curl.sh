#!/bin/sh
# The server's answers without any client library. usage: examples/curl.sh
set -eu
url=${OMNIC_URL:-http://127.0.0.1:8000/v1}

echo "--- models"
curl --silent --show-error --fail "$url/models"

echo && echo "--- an answer"
curl --silent --show-error --fail "$url/chat/completions" --json '{
  "model": "assistant", "max_tokens": 60,
  "messages": [{"role": "user", "content": "Why is the sky blue?"}]
}'

echo && echo "--- the same, streamed"
curl --silent --show-error --fail --no-buffer "$url/chat/completions" --json '{
  "model": "assistant", "max_tokens": 20, "stream": true,
  "messages": [{"role": "user", "content": "Why is the sky blue?"}]
}'

echo "--- speech"
curl --silent --show-error --fail "$url/audio/speech" --output speech.mp3 --json '{
  "model": "assistant", "voice": "default", "input": "Hello there."
}'
echo "wrote speech.mp3"

echo "--- what is refused, with the status and the reason"
curl --silent --show-error "$url/chat/completions" --write-out ' (%{http_code})\n' --json '{
  "model": "assistant", "max_tokens": 0, "messages": [{"role": "user", "content": "Hello"}]
}'
