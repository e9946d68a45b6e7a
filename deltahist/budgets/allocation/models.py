"""Models of weights that are not known yet: independent, Markov, or a caller's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deltahist.budgets.allocation.windows import check_weights
from deltahist.errors import InputError, is_number

Weights = NDArray[np.float64]
Sampler = Callable[[Weights, int, int, np.random.Generator], Weights]


class Model(Protocol):
    """Draws what may come after the weights so far."""

    def sample(self, weights: Weights, steps: int, scenarios: int, rng: np.random.Generator) -> Weights:
        """Future weights (scenarios, steps), given the weights (i,) up to now."""


@dataclass(frozen=True)
class Independent:
    """Weights that do not depend on each other.

    Parameters
    ----------
    values : what a weight can be. probabilities : of each; they add up to 1.

    >>> model = Independent((0, 1), (0.25, 0.75))
    >>> model.sample(np.ones(3), 5, 2, np.random.default_rng(0)).shape
    (2, 5)
    """

    values: tuple[float, ...] = (0.0, 1.0)
    probabilities: tuple[float, ...] = (0.5, 0.5)

    def __post_init__(self) -> None:
        check_weights(self.values, "values")
        _check_chances(np.asarray(self.probabilities, dtype=np.float64), len(self.values), "probabilities")

    def sample(self, weights: Weights, steps: int, scenarios: int, rng: np.random.Generator) -> Weights:
        """Independent draws (scenarios, steps)."""
        return rng.choice(
            np.asarray(self.values, np.float64), (scenarios, steps), p=_normal(self.probabilities)
        )


@dataclass(frozen=True)
class Markov:
    """Weights of which each depends on the one before.

    Parameters
    ----------
    values : (k,) different values. transitions : (k, k), row i the probabilities of what follows values[i].

    >>> model = Markov((0, 1), ((0.9, 0.1), (0.5, 0.5)))
    >>> model.sample(np.array([1.0]), 4, 3, np.random.default_rng(0)).shape
    (3, 4)
    """

    values: tuple[float, ...]
    transitions: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        values = check_weights(self.values, "values")
        if len(np.unique(values)) < len(values) or not len(values):
            raise InputError(f"values are {self.values}: they must be different, at least one")
        if len(self.transitions) != len(values):
            raise InputError(
                f"transitions have {len(self.transitions)} rows: one for each of {len(values)} values"
            )
        for row in self.transitions:
            _check_chances(np.asarray(row, dtype=np.float64), len(values), "a row of transitions")

    def sample(self, weights: Weights, steps: int, scenarios: int, rng: np.random.Generator) -> Weights:
        """Chains (scenarios, steps) that go on from the last weight.

        Raises InputError if the last weight is none of the values.
        """
        values = np.asarray(self.values, dtype=np.float64)
        at = np.flatnonzero(values == weights[-1])
        if not len(at):
            raise InputError(f"weight {weights[-1]:g} is none of the model's values, {self.values}")
        upto = np.cumsum([_normal(row) for row in self.transitions], axis=1)
        state = np.full(scenarios, at[0])
        out = np.empty((scenarios, steps))
        for step in range(steps):
            state = np.minimum((rng.random(scenarios)[:, None] >= upto[state]).sum(axis=1), len(values) - 1)
            out[:, step] = values[state]
        return out


def futures(
    model: Model | Sampler | float, weights: Weights, steps: int, scenarios: int, rng: np.random.Generator
) -> Weights:
    """What a model draws (scenarios, steps), checked.

    A number is the probability of weight 1, independently at each step; else the weight is 0.

    Raises InputError if it is neither a model nor a function, or draws something else than weights.
    """
    if is_number(model):
        model = Independent((0.0, 1.0), (1 - float(model), float(model)))  # type: ignore[arg-type]
    draw = getattr(model, "sample", model)
    if not callable(draw):
        raise InputError(
            f"model is {model!r}: it must be Independent, Markov, an object with sample(weights, steps, "
            "scenarios, rng), or such a function"
        )
    drawn = np.asarray(draw(weights.copy(), steps, scenarios, rng), dtype=np.float64)
    if drawn.shape != (scenarios, steps):
        raise InputError(
            f"model draws shape {drawn.shape}: it must be (scenarios, steps) = {(scenarios, steps)}"
        )
    check_weights(drawn.ravel(), "weights that the model draws")
    return drawn


def _check_chances(chances: Weights, number: int, name: str) -> None:
    if chances.shape != (number,) or not (chances >= 0).all() or abs(float(chances.sum()) - 1) > 1e-9:
        raise InputError(
            f"{name} are {chances.tolist()}: they must be {number} numbers from 0 that add up to 1"
        )


def _normal(chances: tuple[float, ...]) -> Weights:
    array = np.asarray(chances, dtype=np.float64)
    return np.asarray(array / array.sum())
