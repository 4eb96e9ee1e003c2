"""What a plan is made for: devices, their memory and links, from presets, a file, a `deploy` block or this machine.

Bytes are bytes, rates are a second. A target need not be there.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from omnic.expr import Quantity, Size, format_value
from omnic.spelling import did_you_mean

GIB = 1 << 30
_PRESETS = Path(__file__).parent / "presets" / "gpus.json"
_CUDA_CONTEXT = 500 << 20  # what a process takes of a device before it holds anything
_MOST = 1024  # devices, or hosts, of one target
_PRECISIONS = ("bf16", "fp8", "fp32")  # in which a device's rate may be stated
_HOSTS = '`hosts(2, gpu("h200", count = 4))`'


class TargetError(ValueError):
    """A target that cannot be had from what was written. `help` says what can, where there is something; `option`
    is the one of a call that is at fault, where it is one."""

    def __init__(self, message: str, help: str | None = None, *, option: str | None = None) -> None:
        super().__init__(message)
        self.message, self.help, self.option = message, help, option


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, or the host's processor with its memory. Rates that are not known are 0."""

    name: str  # "cpu", "gpu0": its place in the target
    kind: str  # cpu | gpu
    model: str  # "h200"; "" where only numbers were given
    memory_bytes: int
    free_bytes: int  # of these, what a plan may use
    bandwidth: float = 0.0  # bytes/s of its memory
    rates: tuple[tuple[str, float], ...] = ()  # matmul FLOP/s by precision
    launch_seconds: float = 0.0  # to start a kernel
    link: float = 0.0  # bytes/s to the host
    context_bytes: int = 0  # each process on it takes this much
    arch: str = ""
    host: int = 0
    origin: str = ""  # where the numbers come from


@dataclass(frozen=True, slots=True)
class Link:
    """What joins two devices (by name), or two hosts where `kind` is net."""

    between: tuple[str, str]
    kind: str  # nvlink | pcie | net
    bandwidth: float  # bytes/s one way; 0 where not known


@dataclass(frozen=True, slots=True)
class Target:
    """`devices` are numbered from 0, as `place = [0, 1]` counts them. With GPUs, the host is beside them.

    With `here`, memory and cores were read from this machine: for showing and for proofs, never for decisions, so that
    a plan is the same wherever it is made. `cores` is None then: a stage takes what the machine that serves has.
    """

    name: str  # "cpu", "h200 * 2"
    devices: tuple[Device, ...]
    host: Device
    links: tuple[Link, ...] = ()
    cores: int | None = None
    here: bool = False
    hosts: int = 1
    file: Path | None = field(default=None, compare=False)  # that it was read from

    @property
    def gpus(self) -> bool:
        return self.devices[0].kind == "gpu"

    def device(self, name: str) -> Device:
        return self.host if name == self.host.name else next(d for d in self.devices if d.name == name)


# --- this machine -----------------------------------------------------------------------------------------------------


def cpu() -> Target:
    """This machine's processor. Reads how much memory there is and is free."""
    total, free = _memory()
    device = Device("cpu", "cpu", "", total, free, origin="this machine")
    return Target("cpu", (device,), device, here=True)


def machine_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0))


