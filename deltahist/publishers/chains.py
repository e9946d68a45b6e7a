"""A chain of releases: its first one, and the noise of each from that of the one before."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from deltahist.budget import Payment
from deltahist.budgets.window import Account
from deltahist.errors import InputError
from deltahist.kinds import SortedMechanism, SortedRelease
from deltahist.mechanisms import Mechanism
from deltahist.mechanisms.base import vouched
from deltahist.mechanisms.chain import Additive, Chain
from deltahist.noise.process import Brownian, GeometricProcess, Process
from deltahist.privacy import Law
from deltahist.publishers.state import State, check_new
from deltahist.releases import Release
from deltahist.strategies.base import Members

Draws = NDArray[np.int64]
_Mechanism = TypeVar("_Mechanism", Mechanism, SortedMechanism)
_Release = TypeVar("_Release", Release, SortedRelease)


def begin(
    mechanism: _Mechanism,
    path: str | Path,
    account: Account | None,
    rng: np.random.Generator | None,
    release: Callable[[_Mechanism, Draws, Payment | None], _Release],
) -> _Release:
    """Publish the first release of a chain: charge, draw, write the state, and only then hand out the release.

    Parameters
    ----------
    mechanism : what is published; it gets the chain. path : of the state, a new file.
    release : makes it of the mechanism, what the noise adds to its numbers, and what paid.
    """
    if mechanism.step is not None:
        raise InputError(
            "state is given with the step of a stream: its steps cannot be refined; publish them by themselves"
        )
    check_new(path)
    mechanism = mechanism.in_chain(Chain(secrets.token_hex(16), (mechanism.budget.amount,)))
    assert mechanism.chain is not None
    name = mechanism.chain.name
    payment = None if account is None else account.pay(mechanism.guarantee, chain=name)
    draws = start_draws(mechanism, rng)
    out = vouched(release(mechanism, entering(mechanism, draws), payment), rng is None)
    state = State(out, draws)
    state.begin(path)
    if account is not None:
        account.settle(name, state.token)
    return out


def start_draws(mechanism: Additive, rng: np.random.Generator | None) -> Draws:
    """Noise (draws,) of the first release; private, Gaussian noise in steps of its lattice."""
    out = np.zeros(mechanism.draws, dtype=np.int64)
    for members, law in mechanism.noise_groups:
        if law.parameter:
            out[members] = process_of(mechanism, law).start(_level(law), len(out[members]), rng=rng)
    return out


def refine_draws(before: Additive, after: Additive, draws: Draws, rng: np.random.Generator | None) -> Draws:
    """Noise (draws,) of the next release, given that of the one before."""
    out = np.zeros_like(draws)
    for members, process, level, finer in _moves(before, after):
        out[members] = process.refine(draws[members], level, finer, rng=rng)
    return out


def check_refines(before: Additive, after: Additive) -> None:
    """InputError if noise cannot be refined so far, or so little: a trial on a zero, before anything is charged."""
    for _, process, level, finer in _moves(before, after):
        process.refine(np.zeros(1, dtype=np.int64), level, finer)


def tighten_draws(before: Additive, after: Additive, draws: Draws, rng: np.random.Generator | None) -> Draws:
    """Noise (draws,) of a more private copy, given that of the release."""
    out = np.zeros_like(draws)
    for members, process, level, coarser in _moves(before, after):
        out[members] = process.tighten(draws[members], level, coarser, rng=rng)
    return out


def entering(mechanism: Additive, draws: Draws) -> Draws:
    """What the draws of a release add to its numbers."""
    noise = draws.copy()
    for members, law in mechanism.noise_groups:
        if law.parameter:
            noise[members] = process_of(mechanism, law).nearest(draws[members])
    return mechanism.entering(noise)


def _moves(before: Additive, after: Additive) -> Iterator[tuple[Members, Process, Fraction, Fraction]]:
    """From one release to another: which draws, their process, its level there and here; where there is noise."""
    for (members, law), (_, other) in zip(before.noise_groups, after.noise_groups, strict=True):
        if law.parameter:
            yield members, process_of(before, law), _level(law), _level(other)


def process_of(mechanism: Additive, law: Law) -> Process:
    """The process that noise of a law is taken from; Gaussian noise lies on the lattice of the first release."""
    if law.kind == "laplace":
        return GeometricProcess()
    assert mechanism.chain is not None
    chain = mechanism.chain
    return Brownian.at(_level(law) * chain.amounts[0] / chain.amount)


def _level(law: Law) -> Fraction:
    """1/scale of Laplace, 1/σ² of Gaussian noise."""
    return 1 / law.parameter
