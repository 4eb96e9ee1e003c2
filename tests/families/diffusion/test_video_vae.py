"""Causal video VAEs: whole, in chunks and in tiles the same frames, and those of diffusers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from omnic.expr import Size
from omnic.runtime.causal import Tiling
from omnic.runtime.chunks import Chunks
from omnic.runtime.components import Components
from omnic.runtime.diffusion import Ask, Latents
from omnic.runtime.home import Home
from omnic.runtime.latents import restored
from omnic.runtime.video_vae import VideoVae
from tests.families.diffusion.configs_hunyuan_video15 import FIXTURES as HUNYUAN
from tests.families.diffusion.configs_qwen_image import FIXTURES as QWEN
from tests.families.diffusion.configs_wan import FIXTURES as WAN
from tests.families.diffusion.parity import Pair, generator

KINDS = {
    "wan": WAN["random--wan"],
    "wan22": WAN["random--wan_ti2v"],
    "qwen": QWEN["random--qwen_image"],
    "hunyuan": HUNYUAN["random--hunyuan_video15"],
}


@pytest.fixture(scope="module", params=list(KINDS))
def vae(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return Vae(Pair(KINDS[request.param], tmp_path_factory.mktemp(request.param) / "model"))


class Vae:
    def __init__(self, pair: Pair) -> None:
        self.decoder = VideoVae(Components(pair.checkpoint, Home("float32"), lambda done, total: None)).frames()
        self.theirs, self.config = pair.pipe.vae, dict(pair.pipe.vae.config)

    def latents(self, frames: int = 4, height: int = 6, width: int = 5) -> Latents:
        channels = self.config.get("z_dim") or self.config["latent_channels"]
        return Latents(torch.randn(1, channels, frames, height, width, generator=generator(0)))

    def tiling(self, shape: tuple[int, int], cells: tuple[int, int]) -> Tiling:
        layers = self.decoder.layers()
        return Tiling(layers, shape, Size(cells[0] * layers.scale, cells[1] * layers.scale))

    def whole(self, latents: Latents, **settings: Any) -> NDArray[np.uint8]:
        found: dict[str, Any] = {}
        with torch.inference_mode():
            for part in self.decoder.run(Ask(0, {"latents": latents}, settings)):
                found |= part
        return found["video"]  # type: ignore[no-any-return]

    def chunks(self, latents: Latents, cut: Chunks, **settings: Any) -> list[NDArray[np.uint8]]:
        with torch.inference_mode():
            push = self.decoder.begin(Ask(0, {}, settings))
            return [push(piece)["video"] for piece in (*cut.push(latents), *cut.flush())]


def test_frames_are_those_of_diffusers(vae: Vae) -> None:
    latents = vae.latents()
    with torch.inference_mode():
        expected = vae.theirs.decode(restored(latents.values, vae.config), return_dict=False)[0]
        torch.testing.assert_close(vae.decoder.decode(latents.values), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("cut", [(1, ()), (2, ()), (3, ()), (3, (1, 2)), (9, ())], ids=str)
def test_chunks_are_the_same_bytes(vae: Vae, cut: tuple[int, Any]) -> None:
    latents = vae.latents()
    whole = vae.whole(latents)
    parts = vae.chunks(latents, Chunks(*cut))
    assert np.array_equal(np.concatenate(parts), whole)
    later = (len(whole) - 1) // 3
    sizes = [*cut[1], *(cut[0] for _ in range(4))]
    assert len(parts[0]) == 1 + later * (min(sizes[0], 4) - 1)


def test_two_videos_at_once_do_not_mix(vae: Vae) -> None:
    one, other = vae.latents(2), Latents(-vae.latents(2).values)
    with torch.inference_mode():
        first, second = vae.decoder.begin(Ask(0, {}, {})), vae.decoder.begin(Ask(0, {}, {}))
        pairs = zip(Chunks(1).push(one), Chunks(1).push(other), strict=True)
        mixed = [(first(a)["video"], second(b)["video"]) for a, b in pairs]
    assert np.array_equal(np.concatenate([a for a, _ in mixed]), vae.whole(one))
    assert np.array_equal(np.concatenate([b for _, b in mixed]), vae.whole(other))


@pytest.mark.parametrize("cells", [(3, 9), (12, 4)], ids=str)
def test_tiles_differ_by_rounding_alone(vae: Vae, cells: tuple[int, int]) -> None:
    latents = vae.latents(3, height=20, width=12)
    with torch.inference_mode():
        z = restored(latents.values, vae.config).split(1, 2)
        tiling = vae.tiling((20, 12), cells)
        assert len(tiling.tiles) == -(-20 // cells[1]) * -(-12 // cells[0])
        found = torch.cat([tiling.frame(one) for one in z], 2)
        torch.testing.assert_close(found, vae.decoder.decode(latents.values), atol=1e-5, rtol=0)


def test_a_tile_that_saw_less_would_show_its_border(vae: Vae) -> None:
    latents = vae.latents(1, height=40, width=8)
    whole = vae.decoder.decode(latents.values)
    needed = vae.decoder.layers().reach
    for layer in range(len(needed)):
        tiling = vae.tiling((40, 8), (8, 20))
        tiling._layers.reach = tuple(max(0, reach - 4 * (i == layer)) for i, reach in enumerate(needed))
        with torch.inference_mode():
            found = tiling.frame(restored(latents.values, vae.config))
        assert not torch.allclose(found, whole, atol=1e-5, rtol=0)


def test_whole_and_in_chunks_tiles_are_the_same(vae: Vae) -> None:
    latents = vae.latents(2, height=12, width=8)
    plain = vae.whole(latents)
    scale = plain.shape[1] // 12
    tile = Size(4 * scale, 6 * scale)
    whole, parts = vae.whole(latents, tile=tile), vae.chunks(latents, Chunks(1), tile=tile)
    assert np.array_equal(np.concatenate(parts), whole)
    assert np.abs(whole.astype(int) - plain.astype(int)).max() <= 1


def test_a_tile_that_holds_the_picture_changes_nothing(vae: Vae) -> None:
    latents = vae.latents(2)
    assert np.array_equal(vae.whole(latents, tile=Size(4096, 4096)), vae.whole(latents))
