"""Where the outputs of a request go: which files they can be, and writing them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnic.cli import files
from omnic.cli.refusal import Refusal
from omnic.cli.request import TERMINAL

if TYPE_CHECKING:
    from omnic.contract.types import Type
    from omnic.manifest import Manifest


def check(manifest: Manifest, wanted: Mapping[str, str]) -> None:
    """Raises Refusal for an output file that cannot be written, before any work is done."""
    by_file: dict[str, list[str]] = {}
    for name, file in wanted.items():
        type_ = manifest.outputs[name]
        by_file.setdefault(file, []).append(name)
        if file == TERMINAL:
            if type_.kind != "text":
                raise Refusal(f"--out {name}=-: {type_.kind} is not for a terminal; name a file")
        elif not Path(file).parent.is_dir():
            raise Refusal(f"--out {name}={file}: there is no directory {Path(file).parent}")
    for file, names in by_file.items():
        if file == TERMINAL:
            if len(names) > 1:
                raise Refusal(f"--out: {' and '.join(names)} cannot both be printed")
        elif len(names) > 1 and sorted(manifest.outputs[n].kind for n in names) != ["audio", "video"]:
            raise Refusal(f"--out: {' and '.join(names)} cannot be one file, {file}; a video and its sound can")
        else:
            _check_format(manifest, file, names)


def write(manifest: Manifest, wanted: Mapping[str, str], made: Mapping[str, Any]) -> None:
    """Writes what was made; a video and sound that go to one file become one, and several pictures a file each:
    `story.png` stands for `story-1.png`, `story-2.png` and so on."""
    sounds = {file: name for name, file in wanted.items() if manifest.outputs[name].kind == "audio"}
    films = {file for name, file in wanted.items() if manifest.outputs[name].kind == "video"}
    for name, file in wanted.items():
        type_, value = manifest.outputs[name], made[name]
        if file == TERMINAL or (type_.kind == "audio" and file in films):
            continue
        if value is None:
            print(f"{name} is empty: {file} was not written", file=sys.stderr)
            continue
        sound = sounds.get(file) if type_.kind == "video" else None
        for path, one in _numbered(Path(file), value):
            if sound is None:
                data, what = _encoded(type_, file, one)
            else:
                data, what = _film(type_, one, manifest.outputs[sound], made[sound])
            files.write(path, data)
            print(f"wrote {path}{what and f': {what}'}", file=sys.stderr)


def _numbered(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    """The files of an output: one, or one a value where there are several."""
    if not isinstance(value, list):
        yield path, value
        return
    for number, one in enumerate(value, 1):
        yield path.with_stem(f"{path.stem}-{number}"), one


def _check_format(manifest: Manifest, file: str, names: list[str]) -> None:
    """Raises Refusal if what is in the file cannot be encoded as its suffix says."""
    from omnic.runtime import audio, picture_files, video_files
    from omnic.runtime.errors import RequestError

    suffix = Path(file).suffix
    kinds = {manifest.outputs[name].kind for name in names}
    try:
        if "video" in kinds:
            if suffix.lower() != video_files.SUFFIX:
                raise RequestError(f"`{suffix}` is no suffix of a video; there is {video_files.SUFFIX}")
            video_files.known()
        elif "audio" in kinds:
            audio.known(suffix.removeprefix("."))
        elif "image" in kinds:
            picture_files.format_of(suffix)
    except RequestError as error:
        raise Refusal(f"--out {names[0]}={file}: {error}") from None


def _encoded(type_: Type, file: str, value: Any) -> tuple[bytes, str]:
    """The bytes of a file, and what is in it."""
    suffix = Path(file).suffix
    match type_.kind:
        case "audio":
            from omnic.runtime.audio import encode

            rate = int(type_.rate_hz or 0)
            return encode(value, rate, suffix.removeprefix(".")), f"{len(value) / rate:.1f} s of sound"
        case "image":
            from omnic.runtime import picture_files

            height, width = value.shape[:2]
            return picture_files.encode(value, picture_files.format_of(suffix).name), f"{width}x{height}"
        case "video":
            return _film(type_, value, None, None)
    return f"{value}\n".encode(), ""


def _film(type_: Type, frames: Any, sound: Type | None, samples: Any) -> tuple[bytes, str]:
    from omnic.runtime.video_files import FPS, film

    fps = float(type_.rate_hz or FPS)
    height, width = frames.shape[1:3]
    data = film(frames, fps, samples, int(sound.rate_hz or 0) if sound else None)
    return data, f"{width}x{height}, {len(frames) / fps:.1f} s at {fps:g} frames a second"
