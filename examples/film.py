"""Makes a video as a job and fetches it. usage: python examples/film.py [TEXT] [FILE.mp4]"""

import os
import sys
import time
import warnings

from openai import OpenAI

warnings.simplefilter("ignore", DeprecationWarning)  # OpenAI's own service ends; the form of its API does not
client = OpenAI(base_url=os.environ.get("OMNIC_URL", "http://127.0.0.1:8000/v1"), api_key="none")
text = sys.argv[1] if len(sys.argv) > 1 else "a red kite over the sea"
file = sys.argv[2] if len(sys.argv) > 2 else "video.mp4"

job = client.videos.create(prompt=text)
while job.status in ("queued", "in_progress"):
    print(f"{job.status}: {job.progress} %", file=sys.stderr)
    time.sleep(0.5)
    job = client.videos.retrieve(job.id)
if job.status == "failed":
    sys.exit(f"it failed: {job.error.message}")
client.videos.download_content(job.id).write_to_file(file)
print(f"wrote {file}: {job.size}, {job.seconds} s", file=sys.stderr)
client.videos.delete(job.id)
