"""LoRA: adapters against `W + scale · B · A`, one a request, never mixed; what cannot be used is named."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from omnic.runtime import lora
from omnic.runtime.errors import RequestError
from omnic.runtime.weights import Checkpoint, Damaged
from tests.runtime.adapters import halves, written
from tests.runtime.painting import Emoji, Sketch, emoji, loaded, painted


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.to_q, self.to_k = nn.Linear(6, 8), nn.Linear(6, 8, bias=False)
        self.norm = nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return self.to_q(x) * self.to_k(x)


class Net(nn.Module):
    """Satisfies `lora.HasModules` through `Holder`."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Attention() for _ in range(2))
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.blocks[0](x) + self.blocks[1](x))


class Holder:
    def __init__(self, **nets: nn.Module) -> None:
        self._nets = nets

    def modules(self) -> Mapping[str, nn.Module]:
        return self._nets


SHAPES = {"blocks.0.to_q": (8, 6), "blocks.1.to_k": (8, 6), "out": (3, 8)}


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval().requires_grad_(False)


def reference(net: Net, tensors: Mapping[str, Tensor], scale: float, x: Tensor) -> Tensor:
    """What a net with the sum in its weights gives."""
    merged = Net()
    merged.load_state_dict(net.state_dict())
    with torch.no_grad():
        for name in SHAPES:
            a, b = (tensors[f"{name}.lora_{half}.weight"].float() for half in "AB")
            merged.get_submodule(name).weight += scale * (b @ a)
        return merged(x)


X = torch.linspace(-1, 1, 30).reshape(5, 6)


@pytest.mark.parametrize(
    ("prefix", "naming", "scale"),
    [
        ("", ("lora_A", "lora_B"), 1.0),
        ("transformer.", ("lora_A", "lora_B"), 1.0),
        ("base_model.model.", ("lora_A", "lora_B"), 1.0),
        ("base_model.model.transformer.", ("lora_A.default", "lora_B.default"), 0.5),
        ("transformer.", ("lora_down", "lora_up"), 1.7),
    ],
)
def test_an_adapter_adds_its_product_under_any_of_the_usual_names(
    tmp_path: Path, net: Net, prefix: str, naming: tuple[str, str], scale: float
) -> None:
    tensors = halves(SHAPES, 4)
    named = {
        f"{prefix}{name}".replace("lora_A", naming[0]).replace("lora_B", naming[1]): tensor
        for name, tensor in tensors.items()
    }
    adapters = lora.Adapters({"neon": lora.read(written(tmp_path, "neon", named), Holder(transformer=net))})
    plain = net(X)
    with adapters.using("neon", scale):
        assert torch.allclose(net(X), reference(net, tensors, scale, X), atol=1e-5)
    with adapters.using(lora.BASE, 1.0):
        assert torch.equal(net(X), plain)
    assert torch.equal(net(X), plain)


@pytest.mark.parametrize(
    ("metadata", "config", "expected"),
    [
        ({"transformer.r": 4, "transformer.lora_alpha": 8}, None, 2.0),
        ({"transformer.r": 4, "transformer.lora_alpha": 8, "transformer.use_rslora": True}, None, 4.0),
        (None, {"r": 4, "lora_alpha": 2}, 0.5),
        (None, {"r": 4, "lora_alpha": 2, "alpha_pattern": {"to_q|to_k|out": 12}}, 3.0),
        (None, {"r": 4}, 1.0),
    ],
)
def test_alpha_is_read_where_diffusers_and_peft_leave_it(
    tmp_path: Path, net: Net, metadata: Any, config: Any, expected: float
) -> None:
    tensors = halves(SHAPES, 4)
    named = {f"transformer.{name}": tensor for name, tensor in tensors.items()}
    checkpoint = written(tmp_path, "neon", named, metadata=metadata, config=config)
    adapter = lora.read(checkpoint, Holder(transformer=net))
    assert {pair.scale for pair in adapter.values()} == {expected}
    with lora.Adapters({"neon": adapter}).using("neon", 1.0):
        assert torch.allclose(net(X), reference(net, tensors, expected, X), atol=1e-4)


def test_an_alpha_of_its_own_wins(tmp_path: Path, net: Net) -> None:
    tensors = halves({"out": (3, 8)}, 4) | {"out.alpha": torch.tensor(6.0)}
    adapter = lora.read(written(tmp_path, "neon", tensors, config={"lora_alpha": 4}), Holder(transformer=net))
    assert [pair.scale for pair in adapter.values()] == [1.5]


def test_each_module_of_a_denoiser_gets_what_is_named_after_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    high, low = Net(), Net()
    tensors = {f"transformer_2.{name}": t for name, t in halves({"out": (3, 8)}, 2).items()}
    adapter = lora.read(written(tmp_path, "neon", tensors), Holder(transformer=high, transformer_2=low))
    assert list(adapter) == [low.out]


def test_fusing_adds_to_the_weights_for_good(tmp_path: Path, net: Net) -> None:
    tensors = halves(SHAPES, 4)
    expected = reference(net, tensors, 0.5, X)
    lora.fuse(lora.read(written(tmp_path, "neon", tensors), Holder(transformer=net)), 0.5)
    assert torch.allclose(net(X), expected, atol=1e-5)


