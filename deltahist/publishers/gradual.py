"""Gradual release: finer releases that cost what the last one does, and more private copies without the data.

A chain is a process of noise that is kept in a secret file, its state: whole or not at all, for its owner's eyes only.
"""

from __future__ import annotations

import contextlib
import functools
import json
import secrets
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from deltahist._files import check_creatable, check_format, check_secret, exclusive, write_whole
from deltahist._memory import check_memory
from deltahist.budget import Budget
from deltahist.errors import DamagedFile, InputError
from deltahist.kinds import SortedMechanism, SortedRelease, parse_release
from deltahist.mechanisms import Mechanism
from deltahist.mechanisms.base import BaseMechanism, Chain
from deltahist.noise.samplers import Refinable, sampler_of
from deltahist.preprocessing import normalize_name
from deltahist.privacy import Law
from deltahist.publishers.publication import amounts_for, check_protection, publish_measured
from deltahist.releases import BaseRelease, Release

if TYPE_CHECKING:
    from deltahist.accounts.window import Account

Draws = NDArray[np.int64]
_Release = TypeVar("_Release", bound=Release | SortedRelease)

#: Name of the file format of a chain, and version of all states; older ones stay readable.
_FORMAT, _VERSION = "deltahist-state", 1
#: Name of the description among the arrays.
_DESCRIPTION = "description"


def begin(
    make: Callable[..., _Release],
    mechanism: Mechanism | SortedMechanism,
    measured: Draws,
    path: str | Path,
    *,
    account: Account | None,
    rng: np.random.Generator | None,
) -> _Release:
    """Publish the first release of a chain, whose state, a new file, is written before the release is handed out."""
    if mechanism.step is not None:
        raise InputError("state is given with the step of a stream: its steps cannot be refined")
    check_new(path)
    first = mechanism.with_chain(Chain(new_token(), (mechanism.budget.amount,)))
    return _publish_kept(make, first, measured, path, None, account=account, rng=rng)


def _publish_kept(
    make: Callable[..., _Release],
    mechanism: BaseMechanism,
    measured: Draws,
    path: str | Path,
    before: State | None,
    *,
    account: Account | None,
    rng: np.random.Generator | None,
) -> _Release:
    """Publish a release of a chain, and keep its noise in its state; `before` is that of the release before."""
    assert mechanism.chain is not None
    name, draws = mechanism.chain.name, np.zeros(0, dtype=np.int64)

    def noise() -> Draws:
        nonlocal draws
        draws = draw_chain(mechanism, before, rng)
        return released_noise(mechanism, draws)

    release = publish_measured(
        make,
        mechanism,
        measured,
        account=account,
        rng=rng,
        noise=noise,
        facts={"chain": name} | ({} if before is None else {"token": before.token, "source": before.source}),
        publishable=before is None or before.release.publishable,
    )
    state = State(release, draws, source=None if before is None else before.token)
    state.write(path, new=before is None)
    if account is not None:
        account.settle_chain(name, state.token, state.source)
    return release


