"""Noise schedules: a scheduler of diffusers, with the state of one request."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor

from omnic.runtime.errors import RequestError
from omnic.runtime.latents import noise

if TYPE_CHECKING:
    from omnic.runtime.diffusion import Ask


_LINEAR = 1e-5  # relative error up to which a step counts as a sum of two: schedulers work in float32


class Schedule:
    """The steps of one request, from noise to picture. State (step index, earlier predictions) is this object's own.

    Built from the `scheduler_config.json` of a checkpoint; `options` are arguments of the scheduler's
    `set_timesteps`, such as `sigmas` or `mu`. Raises RequestError for less than one step, ValueError for a scheduler
    that diffusers lacks, or options that it does not take.
    """

    def __init__(self, config: Mapping[str, Any], steps: int, **options: Any) -> None:
        _require(steps)
        import diffusers

        name = str(config["_class_name"])
        kind = getattr(diffusers, name, None)
        if kind is None:
            raise ValueError(f"diffusers has no scheduler `{name}`")
        if steps == 1 and config.get("shift_terminal") is not None:
            # stretching puts the last step at a given noise; the only one is the first too, which is all noise (0 / 0)
            config = {**config, "shift_terminal": None}
        self._scheduler = kind.from_config(dict(config))
        if "sigmas" in options:
            self._scheduler.set_timesteps(device="cpu", **options)
        else:
            self._scheduler.set_timesteps(steps, device="cpu", **options)
        if hasattr(self._scheduler, "set_begin_index"):
            self._scheduler.set_begin_index(0)
        self.timesteps: Tensor = self._scheduler.timesteps
        self._asked = steps
        taken = inspect.signature(self._scheduler.step).parameters
        self._takes_generator = "generator" in taken
        self._takes_clean = "old_pred_original_sample" in taken  # CogVideoX's solver, which leaves its state to others
        self._clean: Tensor | None = None

    def __len__(self) -> int:
        return len(self.timesteps)

    @property
    def first_sigma(self) -> float:
        """What pure noise is multiplied with to begin."""
        return float(getattr(self._scheduler, "init_noise_sigma", 1.0))

    @property
    def sigmas(self) -> Tensor:
        return self._scheduler.sigmas  # type: ignore[no-any-return]  # diffusers has no types

    @property
    def config(self) -> Mapping[str, Any]:
        return self._scheduler.config  # type: ignore[no-any-return]

    def begin_at(self, steps: int) -> None:
        """Leaves out the first `steps` of those asked for: a picture is changed rather than made."""
        index = steps * int(getattr(self._scheduler, "order", 1))  # some schedulers take a step in two
        self.timesteps = self.timesteps[index:]
        self._scheduler.set_begin_index(index)

    @property
    def asked(self) -> int:
        """How many steps were asked for."""
        return self._asked

    def noised(self, clean: Tensor, noise: Tensor) -> Tensor:
        """`clean` with as much of `noise` as belongs to the first step."""
        if hasattr(self._scheduler, "scale_noise"):
            return self._scheduler.scale_noise(clean, self.timesteps[:1], noise)  # type: ignore[no-any-return]
        return self._scheduler.add_noise(clean, noise, self.timesteps[:1])  # type: ignore[no-any-return]

    def scaled(self, step: int, x: Tensor) -> Tensor:
        """x as the model wants to see it at a step."""
        if hasattr(self._scheduler, "scale_model_input"):
            return self._scheduler.scale_model_input(x, self.timesteps[step])  # type: ignore[no-any-return]
        return x

    def advance(self, step: int, prediction: Tensor, x: Tensor, generator: Generator) -> Tensor:
        """x after a step, from the model's prediction of the same shape. Steps are taken in order, each once."""
        more = {"generator": generator} if self._takes_generator else {}
        if self._takes_clean:
            before = self.timesteps[step - 1] if step else None
            found = self._scheduler.step(
                prediction, self._clean, self.timesteps[step], before, x, **more, return_dict=False
            )
            self._clean = found[1]
        else:
            found = self._scheduler.step(prediction, self.timesteps[step], x, **more, return_dict=False)
        advanced: Tensor = found[0]
        return advanced

    @functools.cached_property
    def line(self) -> tuple[tuple[float, float], ...] | None:
        """Of each step, the factors of x and of the prediction whose sum the next x is; None for a scheduler that
        looks further back, draws noise or scales what the model sees. Tried out on a copy with unrelated numbers."""
        scheduler = copy.deepcopy(self._scheduler)
        generator = Generator("cpu").manual_seed(0)
        found = []
        if (self._takes_generator and self.config.get("stochastic_sampling")) or self._takes_clean:
            return None
        for timestep in self.timesteps:
            x, prediction = torch.randn(2, 1, 64, generator=generator, dtype=torch.float64)
            if hasattr(scheduler, "scale_model_input") and not scheduler.scale_model_input(x, timestep).equal(x):
                return None
            after = scheduler.step(prediction, timestep, x, return_dict=False)[0].double()
            both = torch.cat([x, prediction]).T
            factors = torch.linalg.lstsq(both, after.T).solution
            if float((both @ factors - after.T).norm() / after.norm()) > _LINEAR:
                return None
            found.append((float(factors[0]), float(factors[1])))
        return tuple(found)

    def ahead(self, taken: int, before: Tensor, after: Tensor) -> Tensor:
        """A guess at x without noise from x before the last of `taken` steps and after it: the line through both,
        followed to where no noise is left. `after` itself where the scheduler does not add noise in proportion to its
        sigmas. Asks nothing of the scheduler's own count: a graph takes steps without it."""
        kind, config = type(self._scheduler).__name__, self.config
        flows = config.get("prediction_type") == "flow_prediction"
        if kind not in ("FlowMatchEulerDiscreteScheduler", "EulerDiscreteScheduler") and not flows:
            return after
        index = int(self._scheduler.begin_index) + taken
        last, now = float(self.sigmas[index - 1]), float(self.sigmas[index])
        return after if last == now else after + (before - after) * (now / (now - last))