def test_an_adapter_is_held_in_the_dtype_of_what_it_adapts(tmp_path: Path, net: Net) -> None:
    net.to(torch.bfloat16)
    tensors = halves(SHAPES, 4)
    adapter = lora.read(written(tmp_path, "neon", tensors), Holder(transformer=net))
    assert {pair.a.dtype for pair in adapter.values()} == {torch.bfloat16}
    with lora.Adapters({"neon": adapter}).using("neon", 1.0):
        found = net(X.bfloat16()).float()
    assert torch.allclose(found, reference(net.float(), tensors, 1.0, X), atol=0.2)


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        (halves({"blocks.7.to_q": (8, 6)}, 2), "adapts `blocks.7.to_q`, which the model does not have"),
        (halves({"blocks.0.norm": (6, 6)}, 2), "adapts `blocks.0.norm`, which is no linear layer"),
        (halves({"out": (3, 9)}, 2), r"`out` adds \[3, 2\] x \[2, 9\] to a layer of \[3, 8\]"),
        ({"out.lora_A.weight": torch.zeros(2, 8)}, "`out.lora_A.weight` lacks its other half"),
        (halves({"out": (3, 8)}, 2) | {"out.lora_magnitude_vector": torch.zeros(3)}, "cannot use `out.lora_magnitude"),
        (halves({"out": (3, 8)}, 2) | {"out.lora_B.bias": torch.zeros(3)}, "cannot use `out.lora_B.bias`"),
        (halves({"text_encoder.layers.0.q": (3, 8)}, 2), "adapts `text_encoder.layers.0.q`, which the model does not"),
        ({"out.alpha": torch.tensor(1.0)}, "holds no adapter"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, net: Net, tensors: dict[str, Tensor], why: str) -> None:
    with pytest.raises(Damaged, match=why):
        lora.read(written(tmp_path, "neon", tensors), Holder(transformer=net))


def test_what_is_said_of_an_adapter_and_cannot_be_read_is_named(tmp_path: Path, net: Net) -> None:
    checkpoint = written(tmp_path, "neon", halves(SHAPES, 4), config={})
    (tmp_path / "adapter_config.json").write_text("{")
    with pytest.raises(Damaged, match=r"what .*neon.safetensors says of its adapter cannot be read"):
        lora.read(checkpoint, Holder(transformer=net))


# --- in the engine ----------------------------------------------------------------------------------------------------

LAYERS = {f"transformer.blocks.{n}.{layer}": shape for n in (0, 5)
          for layer, shape in {"qkv": (960, 320), "out": (320, 320), "up": (960, 320)}.items()}  # fmt: skip


@pytest.fixture(scope="module")
def neon(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return written(tmp_path_factory.mktemp("neon"), "neon", halves(LAYERS, 4, seed=1, size=0.1))


@pytest.fixture(scope="module")
def ink(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return written(tmp_path_factory.mktemp("ink"), "ink", halves(LAYERS, 2, seed=2, size=0.1))


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def stages(request: pytest.FixtureRequest, neon: Checkpoint, ink: Checkpoint) -> Iterator[Emoji]:
    with emoji(request.param, loras={"neon": neon, "ink": ink}) as stages:
        yield stages


def pictures(stages: Emoji, *asked: dict[str, Any]) -> list[Any]:
    async def run() -> list[Any]:
        return [found.image for found in await asyncio.gather(*(painted(stages.begun(**one)) for one in asked))]

    return asyncio.run(run())


SAME: dict[str, Any] = {"prompt": "a red heart", "seed": 1, "steps": 2, "guidance": 1.5}
CHOICES: list[dict[str, Any]] = [
    {}, {"lora": "neon"}, {"lora": "ink"}, {"lora": "neon", "lora_scale": 0.5}, {"lora": "base", "lora_scale": 0.5}
]  # fmt: skip


def test_requests_choose_adapters_and_are_never_mixed(stages: Emoji, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [pictures(stages, SAME | choice)[0].tobytes() for choice in CHOICES]
    assert len(set(alone)) == 4, "base with any scale is base"
    assert alone[0] == alone[4]
    denoiser: Any = stages.paint._denoiser
    mixed: list[set[int]] = []
    forward = denoiser.forward

    def watched(x: Any, t: Any, rows: Any) -> Any:
        mixed.append({id(row.job) for row in rows})
        return forward(x, t, rows)

    monkeypatch.setattr(denoiser, "forward", watched)
    together = [picture.tobytes() for picture in pictures(stages, *(SAME | choice for choice in CHOICES[:4]))]
    assert together == alone[:4]
    assert all(len(jobs) == 1 for jobs in mixed), "each has an adapter of its own"


def test_requests_with_the_same_adapter_share_a_forward(stages: Emoji) -> None:
    before = stages.paint.stats()
    pictures(stages, *(SAME | {"seed": seed, "lora": "neon"} for seed in range(3)))
    after = stages.paint.stats()
    assert after["rows"] - before["rows"] > after["steps"] - before["steps"]


def test_an_adapter_that_is_not_there_is_refused_before_any_step(stages: Emoji) -> None:
    steps = stages.paint.stats()["steps"]
    with pytest.raises(RequestError) as refused:
        pictures(stages, SAME | {"lora": "chrome"})
    assert refused.value.field == "lora"
    assert stages.paint.stats()["steps"] == steps


def test_a_fused_adapter_paints_what_it_paints_beside_the_base(neon: Checkpoint) -> None:
    with emoji(loras={"neon": neon}) as stages:
        beside, base = pictures(stages, SAME | {"lora": "neon", "lora_scale": 0.7}, SAME)
    with emoji(fuse={"neon": neon}, fuse_scale=0.7) as stages:
        (fused,) = pictures(stages, SAME)
    assert abs(fused.astype(int) - beside.astype(int)).max() <= 2
    assert abs(fused.astype(int) - base.astype(int)).max() > 10


def test_a_family_that_names_no_modules_does_not_load_with_an_adapter(
    neon: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        pytest.raises(Damaged, match="does not say what adapters may be of"),
        loaded(Sketch(), monkeypatch, loras={"neon": neon}),
    ):
        pass