def refine(
    release: BaseRelease | None,
    state: str | Path,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    weak_protection_accepted: bool = False,
    account: Account | None = None,
    rng: np.random.Generator | None = None,
) -> Any:
    """Publish a finer release of the same data: all releases of the chain together cost what this one does.

    The data are not needed: the state, which `publish(..., state=)` wrote, holds the noise, and that is refined.
    The error is that of a single release at the last budget. A process that ends between writing the state and
    saving the release loses nothing: ask again for the same budget, and the same release comes out.
    Each release is A c + R(V_ε), V_ε one path of noise: its value at the new ε is drawn given the one at the last.
    Source, on the integers: 2015, Theorem 1, eq. (1), (3), Theorem 12, eq. (36); 2015 abstract, Theorem 1, eq. (1),
    Theorem 2, eq. (4). Proof: docs/privacy/gradual.md.

    Parameters
    ----------
    release : the last release of the chain; None takes it from the state.
    state : file of the state, which then belongs to the new release.
    epsilon, rho : of the new release, in the unit of the chain; more than before.
    weak_protection_accepted : as for `publish`.
    account : pays the difference; the one that paid for the chain's first release, if one did.
    rng : a seeded generator, for experiments only: the release is stamped not for publication.

    Returns
    -------
    Release or SortedRelease, as the release is.

    Raises
    ------
    BudgetExceeded
        If the account has less left than the difference.
    DamagedFile
        If the state is truncated or altered.
    InputError
        If the state is missing, in use, of another chain or not the last one; on a budget that is not larger, or in
        the other unit; if hardly anything would be protected. Nothing is drawn or charged then.

    >>> import tempfile, deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rough = dh.publish(np.arange(8), near, epsilon=1, state=f"{folder}/line.state")
    ...     fine = dh.refine(rough, f"{folder}/line.state", epsilon=2)
    >>> fine.guarantee.epsilon, fine.total
    (Fraction(2, 1), 28)
    """
    with lock_state(state) as known:
        given = known.release if release is None else release
        budget = Budget(**amounts_for(account, epsilon=epsilon, rho=rho))
        chain = _chain_of(given, known, state)
        if budget.unit != given.mechanism.budget.unit:
            raise InputError(f"{budget.unit} is given, but the chain spends {given.mechanism.budget.unit}")
        _check_account(known.release, account)
        if chain != known.chain:  # the state went on, and maybe its release was never saved
            return _once_more(known, chain, budget.amount, account)
        finer = known.mechanism.with_chain(chain.finer(budget.amount, budget.unit))
        check_protection(finer, weak_protection_accepted, rng)
        check_refines(known, finer)
        measured = known.release.values - released_noise(known.mechanism, known.draws)
        make = functools.partial(replace, known.release)
        return _publish_kept(make, finer, measured, state, known, account=account, rng=rng)


def once_more(state: str | Path, *, account: Account | None = None) -> Any:
    """Return the release of a state once more: where a run ended before it was saved, or its file was lost.

    The account that paid for the chain, if one did, must know of this state before the release is handed out: a copy of
    the state before may have gone another way. Raises InputError if that is so, or as `refine` on the state.
    """
    with lock_state(state) as known:
        _check_account(known.release, account)
        return _settled(known, account)


def tighten(
    release: BaseRelease,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    state: str | Path | None = None,
    rng: np.random.Generator | None = None,
) -> Any:
    """Make a more private copy of a release, as if it had been released at that budget.

    The data are not needed, and nothing is spent: further noise is added to the published numbers. Several
    copies, and the release with them, cost what the release does.
    Source: 2015, section 3.1.2, eq. (29), on the integers. Proof: docs/privacy/gradual.md.

    Parameters
    ----------
    release : of counts or of sorted points.
    epsilon, rho : of the copy, in the unit of the release; less than its own.
    state : of the release's chain, after that release. It is needed for flows with sums along the lines,
        since those are joined to the flows by rounding, which the release does not keep, and for Gaussian noise too
        small for whole numbers.
    rng : a seeded generator, for experiments only: the copy is stamped not for publication.

    Returns
    -------
    Release or SortedRelease, as the release is.

    Raises
    ------
    InputError
        On a budget that is not smaller, or in the other unit; on quantiles; on a release that needs a state; on a
        state of another release.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
    >>> release = dh.publish(np.arange(8), near, strategy="identity", epsilon=2)
    >>> tighten(release, epsilon=1).guarantee.epsilon
    Fraction(1, 1)
    """
    if not isinstance(release, Release | SortedRelease):
        raise InputError(
            f"a {type(release).__name__} is given: releases of counts and of sorted points can be tightened"
        )
    mechanism, budget = release.mechanism, Budget(epsilon, rho)
    if budget.unit != mechanism.budget.unit:
        raise InputError(f"{budget.unit} is given, but the release spent {mechanism.budget.unit}")
    if not budget.amount < mechanism.budget.amount:
        raise InputError(
            f"{budget.unit} is {float(budget.amount):.10g}, but the release has "
            f"{float(mechanism.budget.amount):.10g}: a more private copy has less"
        )
    before = mechanism.chain
    if before is not None and before.copied is not None and (state is not None or not mechanism.scatters_linearly):
        raise InputError(
            "the release is a more private copy, whose noise no state holds: tighten the release that it was made of"
        )
    history = Chain("", (mechanism.budget.amount,), budget.amount, release.digest) if before is None else before
    origin = history.origin or release.digest  # a copy of a copy is one of the first release
    coarser = mechanism.with_chain(replace(history, copied=budget.amount, origin=origin))
    if state is None:
        values = release.values + mechanism.scatter(_further(mechanism, coarser, rng))
    else:
        known = State.load(state)
        if _chain_of(release, known, state) != known.chain:
            raise InputError(
                f"state {str(state)!r} is of release {known.chain.number} of its chain, and an earlier one is given: "
                "copies are made of the last one"
            )
        draws = draw_chain(coarser, known, rng)
        values = release.values - released_noise(known.mechanism, known.draws) + released_noise(coarser, draws)
    changed: dict[str, Any] = {"mechanism": coarser, "values": values}
    return replace(release, **changed, publishable=release.publishable and rng is None)


