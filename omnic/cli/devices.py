"""Targets as text: the presets, and what one of them consists of."""

from __future__ import annotations

from collections.abc import Iterator

from omnic import target as targets
from omnic.cli.refusal import Refusal
from omnic.target import Device, Target, memory_text


def presets() -> Iterator[str]:
    """A line for each preset, and how to write the others."""
    here = targets.cpu().host
    yield f"cpu           this machine: {targets.machine_cores()} cores, {memory_text(here.memory_bytes)} of memory"
    for name, device in targets.presets().items():
        yield f"{f'gpu:{name}':<14}{_numbers(device)}"
    yield ""
    yield "Several: gpu:h200*2. From a file: ./target.json. By numbers, in a deploy block: gpu(memory = 24GiB)"


def described(spec: str) -> Iterator[str]:
    """A target's devices with their numbers and where those come from, and the links between them. Raises Refusal."""
    try:
        target = targets.load(spec)
    except targets.TargetError as error:
        raise Refusal(f"{error.message}{f': {error.help}' if error.help else ''}") from None
    yield target.name
    devices = target.devices if target.host in target.devices else (*target.devices, target.host)
    for device in devices:
        yield f"  {device.name:<6} {_numbers(device)}  ({device.origin})"
    yield from _links(target)


def _links(target: Target) -> Iterator[str]:
    for link in target.links:
        speed = f" {link.bandwidth / 1e9:.0f} GB/s" if link.bandwidth else ""
        yield f"  {' - '.join(link.between)}: {link.kind}{speed}"


def _numbers(device: Device) -> str:
    facts = [memory_text(device.memory_bytes)] if device.memory_bytes else ["memory not stated"]
    if device.free_bytes != device.memory_bytes:
        facts.append(f"{memory_text(device.free_bytes)} free")
    if device.bandwidth:
        facts.append(f"{device.bandwidth / 1e12:.2f} TB/s")
    facts += [f"{precision} {rate / 1e12:.0f} TFLOP/s" for precision, rate in device.rates]
    return ", ".join(facts)