def _memory() -> tuple[int, int]:
    """Bytes of memory that this process may take at most, and that are free now."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = total
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            cap = int(Path(limit).read_text())
            if cap < total:
                total, free = cap, min(free, cap - int(Path(used).read_text()))
        except (OSError, ValueError):  # no such hierarchy, or "max"
            continue
    return total, free


# --- from numbers -----------------------------------------------------------------------------------------------------


def presets() -> dict[str, Device]:
    """The GPUs known by name."""
    return {name: _preset(name, numbers) for name, numbers in json.loads(_PRESETS.read_bytes()).items()}


def _preset(name: str, n: Mapping[str, Any]) -> Device:
    memory = int(n["memory_gib"] * GIB)
    rates = tuple((p, n[f"{p}_tflops"] * 1e12) for p in _PRECISIONS if n.get(f"{p}_tflops") is not None)
    return Device(
        name="gpu0",
        kind="gpu",
        model=name,
        memory_bytes=memory,
        free_bytes=memory,
        bandwidth=n["bandwidth_gb_s"] * 1e9,
        rates=rates,
        launch_seconds=n["launch_us"] * 1e-6,
        link=n["pcie_gb_s"] * 1e9,
        context_bytes=_CUDA_CONTEXT,
        arch=n["arch"],
        origin=n["origin"],
    )


def _known(name: str) -> Mapping[str, Any]:
    known: dict[str, Any] = json.loads(_PRESETS.read_bytes())
    if name not in known:
        raise TargetError(f"unknown GPU `{name}`", _nearest(name, known))
    found: Mapping[str, Any] = known[name]
    return found


def gpu(
    model: str | None = None,
    *,
    count: int = 1,
    link: str | None = None,
    memory: int | None = None,
    host_memory: int | None = None,
    pcie: float | None = None,
) -> Target:
    """`count` equal GPUs of one host: a preset, or numbers (bytes, bytes/s), or a preset with some numbers changed.

    Raises TargetError.
    """
    if model is None and memory is None:
        raise TargetError("a GPU needs a name or its memory", '`gpu("h200")` or `gpu(memory = 24GiB)`')
    _counted(count, "`count`", option="count")
    if link not in (None, "nvlink", "pcie"):
        raise TargetError(f"`link` must be nvlink or pcie, not {link}", option="link")
    numbers = _known(model) if model is not None else {}
    bare = Device("gpu0", "gpu", "", 0, 0, context_bytes=_CUDA_CONTEXT, origin="as written")
    base = _preset(model, numbers) if model is not None else bare
    if memory is not None:
        base = replace(base, memory_bytes=int(memory), free_bytes=int(memory))
    if pcie is not None:
        base = replace(base, link=float(pcie))
    if link == "nvlink" and model is not None and "nvlink_gb_s" not in numbers:
        raise TargetError(f"`{model}` has no nvlink", "`link = pcie`", option="link")
    kind = link or ("nvlink" if "nvlink_gb_s" in numbers else "pcie")
    rate = numbers.get("nvlink_gb_s", 0.0) * 1e9 if kind == "nvlink" else base.link
    devices = tuple(replace(base, name=f"gpu{i}") for i in range(count))
    links = tuple(Link((a.name, b.name), kind, rate) for i, a in enumerate(devices) for b in devices[i + 1 :])
    name = model or f"gpu {memory_text(base.memory_bytes)}"
    return Target(f"{name} * {count}" if count > 1 else name, devices, _host(host_memory), links)


def _counted(count: Any, what: str, *, option: str | None = None) -> None:
    if type(count) is not int or not 1 <= count <= _MOST:
        raise TargetError(f"{what} must be a whole number in 1..{_MOST}, not {_shown(count)}", option=option)


def _host(memory: int | None, free: int | None = None) -> Device:
    """The host beside GPUs. Memory 0 where it was not stated: nothing is proved of it then."""
    total = int(memory or 0)
    return Device(
        "host", "cpu", "", total, total if free is None else free, origin="as written" if total else "not stated"
    )


def hosts(count: int, of: Target, *, net: float | None = None) -> Target:
    """`count` hosts, each with the devices of `of`, joined by a network of `net` bytes/s. Raises TargetError."""
    _counted(count, "the number of hosts")
    if not of.gpus or of.hosts > 1:
        raise TargetError("`hosts` takes a number and what each host has", _HOSTS)
    each = len(of.devices)
    devices, links = [], []
    for h in range(count):
        renamed = {d.name: f"gpu{h * each + i}" for i, d in enumerate(of.devices)}
        devices += [replace(d, name=renamed[d.name], host=h) for d in of.devices]
        links += [replace(k, between=(renamed[k.between[0]], renamed[k.between[1]])) for k in of.links]
    nets = [Link((f"host{a}", f"host{b}"), "net", float(net or 0)) for a in range(count) for b in range(a + 1, count)]
    return Target(f"hosts({count}, {of.name})", tuple(devices), of.host, (*links, *nets), hosts=count)


# --- from text --------------------------------------------------------------------------------------------------------


def load(spec: str) -> Target:
    """A target by the text of a flag: `cpu`, `gpu:h200*2`, `h200`, or the path of a JSON file. Raises TargetError."""
    if spec == "cpu":
        return cpu()
    if spec.endswith(".json") or "/" in spec:
        return read(Path(spec))
    match = re.fullmatch(r"(?:gpu:)?([A-Za-z0-9-]+)\s*(?:\*\s*([0-9]+))?", spec)
    if match is None:
        raise TargetError(f"`{spec}` is not a target", "write cpu, gpu:h200*2, or the path of a JSON file")
    return gpu(match[1].lower(), count=int(match[2] or 1))


_CALLS: dict[str, tuple[Callable[..., Target], tuple[str, ...]]] = {
    "cpu": (cpu, ()),
    "gpu": (gpu, ("model", "count", "link", "memory", "host_memory", "pcie")),
    "hosts": (hosts, ("count", "of", "net")),
}
_MEASURES = {
    "memory": ("B", "24GiB"),
    "host_memory": ("B", "128GiB"),
    "pcie": ("B/s", "64GB/s"),
    "net": ("B/s", "400Gb/s"),
}
_WORDS = {"model": 'the name of a GPU, such as "h200"', "link": "nvlink or pcie"}


def made(function: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> Target:
    """The target that a deploy block writes as a call. Values are those of the language, targets inside are Targets.
    Raises TargetError."""
    if function not in _CALLS:
        raise TargetError(f"`{function}` makes no target", f"targets are {', '.join(_CALLS)}, or a file")
    make, known = _CALLS[function]
    for name in options:
        if name not in known:
            raise TargetError(f"`{function}` has no option `{name}`", _nearest(name, known), option=name)
    places = zip(known, args, strict=False)  # what is too much is told by the call itself
    try:
        fitted = {name: _fitted(name, value) for name, value in options.items()}
        return make(*(_fitted(name, value) for name, value in places), *args[len(known) :], **fitted)
    except TypeError:
        raise TargetError(f"`{function}` does not take these arguments", f"it has {', '.join(known)}") from None


def _fitted(name: str, value: Any) -> Any:
    """The value of an option of a call, as the function takes it."""
    if name in _MEASURES:
        dimension, example = _MEASURES[name]
        if not isinstance(value, Quantity) or value.dimension != dimension or value.base <= 0:
            raise TargetError(f"`{name}` must be a quantity such as {example}, not {_shown(value)}", option=name)
        return value.base
    if name in _WORDS and not isinstance(value, str):
        raise TargetError(f"`{name}` must be {_WORDS[name]}, not {_shown(value)}", option=name)
    if name == "of" and not isinstance(value, Target):
        raise TargetError("`hosts` takes a number and what each host has", _HOSTS, option=name)
    return value


def _shown(value: Any) -> str:
    known = value is None or isinstance(value, bool | int | float | str | Quantity | Size)
    return format_value(value) if known else "this"


_FILE = {"name", "host", "devices", "links"}
_HOST = {"memory_gib", "free_gib", "cores"}
_DEVICE = {"preset", "count", "memory_gib", "free_gib", "bandwidth_gb_s", "launch_us", "pcie_gb_s", "arch",
           *(f"{p}_tflops" for p in _PRECISIONS)}  # fmt: skip
_LINK = {"between", "kind", "gb_s"}


def read(path: Path) -> Target:
    """A target from a JSON file: `host` (memory_gib, free_gib, cores), `devices` (each a `preset` or `memory_gib`, with
    `count`, `free_gib` and rates), `links` (`between` two device numbers, `kind`, `gb_s`). No devices: the host alone.

    Raises TargetError that names what is wrong and where.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise TargetError(f"cannot read target {path}: {error.strerror}") from None
    try:
        content = json.loads(text)
    except ValueError as error:
        raise TargetError(f"target {path} is not JSON: {error}") from None
    where = path.name
    _fields(content, _FILE, where)
    stated = content.get("host", {})
    _fields(stated, _HOST, f"{where}, host")
    memory, free = (_number(stated, n, f"{where}, host") for n in ("memory_gib", "free_gib"))
    cores = stated.get("cores")
    if cores is not None and (type(cores) is not int or cores < 1):
        raise TargetError(f"{where}, host: `cores` must be a whole number from 1, not {_json(cores)}")
    name = _text(content, "name", where, path.stem)
    devices: list[Device] = []
    for index, entry in enumerate(_list(content, "devices", where)):
        devices += _devices(entry, f"{where}, device {index}", len(devices))
    total = int((memory or 0) * GIB)
    usable = total if free is None else _free(free, total, f"{where}, host")
    if not devices:
        if not total:
            raise TargetError(f"{where} needs devices, or a host with `memory_gib`")
        device = Device("cpu", "cpu", "", total, usable, origin=where)
        return Target(name, (device,), device, cores=cores, file=path)
    links = tuple(_link(e, f"{where}, link {i}", devices) for i, e in enumerate(_list(content, "links", where)))
    return Target(name, tuple(devices), replace(_host(total, usable), origin=where), links, cores, file=path)