def _further(
    mechanism: Mechanism | SortedMechanism, coarser: Mechanism | SortedMechanism, rng: np.random.Generator | None
) -> NDArray[np.int64]:
    """Draw noise (draws,) that can be added to published numbers, whose own draws are not known."""
    if not mechanism.scatters_linearly:
        raise InputError(
            f"the release is of {mechanism.words}: it does not keep what further noise would have to be added to; "
            "give its state, or publish a release at that budget"
        )
    noise = np.zeros(mechanism.draws, dtype=np.int64)
    for (members, law), (_, wider) in zip(mechanism.noise_groups, coarser.noise_groups, strict=True):
        if law.parameter:
            size = len(noise[members])
            noise[members] = sampler_of(law).draw_addition(1 / law.parameter, 1 / wider.parameter, size, rng=rng)
    return noise


def _chain_of(release: BaseRelease, known: State, state: str | Path) -> Chain:
    """Return the chain of a release, which the state must belong to."""
    chain, last = release.mechanism.chain, known.chain
    if chain is None or not chain.name:
        raise InputError("the release is in no chain: only one that was published with state= can be refined")
    if chain.copied is not None:
        chain.finer(chain.amounts[-1] + 1)  # says why not
    problem = ""
    if chain.name != last.name:
        problem = f"belongs to chain {last.name}, but the release is of chain {chain.name}: take the state of that one"
    elif chain.number > last.number:
        problem = (
            f"is of release {last.number} of its chain, and release {chain.number} is given: it is an old copy, whose "
            "noise has been refined already; take the state that was written last"
        )
    elif chain == last and not (
        release.describe() == known.release.describe() and np.array_equal(release.values, known.release.values)
    ):
        problem = "and the release hold other numbers: one of them was altered"
    if problem:
        raise InputError(f"state {str(state)!r} {problem}; nothing was drawn or spent")
    return chain


def _once_more(known: State, chain: Chain, amount: Fraction, account: Account | None) -> BaseRelease:
    """Return the state's own release, if it is the next one at that amount."""
    last = known.chain
    if last.amounts != (*chain.amounts, amount):
        raise InputError(
            f"release {chain.number} of chain {chain.name} was refined already, up to {float(last.amounts[-1]):.10g}: "
            f"go on with release {last.number}, which the state holds, too; nothing was drawn or spent"
        )
    return _settled(known, account)


def _settled(known: State, account: Account | None) -> BaseRelease:
    """Return the state's own release, after its account knows of the state: an earlier run may have ended before."""
    if account is not None and known.release.payment is not None:
        account.settle_chain(known.chain.name, known.token, known.source)
    return known.release