def _require(steps: int) -> None:
    if steps < 1:
        raise RequestError(f"{steps} steps make nothing; it takes 1 or more", "num_inference_steps")


def shift_of(tokens: int, config: Mapping[str, Any]) -> float:
    """`mu` for flow matching with dynamic shifting: linear in the number of latent tokens, between the base and the
    maximum of the scheduler's config (Esser et al., "Scaling Rectified Flow Transformers", 2024, section 5.3.2)."""
    low, high = config.get("base_image_seq_len", 256), config.get("max_image_seq_len", 4096)
    least, most = config.get("base_shift", 0.5), config.get("max_shift", 1.15)
    slope = (most - least) / (high - low)
    return float(tokens * slope + least - slope * low)


def even_sigmas(steps: int) -> Sequence[float]:
    """Sigmas from 1 to 1/steps, evenly. Raises RequestError for less than one step."""
    _require(steps)
    import numpy as np

    return np.linspace(1.0, 1 / steps, steps)  # type: ignore[return-value]  # what diffusers takes


def flowing(config: Mapping[str, Any], steps: int, tokens: int) -> Schedule:
    """The schedule of most flow matching models: sigmas spread evenly, then shifted by the number of latent tokens
    where the scheduler's config asks for that."""
    return Schedule(config, steps, sigmas=even_sigmas(steps), mu=shift_of(tokens, config))


def started(
    schedule: Schedule,
    shape: Sequence[int],
    generator: Generator,
    ask: Ask,
    pack: Callable[[Tensor], Tensor] = lambda x: x,
    *,
    whole: bool = False,
) -> Tensor:
    """Where a request begins: noise of `shape`, packed; or, with latents at the port `latents`, those of its picture
    with as much noise as `strength` asks for, in which case `schedule` leaves out its first steps.

    Where strength asks for a fraction of a step, that step is taken, unless `whole`. The noise goes on where the
    encoder of the picture stopped drawing. Raises RequestError for a strength so small that no step is left, or one
    below 1 without a picture.
    """
    given = ask.inputs.get("latents")
    if given is None:
        if float(ask.settings.get("strength", 1.0)) != 1.0:
            raise RequestError("strength is how much of a picture to change, and none was given", "strength")
        return pack(noise(shape, generator)) * schedule.first_sigma
    if (state := given.facts.get("drawn")) is not None:
        generator.set_state(state)
    strength, count = float(ask.settings["strength"]), schedule.asked
    taken = min(count * strength, count)
    left_out = count - int(taken) if whole else int(count - taken)
    if left_out == count:
        raise RequestError(f"strength {strength:g} of {count} steps leaves none to take", "strength")
    schedule.begin_at(left_out)
    clean = given.values if given.values.ndim == len(shape) else given.values[:, :, 0]
    return schedule.noised(pack(clean.float()), pack(noise(shape, generator)))
