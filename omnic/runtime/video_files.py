"""Videos as files: `Film` writes an MP4 as its frames and its sound come.

In work a video is chunks of frames, uint8 [frames, height, width, 3]; its sound is float32 [samples], mono.
"""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnic.runtime.audio import Resampler
from omnic.runtime.errors import RequestError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Frames = NDArray[np.uint8]
    Samples = NDArray[np.float32]

CONTENT_TYPE, SUFFIX = "video/mp4", ".mp4"
FPS = 24.0  # of a video whose type does not say
_SOUND_HZ = 48000
_BT709 = 1  # colour space, primaries and transfer, as the standard numbers them


def known() -> None:
    """Raises RequestError if this machine cannot encode videos."""
    try:
        import av

        for codec in ("libx264", "aac"):
            av.codec.Codec(codec, "w")
    except (ImportError, ValueError) as error:  # PyAV, or a build of it without a codec
        raise RequestError(f"this machine cannot encode videos: {error}", status=501, code="unsupported") from None


def rehearse() -> None:
    """Makes a video of one frame, so that libraries are loaded before the first request comes. Raises as `known`."""
    import numpy as np

    known()
    film(np.zeros((1, 16, 16, 3), np.uint8), FPS, np.zeros(2400, np.float32), 24000)


class Film:
    """An MP4 (H.264, AAC) in `file`, `fps` frames a second, with sound of `sound_hz` if that is given.

    `streamed`, the file is in fragments of about a second, so that it can be watched while it is written; otherwise
    `file` must be one that can seek; where it is a path, players can begin before they have it whole. The first
    frames settle width and height. `close` ends it.
    """

    def __init__(
        self, file: io.IOBase | Path, fps: float, sound_hz: int | None = None, *, streamed: bool = False
    ) -> None:
        import av

        self.frames = 0
        self.size: tuple[int, int] | None = None  # width, height
        self._fps = Fraction(fps).limit_denominator(1001)
        self._sound_hz = sound_hz
        self._resampler = Resampler(sound_hz, _SOUND_HZ) if sound_hz else None
        self._early: list[Samples] = []  # sound that came before the first frame
        self._heard = 0  # samples
        flags = {"movflags": "faststart"} if isinstance(file, Path) else {}  # written twice over, which takes a name
        if streamed:
            flags = {"movflags": "frag_keyframe+empty_moov+default_base_moof"}
        self._streamed = streamed
        self._file: Any = av.open(str(file) if isinstance(file, Path) else file, "w", format="mp4", options=flags)
        self._picture: Any = None
        self._sound: Any = None

    def show(self, frames: Frames) -> None:
        """The next frames, uint8 [frames, height, width, 3]."""
        from av import VideoFrame

        if self._picture is None:
            self._begin(frames.shape[2], frames.shape[1])
        for pixels in frames:
            frame: Any = VideoFrame.from_ndarray(pixels, format="rgb24")
            frame = frame.reformat(format=self._picture.pix_fmt, dst_colorspace="ITU709", dst_color_range="MPEG")
            frame.pts, frame.time_base = self.frames, 1 / self._fps
            self.frames += 1
            self._file.mux(self._picture.encode(frame))

    def play(self, samples: Samples) -> None:
        """The next sound, float32 [samples]."""
        assert self._resampler is not None, "made without sound"
        if self._picture is None:
            self._early.append(samples)
        else:
            self._encode(self._resampler.push(samples))

    def close(self) -> None:
        """Ends the file; it is whole then. Raises ValueError if no frame came."""
        if self._picture is None:
            self._file.close()
            raise ValueError("a video without a frame")
        if self._resampler is not None:
            self._encode(self._resampler.flush())
            self._file.mux(self._sound.encode(None))
        self._file.mux(self._picture.encode(None))
        self._file.close()

    def drop(self) -> None:
        """Lets go of a file that is not to be finished."""
        try:
            self._file.close()
        except Exception:
            return  # half a file may not close

    def _begin(self, width: int, height: int) -> None:
        self.size = width, height
        picture = self._picture = self._file.add_stream("libx264", rate=self._fps)
        picture.width, picture.height = width, height
        picture.pix_fmt = "yuv444p" if width % 2 or height % 2 else "yuv420p"
        picture.options = {"crf": "18", "preset": "veryfast"}
        if self._streamed:
            picture.options |= {"tune": "zerolatency"}
            picture.codec_context.gop_size = max(1, round(self._fps))
        context = picture.codec_context
        context.time_base = 1 / self._fps
        context.colorspace = context.color_primaries = context.color_trc = _BT709
        if self._resampler is not None:
            self._sound = self._file.add_stream("aac", rate=_SOUND_HZ, layout="mono")
        self._file.start_encoding()
        for samples in self._early:
            self.play(samples)
        self._early.clear()

    def _encode(self, samples: Samples) -> None:
        from av import AudioFrame

        if not len(samples):
            return
        frame = AudioFrame.from_ndarray(samples.reshape(1, -1), format="fltp", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = _SOUND_HZ, self._heard, Fraction(1, _SOUND_HZ)
        self._heard += len(samples)
        self._file.mux(self._sound.encode(frame))


def film(frames: Frames, fps: float, samples: Samples | None = None, sound_hz: int | None = None) -> bytes:
    """A whole MP4 of `frames` [frames, height, width, 3], with sound if it is given."""
    file = io.BytesIO()
    made = Film(file, fps, sound_hz if samples is not None else None)
    if samples is not None:
        made.play(samples)
    made.show(frames)
    made.close()
    return file.getvalue()