def check_payer(release: BaseRelease, name: str | None) -> None:
    """Raise InputError unless the account that paid for a chain goes on paying: it would say too little."""
    paid = None if release.payment is None else release.payment.account
    if paid is not None and (name is None or normalize_name(account=name) != paid):
        given = "ledger and account are missing" if name is None else f"account is {name!r}"
        raise InputError(f"{given}: account {paid!r} paid for this chain, and must pay for what follows, too")


def _check_account(release: BaseRelease, account: Account | None) -> None:
    """Raise InputError unless the account, and the ledger, that paid for a chain go on paying."""
    check_payer(release, None if account is None else account.name)
    paid, chain = release.payment, release.mechanism.chain
    if paid is not None and account is not None and chain is not None and not account.read_paid(chain.name):
        raise InputError(
            f"account {paid.account!r} paid for this chain, but the one that is given has paid nothing for it: take "
            "the ledger that paid"
        )


def draw_chain(mechanism: BaseMechanism, before: State | None, rng: np.random.Generator | None) -> Draws:
    """Draw noise (draws,) of a release, given the state of another one of its chain; None for the first.

    Gaussian noise is in steps of its lattice.
    """
    out = np.zeros(mechanism.draws, dtype=np.int64)
    for place, (members, law) in enumerate(mechanism.noise_groups):
        if not law.parameter:
            continue
        path, level = _path_of(mechanism, law), 1 / law.parameter
        if before is None:
            out[members] = path.start(level, len(out[members]), rng=rng)
        else:
            known = 1 / before.mechanism.noise_groups[place][1].parameter
            move = path.refine if known < level else path.tighten
            out[members] = move(before.draws[members], known, level, rng=rng)
    return out


def check_refines(known: State, finer: BaseMechanism) -> None:
    """Try to refine a zero before anything is charged: InputError if noise cannot be refined so far, or so little."""
    for (_, law), (_, other) in zip(known.mechanism.noise_groups, finer.noise_groups, strict=True):
        if law.parameter:
            _path_of(finer, other).refine(np.zeros(1, dtype=np.int64), 1 / law.parameter, 1 / other.parameter)


def released_noise(mechanism: BaseMechanism, draws: Draws) -> Draws:
    """Return what the draws of a release add to its numbers."""
    noise = draws.copy()
    for members, law in mechanism.noise_groups:
        if law.parameter:
            noise[members] = _path_of(mechanism, law).round_values(draws[members])
    return mechanism.scatter(noise)


def _path_of(mechanism: BaseMechanism, law: Law) -> Refinable:
    """Return the process of a law; Gaussian noise lies on the lattice of the first release."""
    chain = mechanism.chain
    assert chain is not None
    path = sampler_of(law, chain.amounts[0] / chain.amount / law.parameter)
    assert isinstance(path, Refinable)
    return path


def new_token() -> str:
    """Return a name that tells a writing from all others: 32 hexadecimal digits."""
    return secrets.token_hex(16)


def write_state(
    path: Path,
    form: str,
    description: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    token: str,
    *,
    new: bool = False,
) -> None:
    """Write a state of a form, durably; its token tells this writing from all others.

    Raises InputError if the folder cannot be written, or if the state is `new` and there is one already.
    """
    said = {"format": form, "version": _VERSION, "token": token, **description}
    named = {_DESCRIPTION: np.frombuffer(json.dumps(said).encode(), dtype=np.uint8), **arrays}

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.savez(file, allow_pickle=False, **named)

    if not write_whole(path, write, secret=True, replace=not new):
        _refuse_existing(path)


def _refuse_existing(path: str | Path) -> None:
    raise InputError(
        f"state {str(path)!r} exists already: it belongs to something else, and is never overwritten; name a new file, "
        "or go on with that one (`refine`)"
    )


def check_new(path: str | Path) -> None:
    """Raise InputError unless a new state can be written."""
    if Path(path).exists():
        _refuse_existing(path)
    check_creatable(path)


