"""Whether an engine computes what its module does: `held`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from omnic.runtime.engines.artefact import Proof
from omnic.runtime.engines.builder import Session
from omnic.runtime.engines.calls import Call, taken_apart
from omnic.runtime.errors import Stale

_BOUNDS = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 6e-2}
"""How far rounding may take a whole model, by the dtype that it computes in. A wrong layer is off by far more."""


class Unfaithful(Stale):
    """An engine gives something else than its module. One line with the difference and its bound."""


def held(session: Session, names: Sequence[str], module: nn.Module, call: Call, device: str) -> Proof:
    """Runs both on the tensors of `call`; `names` are the engine's outputs in the module's order. Raises Unfaithful
    past the bound of the module's dtype."""
    args, kwargs = call.around(call.tensors)
    with torch.inference_mode():
        expected, _ = taken_apart(module(*args, **kwargs))
        made = session.run(dict(zip(call.names, call.tensors, strict=True)))
    found = [made[name] for name in names]
    bound = _BOUNDS[next((p.dtype for p in module.parameters()), torch.float32)]
    error = distance(found, expected)
    if not error <= bound:
        raise Unfaithful(f"the engine is off by {error:.2g} of the largest value, and may be by {bound:.2g}")
    return Proof(error, bound, device)


def distance(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference between any two, over the largest value of the tensor it is in; infinite where shapes or
    what is finite differ."""
    if [f.shape for f in found] != [e.shape for e in expected]:
        return float("inf")
    worst = 0.0
    for one, other in zip(found, expected, strict=True):
        a, b = one.double(), other.double()
        if not bool(a.isfinite().all()) or not bool(b.isfinite().all()):
            return float("inf")
        if a.numel():
            scale = max(float(b.abs().max()), torch.finfo(torch.float32).tiny)
            worst = max(worst, float((a - b).abs().max()) / scale)
    return worst
