"""ltx2: LTX-2. Gemma 3 reads; one transformer makes a video and its sound together, each seen by the other as it comes;
a VAE shows the one, a VAE of spectrograms and a vocoder play the other."""

from __future__ import annotations

from dataclasses import replace

from omnic.catalog import diffusion as d
from omnic.catalog import sound
from omnic.catalog.diffusers import Component, Index
from omnic.catalog.part import CatalogError, Key, Part, Port
from omnic.contract.domains import Range
from omnic.contract.types import Type
from omnic.expr import Quantity, Size

FPS = 24
_TOKENS = 1024  # of a prompt; what the transformer sees always has as many
_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.", "")
_UNGUIDED = "guidance by a model without some of its attention (STG) is left out: its scale is 0"


def parts(index: Index) -> tuple[Part, ...]:
    transformer, vae, speaker = index["transformer"], index["vae"], index["audio_vae"]
    if vae.config.get("timestep_conditioning") or any(vae.config.get("decoder_inject_noise") or ()):
        raise CatalogError(f"{index.where}: omnic lacks decoders that draw noise", id="not-supported-yet")
    if int(transformer.config["patch_size"]) != 1 or int(transformer.config["patch_size_t"]) != 1:
        raise CatalogError(f"{index.where}: omnic lacks transformers that take LTX-2's latents in patches",
                           id="not-supported-yet")  # fmt: skip
    width, inner = int(index["connectors"].config["caption_channels"]), _inner(transformer)
    time, space = _ratio(vae, "temporal"), _ratio(vae, "spatial")
    latents = d.latents(int(vae.config["latent_channels"]), time, space, space)
    heard = d.latents(int(speaker.config["latent_channels"]), 4, 4)
    size, frames = d.size(Size(768, 512), space, 2048, 2 * space), d.frames(121, time, 257)
    narrowest = int(vae.config["decoder_block_out_channels"][0])
    tokens = f"(size_high / {space**2} * ((frames_high - 1) / {time} + 1))"
    each = (
        int(speaker.config["sample_rate"]) / int(speaker.config["mel_hop_length"]) / 4 / FPS
    )  # latents of sound a frame
    made = d.denoiser(
        index,
        transformer,
        (Port("condition", Type("embeds", (width,)), origin=index.where),),
        latents,
        (size, frames, d.steps(40), *_guidance(), d.seed()),
        activation=f"2 * batch * {inner} * ({_SEEN} * {tokens} + {_HEARD * each} * frames_high + {_READ * _TOKENS})",
        replays=True,
        compiles=False,
        latent_bytes=f"4 * batch * {_COPIES} * ({transformer.config['in_channels']} * {tokens} + "
        f"{each * int(transformer.config['audio_in_channels'])} * frames_high)",
        more=(Port("audio", heard, origin=index.where),),
    )
    return (
        _words(index, width),
        replace(made, doc=f"{made.doc}: of a video and its sound; {_UNGUIDED}"),
        d.vae_decode(
            index,
            latents,
            Port("video", Type("video", (Quantity(FPS, "fps"),)), origin=index.where),
            activation=f"size_high * (frames_high + 2) * {max(_LEAST_DECODED, _DECODED * narrowest)}",
            result="6 * size_high * frames_high",
        ),
        _speaker(index, heard),
    )


# Elements held at the peak, measured: of a forward, for each of two branches, in multiples of the transformer's width,
# by a token of the video, of the sound, of the text; of the decoder, by a pixel of each frame and of two more, in
# multiples of its narrowest block's channels, and at least; of the vocoder, by a sample, in multiples of its last
# block's channels; of what draws the spectrogram, by one of its places, in multiples of its base channels.
_SEEN, _HEARD, _READ = 19, 5, 7
_DECODED, _LEAST_DECODED, _SPOKEN, _DRAWN = 0.18, 7, 10, 7.5
_COPIES = 4  # of a request's latents: they, and a prediction for each branch


def _inner(transformer: Component) -> int:
    return int(transformer.config["num_attention_heads"]) * int(transformer.config["attention_head_dim"])


def _ratio(vae: Component, axis: str) -> int:
    """Pixels, or frames, a latent."""
    given = vae.config.get(f"{axis}_compression_ratio")
    patch = vae.config["patch_size" if axis == "spatial" else "patch_size_t"]
    return int(given or int(patch) * 2 ** sum(vae.config["spatio_temporal_scaling"]))


def _guidance() -> tuple[Key, ...]:
    """The scales that LTX-2.0 was released with. Those of the sound count for it alone."""
    apart = "how far to go from what each would be without the other; 1 adds nothing, and saves a forward"
    spread = "how much of the result's deviation is that of the prompt's own"

    def scale(name: str, default: float, field: str, doc: str, most: float = 50.0) -> Key:
        return Key(name, Type("float"), default, Range(0.0 if most == 1 else 1.0, most), doc, field=field)

    return (
        scale("guidance", 4.0, "guidance_scale", "how closely the video follows the prompt; 1 adds nothing"),
        scale("sound_guidance", 4.0, "audio_guidance_scale", "how closely the sound follows the prompt"),
        scale("modality", 1.0, "modality_scale", f"of the video: {apart}"),
        scale("sound_modality", 1.0, "audio_modality_scale", f"of the sound: {apart}"),
        scale("rescale", 0.0, "guidance_rescale", f"of the video: {spread}", 1.0),
        scale("sound_rescale", 0.0, "audio_guidance_rescale", f"of the sound: {spread}", 1.0),
    )


def _words(index: Index, width: int) -> Part:
    encoder, connectors = index["text_encoder"], index["connectors"]
    prefix = next(p for p in _PREFIXES if f"{p}embed_tokens.weight" in encoder.tensors)
    held = tuple(f"{prefix}{name}." for name in ("embed_tokens", "layers", "norm"))
    states = int(connectors.config["text_proj_in_factor"])  # of the language model, side by side
    return d.text_encoder(
        index,
        width,
        _TOKENS,
        {"text_encoder": encoder.elements(*held), "connectors": connectors.elements()},
        encoder.stored,
        hidden=(4 * states + 14) * width + _TOKENS,  # measured; the last are masks
    )


def _speaker(index: Index, heard: Type) -> Part:
    vae, vocoder = index["audio_vae"], index["vocoder"]
    rate = int(vocoder.config["output_sampling_rate"])
    groups = {"audio_vae": vae.elements(without=("encoder.",)), "vocoder": vocoder.elements()}
    cells = int(vae.config["sample_rate"]) / int(vae.config["mel_hop_length"]) * int(vae.config["mel_bins"])  # a second
    played = _SPOKEN * rate * int(vocoder.config["hidden_channels"]) / 2 ** len(vocoder.config["upsample_factors"])
    widest = max(played, _DRAWN * cells * int(vae.config["base_channels"]))
    priced = d.costs(groups, vae.stored, f"frames_high / {FPS} * {widest}")
    return Part(
        "audio_decode",
        "transform",
        inputs=(Port("latents", heard, origin=index.where),),
        outputs=(Port("audio", Type("audio", (Quantity(rate, "Hz"),)), origin=index.where),),
        keys=(sound.channels(),),
        cost=priced[0][1],
        costs=priced,
        doc=f"latents to {sound.MONO}",
    )
