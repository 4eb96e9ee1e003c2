"""What the catalog says of a checkpoint: its `Model`, the `Part`s it offers, their ports, keys and costs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from omnic.contract.domains import Domain
from omnic.contract.files import File
from omnic.contract.types import Type
from omnic.expr import Expr, Literal

EACH = ("whole", "clause", "sentence")  # of ports that take text, or what is made of it, whole unless told otherwise


class CatalogError(ValueError):
    """A model or part that cannot be used as written. The user's mistake: the checker makes a diagnostic of it.

    `id` is that diagnostic's id: `model-not-found`, `unknown-family`, `not-supported-yet`, `bad-checkpoint`,
    `bad-model-option`, `bad-python-stage`. `help` says what to do, where there is something.
    """

    def __init__(self, message: str, *, help: str | None = None, id: str) -> None:
        super().__init__(message)
        self.message, self.help, self.id = message, help, id


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a part. `streams` are the modes it can give or take; an edge that pins none takes the
    first of its target's that its source gives, so the finest come first where finer is better.

    With `follows`, an output gives one value for each that comes at that input, in the mode in which they come.
    With `type_key`, the argument of the type is the value of that key of the stage: `std.resample { rate = 16kHz }`
    gives `audio<16kHz>` (`Part.with_types` writes it in).
    """

    name: str
    type: Type
    required: bool = True
    streams: tuple[str, ...] = ("whole",)
    feedback: bool = False  # may close a cycle
    origin: str = ""  # where the numbers in its type were read
    type_key: str | None = None
    follows: str | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """A setting of a part or of every stage.

    With `field`, requests may set it under that name unless the source pins it. A domain whose bounds are quantities
    takes quantities of their dimension. `kinds` are the kinds of stage it fits (all, if empty). `unsupported` is why
    the key cannot be set yet; where only some values can be, `now` holds those and `later` says why not the rest.
    """

    name: str
    type: Type
    default: Any
    domain: Domain | None = None
    doc: str = ""
    field: str | None = None
    origin: str = "catalog"  # where the default was read
    kinds: tuple[str, ...] = ()
    unsupported: str | None = None
    now: Domain | None = None
    later: str | None = None
    required: bool = False  # has no default
    shared: bool = False  # all stages of one model go by one value: left out, it is what another of them has
    port: str | None = None  # it counts only where this input of the stage is wired

    def fits(self, kind: str) -> bool:
        """Whether a stage of `kind` has this key."""
        return not self.kinds or kind in self.kinds

    def refusal(self, value: Any) -> str | None:
        """Why `value` cannot be set yet, or None."""
        return self.unsupported or (self.later if self.now is not None and value not in self.now else None)


@dataclass(frozen=True, slots=True)
class WeightGroup:
    """Tensors that load and move together. `bytes` is exactly what they hold when loaded as planned."""

    name: str
    bytes: int


_NOTHING = Literal(0)


@dataclass(frozen=True, slots=True)
class Cost:
    """Formulas over the shape of a request; names are bound by the pass that evaluates them.

    `kv_bytes_per_token` and `weights` are for the stated dtype. `activation_bytes` may use `batch` (slots or lanes),
    `tokens` (rows in one forward), `context`, `chunked` (whether an input comes in chunks), and `KEY_low` and
    `KEY_high` of a key that has a measure: the least and the most that a request can have of it. `flops_per_token` is
    for one token of one sequence.
    """

    weights: tuple[WeightGroup, ...] = ()
    kv_bytes_per_token: int = 0
    activation_bytes: Expr = _NOTHING
    flops_per_token: Expr = _NOTHING
    process_bytes: int = 0  # what its libraries add to a process that hosts it

    @property
    def weight_bytes(self) -> int:
        return sum(g.bytes for g in self.weights)


@dataclass(frozen=True, slots=True)
class StepCache:
    """A step cache that a denoise part can have. `threshold` is what it has unless told otherwise; `drift` says what
    was measured of it there, and is empty where nothing was. `state` is elements that a request in work keeps, over
    the names that `Cost.activation_bytes` may use."""

    kind: str  # first_block | tea
    threshold: float
    drift: str = ""
    state: Expr = _NOTHING


