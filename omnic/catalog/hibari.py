"""hibari: English speech at 24 kHz from text, ONNX, in the package `hibari-tts` (one voice bundled)."""

from __future__ import annotations

import re

from omnic.catalog.packages import Package
from omnic.catalog.part import CatalogError, Cost, Key, Model, Part, Port, WeightGroup
from omnic.contract.domains import Range
from omnic.contract.types import Type
from omnic.expr import Quantity, parse

RATE = Quantity(24, "kHz")
_PROCESS_BYTES = 144 << 20  # onnxruntime, its session, the pronunciation lexicon and tagger; measured
# The runtime's arena keeps what the longest phrase took: 6.3 MiB a second of sound. 200 phonemes, which few sentences
# reach, last 11.2 s at speed 1. Faster than that costs no more: speech is quickened afterwards.
_PHRASE_BYTES = int(6.3 * 11.2 * (1 << 20))
_FOREIGN = re.compile(r"(_gb|_gb_\w+)\.(onnx|json(\.gz)?)$|lexicon_gb")  # British English: no such voice is bundled


def from_package(package: Package) -> Model:
    """The model in an installed `hibari-tts`. Raises CatalogError for a version whose interface is not known."""
    if not package.version.startswith("0.2."):
        raise CatalogError(
            f"hibari-tts {package.version} is not supported; omnic knows 0.2",
            help='`pip install "hibari-tts>=0.2.1,<0.3"`',
            id="not-supported-yet",
        )
    files = tuple(f for f in package.files if f.path.startswith("hibari/assets/") and not _FOREIGN.search(f.path))
    sizes = {f.path.removeprefix("hibari/assets/"): f.bytes for f in files}
    missing = [f.path for f in files if not (package.root / f.path).exists()]
    missing += [f"hibari/assets/{name}" for name in ("hibari.onnx", "oov.onnx") if name not in sizes]
    if missing:
        raise CatalogError(f"package `hibari-tts` lacks {missing[0]}", help="install it again", id="model-not-found")
    synthesize = Part(
        "synthesize",
        "decode",
        inputs=(Port("text", Type("text"), streams=("clause", "sentence", "whole")),),
        outputs=(
            Port("audio", Type("audio", (RATE,)), streams=("clause", "sentence", "whole"), origin="hibari-tts 0.2"),
        ),
        keys=(
            Key("voice", Type("enum", ("heart",)), "heart", doc="who speaks", field="voice", origin="hibari-tts 0.2"),
            Key("speed", Type("float"), 1.0, Range(0.25, 4.0), "how fast; 1 is the voice's own pace", field="speed"),
        ),
        cost=Cost(
            weights=(WeightGroup("voice", sizes["hibari.onnx"]), WeightGroup("spelling", sizes["oov.onnx"])),
            activation_bytes=parse(f"batch * {_PHRASE_BYTES} / min(speed_low, 1)"),
            process_bytes=_PROCESS_BYTES,
        ),
        doc="reads text aloud",
        devices=("cpu",),
    )
    return Model(
        "hibari",
        "onnx",
        {"synthesize": synthesize},
        {"sample_rate": int(RATE.base), "voice": "heart"},
        files,
        str(package.root),
        package.version,
        package.license,
        origin=f"hibari-tts {package.version}",
    )