def read_state(path: Path, form: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]], str]:
    """Read description, arrays and token of a state.

    Raises InputError if there is no such file, others than its owner can read it, or it is of a newer version;
    DamagedFile if it is truncated, of another form or something else.
    """
    if not path.is_file():
        raise InputError(f"state {str(path)!r} does not exist: nothing can go on without the one that was written")
    if zipfile.is_zipfile(path):  # what is no state is called that, not a state that others can read
        check_secret(path, "state")
        if path.stat().st_nlink > 1:
            raise InputError(
                f"state {str(path)!r} has {path.stat().st_nlink} names (hard links), and each would refine the same "
                f"noise: leave one (`find FOLDER -samefile {str(path)!r}` shows them); nothing was drawn or spent"
            )
    try:
        with zipfile.ZipFile(path) as parts:
            check_memory(sum(part.file_size for part in parts.infolist()), f"state {str(path)!r}")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        description = json.loads(arrays.pop(_DESCRIPTION).tobytes())
        check_format(description, str(path), form=form, version=_VERSION)
        return description, arrays, str(description["token"])
    except InputError:
        raise
    except Exception as problem:  # NumPy reads headers as programs are read, and stumbles in as many ways
        raise DamagedFile(
            f"state {str(path)!r} is truncated or no state: {problem}; nothing was drawn or spent"
        ) from None


@dataclass(frozen=True, eq=False)
class State:
    """The noise in a release, which refines it. Whoever has it can take the noise away, and sees the data.

    The file holds the last release of its chain too, so that nothing is lost where a process ends between writing the
    two. It is readable by its owner alone.

    Parameters
    ----------
    release : the last release of the chain. draws : (draws,) its noise; private.
    token : names this state in ledgers; another one for each release of the chain. source : token of the state that it
        came of; None for the first.
    """

    release: Release | SortedRelease
    draws: NDArray[np.int64] = field(repr=False)
    token: str = field(repr=False, default_factory=new_token)
    source: str | None = field(repr=False, default=None)

    def __repr__(self) -> str:
        return f"State(release {self.chain.number} of chain {self.chain.name})"

    @property
    def chain(self) -> Chain:
        """The place of its release in the chain."""
        assert self.mechanism.chain is not None
        return self.mechanism.chain

    @property
    def mechanism(self) -> Mechanism | SortedMechanism:
        """The release but its numbers."""
        return self.release.mechanism

    @classmethod
    def load(cls, path: str | Path) -> State:
        """Read a state; raises as `read_state`, and DamagedFile if the file contradicts itself."""
        description, arrays, token = read_state(Path(path), _FORMAT)
        try:
            release, draws = parse_release(arrays["release"].tobytes(), path), arrays["draws"]
        except KeyError as problem:
            raise DamagedFile(f"state {str(path)!r} contradicts itself: it has no {problem}") from None
        chain, number = release.mechanism.chain, release.mechanism.draws
        if chain is None or chain.copied is not None or not isinstance(release, Release | SortedRelease):
            raise DamagedFile(f"state {str(path)!r} holds a release that is in no chain")
        if draws.shape != (number,) or draws.dtype != np.int64:
            raise DamagedFile(
                f"state {str(path)!r} has draws of shape {draws.shape} and type {draws.dtype}: there must be "
                f"{number:,} int64"
            )
        return cls(release, draws, token, description.get("source"))

    def write(self, path: str | Path, *, new: bool) -> None:
        """Write the state, durably: `new`, or in the place of the one before, which is locked meanwhile."""
        content = np.frombuffer(self.release.to_bytes(), dtype=np.uint8)
        arrays: dict[str, NDArray[Any]] = {"release": content, "draws": self.draws}
        write_state(Path(path), _FORMAT, {"source": self.source}, arrays, self.token, new=new)


@contextlib.contextmanager
def lock_state(path: str | Path) -> Iterator[State]:
    """Yield a state that no other process refines meanwhile."""
    if not Path(path).is_file():
        State.load(path)  # says what is missing
    with exclusive(Path(path), "state"):
        yield State.load(path)
