"""How far the length of speech follows the speed that was asked for, of hibari itself and of omnic's stage over it.

For each speed, the median over sentences of (length at speed 1 / length at that speed) / speed: 1 follows exactly.

    python -m benchmarks.pace [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from importlib import metadata
from pathlib import Path

import numpy as np

from omnic.catalog.resolve import ModelSource, resolve
from omnic.manifest import Model
from omnic.runtime.families import hibari
from omnic.runtime.weights import locate

SPEEDS = (0.5, 0.8, 0.9, 1.0, 1.1, 1.3, 1.5, 2.0, 2.5, 4.0)
SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "Light of short wavelengths is scattered more than light of long ones.",
    "A lighthouse keeper lights the lamp every evening before the ships come home.",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = resolve(ModelSource("pypi", "hibari-tts"), Path())
    model = Model("voice", "pypi", "hibari-tts", found.family, found.format, found.config, found.files)
    voice = hibari.load(locate(model, Path()), threads=1)

    def ours(text: str, speed: float) -> int:
        return len(voice.decode(text, np.random.default_rng(0), speed=speed, voice=hibari.BUNDLED))

    def theirs(text: str, speed: float) -> int:
        own = voice._hibari
        return sum(
            len(own.from_ids(own.ids(part), speed, np.random.default_rng(0)))
            for phonemes in own.phonemize(text)
            for part in hibari.split(phonemes)
        )

    rows = []
    print(f"{'speed':>6} {'hibari':>8} {'omnic':>8}   (length at speed 1 / length at this speed) / speed")
    for speed in SPEEDS:
        follows = {
            name: statistics.median(length(text, 1.0) / length(text, speed) / speed for text in SENTENCES)
            for name, length in (("hibari", theirs), ("omnic", ours))
        }
        print(f"{speed:6.1f} {follows['hibari']:8.3f} {follows['omnic']:8.3f}")
        rows.append({"speed": speed, **follows})
    if options.json:
        versions = {name: metadata.version(name) for name in ("omnic", "hibari-tts", "onnxruntime")}
        record = {"versions": versions | {"python": platform.python_version()}, "rows": rows}
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
