"""wan: Wan 2.2. A UMT5 text encoder, a diffusion transformer or two, each for a range of noise, a causal video VAE."""

from __future__ import annotations

from omnic.catalog import diffusion as d
from omnic.catalog import video
from omnic.catalog.diffusers import Index
from omnic.catalog.part import CatalogError, Key, Part, Port
from omnic.contract.domains import Range
from omnic.contract.types import Type
from omnic.expr import Size

_TOKENS = 512  # of a prompt; the transformer always sees as many, zeros after the text
_FLOAT32 = ("rope", "time_embedder", "scale_shift_table", "norm1", "norm2", "norm3")  # what stays so in any precision


def parts(index: Index) -> tuple[Part, ...]:
    encoder, transformer, vae = index["text_encoder"], index["transformer"], index["vae"]
    if transformer.config.get("image_dim") is not None:
        raise CatalogError(f"{index.where}: omnic lacks the picture encoder of Wan 2.1", id="not-supported-yet")
    two = index.settings.get("boundary_ratio") is not None and "transformer_2" in index
    whole = bool(index.settings.get("expand_timesteps"))  # a first frame takes the place of the noise there
    beside = transformer.config["in_channels"] != transformer.config["out_channels"]  # it lies beside the noise
    width, channels = int(encoder.config["d_model"]), int(vae.config["z_dim"])
    time, space = int(vae.config["scale_factor_temporal"]), int(vae.config["scale_factor_spatial"])
    latents = d.latents(channels, time, space, space)
    multiple = space * int(transformer.config["patch_size"][-1])
    default, fps = (121, 24) if whole else (81, 16)
    size = d.size(Size(1280, 704) if whole else Size(832, 480), multiple, 1280)
    frames = d.frames(default, time, 2 * default - 1)
    count = f"((frames_high - 1) / {time} + 1)"
    inner = int(transformer.config["num_attention_heads"]) * int(transformer.config["attention_head_dim"])
    first = Port("first_frame", latents, required=beside, origin=index.where)
    experts = {"high": transformer, "low": index["transformer_2"]} if two else {"transformer": transformer}
    made = [
        d.text_encoder(
            index,
            width,
            _TOKENS,
            {"text_encoder": encoder.elements(without=("encoder.embed_tokens.",))},
            encoder.stored,
            hidden=3 * int(encoder.config["d_ff"]),
        ),
        d.denoiser(
            index,
            transformer,
            (Port("condition", Type("embeds", (width,)), origin=index.where), *((first,) if beside or whole else ())),
            latents,
            (size, frames, d.steps(40 if two else 50), *_guidance(index, two, beside), d.seed()),
            activation=f"2 * batch * size_high / {multiple**2} * {count} * {_WIDEST[whole] * inner}",
            replays=True,
            latent_bytes=f"{4 * _COPIES * channels} * batch * size_high / {space**2} * {count}",
            groups={name: expert.elements() for name, expert in experts.items()},
            float32={name: expert.elements(within=_FLOAT32) for name, expert in experts.items()},
            wide=_FLOAT32,
            stored="BF16",
            streams=d.FRAMES,
            adapts=tuple(expert.name for expert in experts.values()),
            caches=d.caches(f"(size_high / {multiple**2} * {count})", 0, inner * len(experts), first_block=0.1),
        ),
        video.decode(index, latents, fps),
    ]
    if beside or whole:
        keys = (size, frames) if beside else (size,)
        made.append(video.first_frame(index, latents, keys, followed=beside))
    return tuple(made)


# elements of a token that one forward holds at once, in multiples of the model's width; and where tokens have a
# timestep each; measured
_WIDEST = (12, 33)
_COPIES = 5  # of a request's latents: they, two predictions and a sample that the solver keeps, a first frame


def _guidance(index: Index, two: bool, beside: bool) -> tuple[Key, ...]:
    """The scales that the model was released with."""
    if not two:
        return (d.guidance(5.0),)
    high, low = (3.5, 3.5) if beside else (4.0, 3.0)
    boundary = float(index.settings["boundary_ratio"])
    return (
        d.guidance(high, name="high.guidance"),
        d.guidance(low, name="low.guidance", field="guidance_scale_2"),
        Key(
            "boundary", Type("float"), boundary, Range(0.0, 1.0),
            "noise, at most 1, below which the low expert takes over", origin=index.where,
        ),
        *(
            Key(f"{expert}.offload", Type("json"), None, doc=f"what of the {expert} expert leaves the device",
                unsupported="both experts go by `offload`")
            for expert in ("high", "low")
        ),
    )  # fmt: skip