def _devices(entry: Any, where: str, first: int) -> list[Device]:
    _fields(entry, _DEVICE, where)
    count = entry.get("count", 1)
    if type(count) is not int or not 1 <= count <= _MOST - first:
        raise TargetError(f"{where}: `count` must be a whole number in 1..{_MOST - first}, not {_json(count)}")
    preset = _text(entry, "preset", where, "")
    numbers = {"bandwidth_gb_s": 0.0, "launch_us": 0.0, "pcie_gb_s": 0.0, "arch": ""}
    numbers |= (dict(_known(preset)) if "preset" in entry else {}) | entry
    if _number(numbers, "memory_gib", where) is None:
        raise TargetError(f"{where} needs `preset` or `memory_gib`")
    for name in _DEVICE - {"preset", "count", "arch"}:
        _number(numbers, name, where)
    _text(numbers, "arch", where, "")
    device = _preset(preset, numbers | {"origin": where})
    free = _number(numbers, "free_gib", where)
    if free is not None:
        device = replace(device, free_bytes=_free(free, device.memory_bytes, where))
    return [replace(device, name=f"gpu{first + i}") for i in range(count)]


def _free(gib: float, total: int, where: str) -> int:
    if gib * GIB > total:
        raise TargetError(f"{where}: `free_gib` is {gib:g}, more than the {total / GIB:g} there are")
    return int(gib * GIB)