@dataclass(frozen=True, slots=True)
class Capture:
    """What the graphs of a part are made for: precisions, and the lengths to which texts are padded. `bytes` is device
    memory beside the activations, over the names that `Cost.activation_bytes` may use. `errors` says of a
    precision what was measured of it. Without lengths, a graph is of a call of the model as its library has it, whose
    repeated blocks can also be compiled where `compiles`."""

    precisions: tuple[str, ...]
    texts: tuple[int, ...] = ()
    bytes: Expr = _NOTHING
    errors: Mapping[str, str] = field(default_factory=dict)
    compiles: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A stage that a model can be: `lm.generate`, `voice.synthesize`."""

    name: str
    kind: str  # generate | decode | transform | python | denoise
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    keys: tuple[Key, ...] = ()
    cost: Cost = Cost()
    doc: str = ""
    max_context: int | None = None  # tokens, for parts that keep a KV cache
    unsupported: str | None = None  # why it cannot run yet; the checker says so
    costs: tuple[tuple[str, Cost], ...] = ()  # by precision; `cost` is that of the first
    devices: tuple[str, ...] = ("cpu", "gpu")  # kinds of device it can run on
    step_caches: tuple[StepCache, ...] = ()
    capture: Capture | None = None  # None: it can run eagerly alone
    # bytes of the repeated blocks of each of its transformers, in the order in which they run, by precision
    blocks: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = ()
    forward_flops: Expr = _NOTHING  # of one row, over the names that `Cost.activation_bytes` may use; 0: not known
    # what adapters may be of: by component, the shapes of its tensors (by pattern, with how many tensors fit it)
    adapts: Mapping[str, Mapping[str, tuple[int, tuple[int, ...]]]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def precisions(self) -> tuple[str, ...]:
        """What `precision` may be; empty where it is no choice."""
        return tuple(name for name, _ in self.costs)

    def cost_as(self, precision: str | None) -> Cost:
        """The cost when held in `precision`, one of `precisions`."""
        return dict(self.costs)[precision] if self.costs and precision else self.cost

    def blocks_as(self, precision: str | None) -> tuple[tuple[int, ...], ...]:
        """The blocks of each transformer when held in `precision`; none where not known."""
        return dict(self.blocks).get(precision or "", ())

    def input(self, name: str) -> Port | None:
        return next((p for p in self.inputs if p.name == name), None)

    def output(self, name: str) -> Port | None:
        return next((p for p in self.outputs if p.name == name), None)

    def key(self, name: str) -> Key | None:
        return next((k for k in self.keys if k.name == name), None)

    def wired(self, ports: Collection[str]) -> Part:
        """This part where these inputs are wired: without the keys that count only beside others."""
        return replace(self, keys=tuple(k for k in self.keys if k.port is None or k.port in ports))

    def with_types(self, values: Mapping[str, Any]) -> Part:
        """This part with the types that depend on keys written in; `values` are the stage's keys."""

        def bind(port: Port) -> Port:
            if port.type_key is None or port.type_key not in values:
                return port
            return replace(port, type=replace(port.type, args=(values[port.type_key],)), origin=f"`{port.type_key}`")

        return replace(self, inputs=tuple(map(bind, self.inputs)), outputs=tuple(map(bind, self.outputs)))


@dataclass(frozen=True, slots=True)
class Model:
    """A checkpoint, resolved without reading a weight."""

    family: str
    format: str  # safetensors | gguf | onnx | random
    parts: dict[str, Part]
    config: dict[str, Any] = field(default_factory=dict)
    files: tuple[File, ...] = ()
    root: str | None = None  # directory on this machine that holds `files`; None for shipped fixtures
    revision: str | None = None
    license: str = "unknown"
    origin: str = ""  # the file the numbers were read from
    digest: str = ""  # of the header: tensor names, shapes and dtypes
    adds: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of an adapter, by layer: rows, rank, columns
