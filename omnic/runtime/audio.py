"""Sound on its way out: `Encoder` and `encode` for mp3, opus, aac, flac, wav and pcm; `Resampler`, `quicken`.

Samples are float32, mono, full scale at ±1. Every format is made from the same 16-bit samples (`to_int16`), so wav,
pcm and flac hold the same ones, streamed or not. PyAV does what is compressed.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from omnic.runtime.errors import RequestError
from omnic.runtime.pipe import Pipe

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]

_OPEN = 0xFFFFFFFF  # the size of a WAV whose end is not known
_OGG_PAGE_US = "100000"  # an Ogg page holds a second by default, which a listener would wait for
_MPEG_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)


@dataclass(frozen=True, slots=True)
class Format:
    """How sound is encoded. `rates` are the only sample rates its codec takes, where it does not take all, and
    `bit_rate` is what it spends on a second of speech, in bits."""

    name: str
    content_type: str
    container: str = ""  # as FFmpeg names it; none: the samples as they are
    codec: str = ""
    rates: tuple[int, ...] = ()
    bit_rate: int | None = None


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        f.name: f
        for f in (
            Format("mp3", "audio/mpeg", "mp3", "libmp3lame", _MPEG_RATES, 64_000),
            Format("opus", "audio/ogg; codecs=opus", "ogg", "libopus", (8000, 12000, 16000, 24000, 48000), 48_000),
            Format("aac", "audio/aac", "adts", "aac", _MPEG_RATES, 64_000),
            Format("flac", "audio/flac", "flac", "flac"),
            Format("wav", "audio/wav"),
            Format("pcm", "audio/pcm"),
            Format("pcm16", "audio/pcm"),
        )
    }
)


def known(name: str, field: str | None = None) -> Format:
    """The format `name`, encoded on this machine. Raises RequestError, naming `field`, if it cannot be had."""
    if name not in FORMATS:
        raise RequestError(f"`{name}` is not an audio format; there are {', '.join(FORMATS)}", field)
    form = FORMATS[name]
    if form.codec:
        try:
            import av

            av.codec.Codec(form.codec, "w")
        except (ImportError, ValueError) as error:  # PyAV, or a build of it without this codec
            raise RequestError(f"this server cannot encode {name}: {error}", field) from None
    return form


def to_int16(samples: Samples) -> NDArray[np.int16]:
    """Full scale ±1 to ±32767, rounded to the nearest (halves to even); what is louder is clipped. Raises ValueError
    for samples that are not numbers."""
    import numpy as np

    if np.isnan(samples).any():
        raise ValueError("sound holds samples that are not numbers")
    scaled: Samples = np.rint(np.asarray(samples, np.float32) * np.float32(32767))
    return scaled.clip(-32767, 32767).astype("<i2")


def encode(samples: Samples, rate_hz: int, format: str, *, field: str | None = None) -> bytes:
    """A whole file of `samples`, its sizes exact. Raises RequestError, naming `field`, for what cannot be encoded."""
    form = known(format, field)
    if form.name == "wav":
        data = to_int16(samples).tobytes()
        return _wav_header(rate_hz, len(data)) + data
    if not form.container:
        return to_int16(samples).tobytes()
    file = io.BytesIO()
    compressed = _Compressed(form, rate_hz, file)
    compressed.write(samples)
    compressed.close()
    return file.getvalue()


class Encoder:
    """A file as a stream: `push` sound as it comes, then `finish`; each gives the bytes that are ready.

    The first bytes hold the one header. Nothing later changes it, so a WAV's sizes are open (0xFFFFFFFF). Raises
    RequestError, naming `field`, for a format that cannot be encoded.
    """

    def __init__(self, format: str, rate_hz: int, *, field: str | None = None) -> None:
        self.format = known(format, field)
        self._out = Pipe()
        self._compressed = _Compressed(self.format, rate_hz, self._out) if self.format.container else None
        if self.format.name == "wav":
            self._out.write(_wav_header(rate_hz, _OPEN))

    def push(self, samples: Samples) -> bytes:
        if self._compressed:
            self._compressed.write(samples)
        else:
            self._out.write(to_int16(samples).tobytes())
        return self._out.take()

    def finish(self) -> bytes:
        if self._compressed:
            self._compressed.close()
        return self._out.take()


class Resampler:
    """Changes a sample rate, statefully: what comes out does not depend on how the samples were cut.

    `push` and `flush` give float32 [samples]; the sum of both is the input's length times target / source, rounded.
    """

    def __init__(self, source_hz: int, target_hz: int) -> None:
        from av import AudioResampler

        self._source_hz = source_hz
        self._resampler = (
            AudioResampler(format="flt", layout="mono", rate=target_hz) if source_hz != target_hz else None
        )

    def push(self, samples: Samples) -> Samples:
        import numpy as np

        if self._resampler is None or not len(samples):
            return np.asarray(samples, np.float32)
        return self._gathered(_frame(np.asarray(samples, np.float32), "flt", self._source_hz))

    def flush(self) -> Samples:
        import numpy as np

        return np.zeros(0, np.float32) if self._resampler is None else self._gathered(None)

    def _gathered(self, frame: Any) -> Samples:
        import numpy as np

        assert self._resampler is not None
        frames = [f.to_ndarray()[0] for f in self._resampler.resample(frame)]
        return np.concatenate(frames) if frames else np.zeros(0, np.float32)


def quicken(samples: Samples, rate_hz: int, factor: float) -> Samples:
    """The same speech at the same pitch, `factor` (0.5 to 100) times as fast."""
    import numpy as np
    from av.filter import Graph

    if not len(samples):
        return samples
    graph = Graph()
    source = graph.add_abuffer(sample_rate=rate_hz, format="flt", layout="mono")
    tempo, sink = graph.add("atempo", str(factor)), graph.add("abuffersink")
    source.link_to(tempo)
    tempo.link_to(sink)
    graph.configure()
    graph.push(_frame(np.asarray(samples, np.float32), "flt", rate_hz))
    graph.push(None)
    parts = []
    while True:
        try:
            parts.append(graph.pull().to_ndarray()[0])
        except (EOFError, BlockingIOError):
            return np.concatenate(parts)


class _Compressed:
    """A file that FFmpeg writes into `file`; where that cannot seek, as a stream."""

    def __init__(self, form: Format, rate_hz: int, file: io.IOBase) -> None:
        import av

        self._rate_hz = _nearest(rate_hz, form.rates)
        self._resampler = Resampler(rate_hz, self._rate_hz)
        options = {"page_duration": _OGG_PAGE_US} if form.container == "ogg" and not file.seekable() else {}
        self._file = av.open(file, "w", format=form.container, container_options=options)
        stream: Any = self._file.add_stream(form.codec, rate=self._rate_hz, layout="mono")
        if form.bit_rate:
            stream.bit_rate = form.bit_rate
        self._stream = stream

    def write(self, samples: Samples) -> None:
        self._encode(self._resampler.push(samples))

    def close(self) -> None:
        self._encode(self._resampler.flush())
        self._file.start_encoding()  # writes the header of a file without a sample
        self._file.mux(self._stream.encode(None))
        self._file.close()

    def _encode(self, samples: Samples) -> None:
        if len(samples):
            self._file.mux(self._stream.encode(_frame(to_int16(samples), "s16", self._rate_hz)))


def _wav_header(rate_hz: int, data_bytes: int) -> bytes:
    """44 bytes: 16-bit mono PCM at `rate_hz`."""
    riff_bytes = _OPEN if data_bytes == _OPEN else 36 + data_bytes
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate_hz, rate_hz * 2, 2, 16)
    return struct.pack("<4sI4s", b"RIFF", riff_bytes, b"WAVE") + form + struct.pack("<4sI", b"data", data_bytes)


def _nearest(rate_hz: int, rates: tuple[int, ...]) -> int:
    """`rate_hz` if the codec takes it, else the next higher rate it does, else its highest."""
    return rate_hz if not rates or rate_hz in rates else min((r for r in rates if r > rate_hz), default=max(rates))


def _frame(samples: NDArray[Any], format: str, rate_hz: int) -> Any:
    from av import AudioFrame

    frame = AudioFrame.from_ndarray(samples.reshape(1, -1), format=format, layout="mono")
    frame.sample_rate = rate_hz
    return frame