def _link(entry: Any, where: str, devices: list[Device]) -> Link:
    _fields(entry, _LINK, where)
    ends = entry.get("between")
    if (
        not isinstance(ends, list)
        or len(ends) != 2
        or any(type(e) is not int or not 0 <= e < len(devices) for e in ends)
    ):
        raise TargetError(f"{where}: `between` must be two device numbers, not {_json(ends)}")
    if entry.get("kind") not in ("nvlink", "pcie"):
        raise TargetError(f"{where}: `kind` must be nvlink or pcie, not {_json(entry.get('kind'))}")
    return Link((f"gpu{ends[0]}", f"gpu{ends[1]}"), entry["kind"], (_number(entry, "gb_s", where) or 0.0) * 1e9)


def _fields(entry: Any, known: set[str], where: str) -> None:
    if not isinstance(entry, dict):
        raise TargetError(f"{where} must be a JSON object")
    for name in entry:
        if name not in known:
            raise TargetError(f"{where} has no field `{name}`", _nearest(name, known))


def _list(entry: Mapping[str, Any], name: str, where: str) -> list[Any]:
    value = entry.get(name, [])
    if not isinstance(value, list):
        raise TargetError(f"{where}: `{name}` must be a list, not {_json(value)}")
    return value


def _text(entry: Mapping[str, Any], name: str, where: str, default: str) -> str:
    value = entry.get(name, default)
    if not isinstance(value, str):
        raise TargetError(f"{where}: `{name}` must be a text, not {_json(value)}")
    return value


def _number(entry: Mapping[str, Any], name: str, where: str) -> float | None:
    value = entry.get(name)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and value >= 0 and math.isfinite(value)):
        raise TargetError(f"{where}: `{name}` must be a number from 0, not {_json(value)}")
    return value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _nearest(name: str, known: Iterable[str]) -> str:
    words = sorted(known)
    return did_you_mean(name, words) or f"known: {', '.join(words)}"


# --- which devices of the machine -------------------------------------------------------------------------------------


def visible(target: Target, env: Mapping[str, str] = os.environ) -> tuple[str, ...] | None:
    """What each device of `target` is on a machine that shows only some: `CUDA_VISIBLE_DEVICES` in order, one id a
    device. None where the variable is not set, is empty (GPUs hidden: the target is another machine), or the target
    has no GPUs. Raises TargetError if fewer are visible than the target has.
    """
    listed = [part.strip() for part in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
    if not target.gpus or not listed or listed == ["-1"]:
        return None
    if len(listed) < len(target.devices):
        raise TargetError(
            f"target `{target.name}` requires {len(target.devices)} devices, {len(listed)} visible",
            f"CUDA_VISIBLE_DEVICES is {','.join(listed)}",
        )
    return tuple(listed[: len(target.devices)])


def memory_text(n: float) -> str:
    """Bytes for people: `62.7 GiB`, `512 MiB`, whole where they are whole."""
    for unit, size in (("TiB", 1 << 40), ("GiB", GIB), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(n) >= size:
            text = f"{n / size:.1f}"
            return f"{text.removesuffix('.0')} {unit}"
    return f"{n:.0f} B"
