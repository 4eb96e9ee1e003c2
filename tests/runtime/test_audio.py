"""Encoders: the bytes that were asked for, whole or as a stream, or a refusal that names the field."""

from __future__ import annotations

import io
import struct
import wave

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from omnic.contract.openai import CHAT_FORMATS, SPEECH_FORMATS
from omnic.contract.openapi import openapi
from omnic.runtime import audio
from omnic.runtime.audio import FORMATS, Encoder, Resampler, encode, quicken, to_int16
from omnic.runtime.errors import RequestError
from tests.assistant import assistant

RATE = 24_000
COMPRESSED = ["mp3", "opus", "aac", "flac"]
MAGIC = {
    "mp3": (b"ID3", b"\xff\xfb", b"\xff\xf3"),
    "opus": (b"OggS",),
    "aac": (b"\xff\xf1", b"\xff\xf9"),
    "flac": (b"fLaC",),
    "wav": (b"RIFF",),
}


def tone(seconds: float = 1.0, rate_hz: int = RATE, level: float = 0.5) -> NDArray[np.float32]:
    return (level * np.sin(2 * np.pi * 440 * np.arange(round(seconds * rate_hz)) / rate_hz)).astype(np.float32)


def streamed(samples: NDArray[np.float32], format: str, chunk: int = 3000, rate_hz: int = RATE) -> list[bytes]:
    encoder = Encoder(format, rate_hz)
    return [encoder.push(samples[at : at + chunk]) for at in range(0, len(samples), chunk)] + [encoder.finish()]


def decoded(data: bytes) -> tuple[NDArray[np.float64], int]:
    """Samples at full scale ±1, and their rate."""
    with av.open(io.BytesIO(data)) as file:
        frames = [frame.to_ndarray().reshape(-1) for frame in file.decode(audio=0)]
        rate_hz = file.streams.audio[0].rate
    joined = np.concatenate(frames)
    return joined / (32767 if joined.dtype == np.int16 else 1), rate_hz


@pytest.mark.parametrize("format", [f for f in FORMATS if f in MAGIC])
def test_bytes_are_of_the_format_asked_for(format: str) -> None:
    assert encode(tone(), RATE, format).startswith(MAGIC[format])
    assert streamed(tone(), format)[0].startswith(MAGIC[format])


@pytest.mark.parametrize("format", COMPRESSED)
@pytest.mark.parametrize("rate_hz", [16_000, 24_000, 44_100, 96_000])
def test_what_is_compressed_decodes_to_what_went_in(format: str, rate_hz: int) -> None:
    for data in (
        encode(tone(1.0, rate_hz), rate_hz, format),
        b"".join(streamed(tone(1.0, rate_hz), format, 3000, rate_hz)),
    ):
        samples, decoded_hz = decoded(data)
        assert len(samples) / decoded_hz == pytest.approx(1.0, abs=0.12)  # codecs pad their frames
        middle = samples[len(samples) // 4 : len(samples) // 2]
        assert np.sqrt(np.mean(middle**2)) == pytest.approx(0.5 / np.sqrt(2), rel=0.07)  # LAME turns it down a little


@pytest.mark.parametrize("rate_hz", [16_000, 24_000, 96_000])
def test_a_whole_mp3_is_as_long_as_its_sound(rate_hz: int) -> None:
    samples, decoded_hz = decoded(encode(tone(1.0, rate_hz), rate_hz, "mp3"))
    assert len(samples) == decoded_hz


def test_content_types() -> None:
    assert {name: form.content_type for name, form in FORMATS.items()} == {
        "mp3": "audio/mpeg",
        "opus": "audio/ogg; codecs=opus",
        "aac": "audio/aac",
        "flac": "audio/flac",
        "wav": "audio/wav",
        "pcm": "audio/pcm",
        "pcm16": "audio/pcm",
    }


def test_a_whole_wav_has_exact_sizes() -> None:
    data = encode(tone(), RATE, "wav")
    assert struct.unpack_from("<I", data, 4)[0] == len(data) - 8
    assert struct.unpack_from("<I", data, 40)[0] == len(data) - 44
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth(), file.getnframes()) == (RATE, 1, 2, RATE)


def test_a_streamed_wav_is_one_header_with_open_sizes_and_then_samples() -> None:
    first, *rest = streamed(tone(), "wav")
    assert struct.unpack_from("<I", first, 4) == struct.unpack_from("<I", first, 40) == (0xFFFFFFFF,)
    data = b"".join((first, *rest))
    assert data.count(b"RIFF") == 1
    assert data[44:] == encode(tone(), RATE, "wav")[44:] == encode(tone(), RATE, "pcm")


@pytest.mark.parametrize("format", FORMATS)
def test_the_first_bytes_come_before_the_sound_has_ended(format: str) -> None:
    assert len(streamed(tone(), format)[0]) > 0


@settings(deadline=None, max_examples=20)
@given(cuts=st.lists(st.integers(0, 5000), max_size=6), format=st.sampled_from(["wav", "pcm", "flac"]))
def test_lossless_streams_hold_the_samples_of_the_whole(cuts: list[int], format: str) -> None:
    samples = np.random.default_rng(0).uniform(-1.2, 1.2, 5000).astype(np.float32)
    encoder = Encoder(format, RATE)
    parts = [encoder.push(part) for part in np.split(samples, sorted(cuts))] + [encoder.finish()]
    if format == "flac":
        assert np.array_equal(decoded(b"".join(parts))[0], decoded(encode(samples, RATE, format))[0])
        assert np.array_equal(np.rint(decoded(b"".join(parts))[0] * 32767), to_int16(samples))
    else:
        assert b"".join(parts).endswith(to_int16(samples).tobytes())


@pytest.mark.parametrize("format", FORMATS)
def test_silence_without_a_sample_is_a_file_all_the_same(format: str) -> None:
    nothing = np.zeros(0, np.float32)
    encode(nothing, RATE, format)
    Encoder(format, RATE).finish()


# --- samples ----------------------------------------------------------------------------------------------------------


def test_samples_are_scaled_rounded_and_clipped_in_one_way() -> None:
    samples = np.array([0, 1, -1, 1.5, -7, 0.5, 1.5 / 32767, 2.5 / 32767, np.inf], np.float32)
    assert to_int16(samples).tolist() == [0, 32767, -32767, 32767, -32767, 16384, 2, 2, 32767]


def test_samples_that_are_not_numbers_are_a_fault() -> None:
    with pytest.raises(ValueError, match="not numbers"):
        to_int16(np.array([0, np.nan], np.float32))


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["midi", "MP3", "", "wav "])
def test_an_unknown_format_is_refused_by_name(format: str) -> None:
    for refused in both(format, "audio.format"):
        assert (refused.field, refused.status) == ("audio.format", 400)
        assert "mp3" in refused.message


def test_a_missing_codec_is_a_refusal_and_not_another_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio, "FORMATS", {"mp3": audio.Format("mp3", "audio/mpeg", "mp3", "libno_such_codec")})
    for refused in both("mp3", "response_format"):
        assert refused.message.startswith("this server cannot encode mp3")
        assert (refused.field, refused.status) == ("response_format", 400)


def both(format: str, field: str) -> list[RequestError]:
    """What encoding whole and as a stream raise."""
    with pytest.raises(RequestError) as whole:
        encode(tone(), RATE, format, field=field)
    with pytest.raises(RequestError) as stream:
        Encoder(format, RATE, field=field)
    return [whole.value, stream.value]


# --- resampling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "target"), [(24_000, 16_000), (24_000, 48_000), (44_100, 16_000)])
def test_a_tone_keeps_its_pitch(source: int, target: int) -> None:
    resampler = Resampler(source, target)
    got = np.concatenate([resampler.push(tone(1.0, source)), resampler.flush()])
    assert len(got) == target
    assert np.abs(got - tone(1.0, target))[200:-200].max() < 1e-4


@settings(deadline=None, max_examples=20)
@given(cuts=st.lists(st.integers(0, 6000), max_size=8), target=st.sampled_from([8000, 16_000, 24_000, 44_100, 48_000]))
def test_a_resampled_stream_is_the_resampled_whole(cuts: list[int], target: int) -> None:
    samples = np.random.default_rng(0).standard_normal(6000).astype(np.float32)
    whole, cut = Resampler(RATE, target), Resampler(RATE, target)
    expected = np.concatenate([whole.push(samples), whole.flush()])
    parts = [cut.push(part) for part in np.split(samples, sorted(cuts))] + [cut.flush()]
    assert np.array_equal(np.concatenate(parts), expected)


# --- pace -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1.05, 1.5, 2.0, 4.0])
def test_quickened_sound_is_shorter_at_the_same_pitch(factor: float) -> None:
    quick = quicken(tone(2.0), RATE, factor)
    assert len(quick) == pytest.approx(2.0 * RATE / factor, rel=0.02)
    spectrum = np.abs(np.fft.rfft(quick))
    assert np.argmax(spectrum) * RATE / len(quick) == pytest.approx(440, abs=5)
    assert np.array_equal(quick, quicken(tone(2.0), RATE, factor))


def test_no_sound_is_not_quickened() -> None:
    assert len(quicken(np.zeros(0, np.float32), RATE, 2.0)) == 0


def test_the_formats_of_the_api_are_those_that_can_be_made() -> None:
    assert {*SPEECH_FORMATS, *CHAT_FORMATS} == set(FORMATS)
    offered = openapi(assistant())["paths"]["/v1/audio/speech"]["post"]["responses"]["200"]["content"]
    made = {FORMATS[name].content_type.partition(";")[0] for name in SPEECH_FORMATS}
    assert set(offered) == made | {"text/event-stream"}
