"""Every entry point of noise draws from the system's entropy, unless a seeded generator is given.

An entry point is a public function or method of the private rooms that takes `rng`. Two calls are alike by chance with
a probability below 1e-9 each.
"""

import dataclasses
import functools
import importlib
import inspect
import os
import pkgutil
import shutil
import types
from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.network.clients import Clients
from deltahist.network.diffusion import Diffusion
from deltahist.network.rappor import Rappor
from deltahist.noise import exact, samplers
from deltahist.publishers import publication
from tests.personal.city import city

SQUARE = dh.Neighbourhood(dh.Domain((0, 0, 8, 8), (8, 8)), 1)
LINE = dh.Neighbourhood(dh.Domain((0, 64), (64,)), 1)
COUNTS, POINTS = np.arange(64).reshape(8, 8), np.linspace(0.5, 63.5, 200)
TEXTS = ["cafe", "museum"] * 100
REPORTING = Rappor(f=0.8, p=0.3, q=0.7)
UNITS = {"Laplace": {"epsilon": 0.01}, "Gaussian": {"rho": 0.001}}
WEAK = {"weak_protection_accepted": True}


def new_path(folder, suffix):
    return folder / f"{len(list(folder.iterdir()))}.{suffix}"


def histogram_at(**amount):
    return dh.Mechanism(SQUARE, dh.strategies.Identity(SQUARE.domain), dh.Budget(**amount))


def charged(mechanism):
    make = functools.partial(dh.Release, total=0)
    return publication.charge_and_draw(make, mechanism, lambda: np.zeros(64, int), account=None, rng=None).values


def in_chain(**amount):
    mechanism = histogram_at(**amount)
    return mechanism.with_chain(dh.mechanisms.base.Chain("0" * 32, (mechanism.budget.amount,)))


def draw_chain(mechanism, times):
    """Draw a first release, or one with a number of times the budget of the mechanism's."""
    if times is None:
        return publication.draw_chain(mechanism, None, None)
    amount, chain = mechanism.budget.amount * times, mechanism.chain
    changes = {"amounts": (*chain.amounts, amount)} if times > 1 else {"copied": amount, "origin": "0" * 64}
    before = types.SimpleNamespace(mechanism=mechanism, draws=np.full(64, 10**6))
    return publication.draw_chain(mechanism.with_chain(dataclasses.replace(chain, **changes)), before, None)


def refined(folder, **amount):
    """The second release of a chain, whose first one always is the same."""
    first, copy = folder / "first.state", folder / "copy.state"
    if not first.exists():
        dh.publish(COUNTS, SQUARE, "identity", **amount, state=first)
    shutil.copy(first, copy)
    return dh.refine(None, copy, **{unit: 4 * value for unit, value in amount.items()}).values


def copied(folder, with_state, **amount):
    """A more private copy of one release."""
    state = folder / "release.state"
    if not state.exists():
        dh.publish(COUNTS, SQUARE, "identity", **amount, state=state).save(folder / "release.parquet")
    coarser = {unit: value / 4 for unit, value in amount.items()}
    release = dh.load(folder / "release.parquet")
    return dh.tighten(release, **coarser, state=state if with_state else None).values


def clients():
    return Clients(TEXTS, REPORTING, np.zeros(len(TEXTS), dtype=int), **WEAK)


def kept(folder, told=False, relaxed=False):
    """Clients whose draws so far are always the same."""
    file = folder / f"{told}{relaxed}.state"
    if not file.exists():
        made = clients()
        if told:
            made.report()
        if relaxed:
            made = made.relax(f=0.4, p=0.2, q=0.8, **WEAK)
        made.save(file)
    return Clients.load(shutil.copy(file, folder / "clients.state"))


def of_people(folder):
    name = new_path(folder, "ledger").stem
    people = city(folder, [("Ada", "bus", 8, 1.0), ("Bob", "tram", 9, 1.0)], name=name, epsilon=1)
    return np.array([people.records.count(epsilon=0.0001).estimate for _ in range(4)], dtype=float)


def in_each_unit(call):
    """The call with a little ε, and with a little ρ."""
    return {name: functools.partial(call, **how) for name, how in UNITS.items()}


#: Entry point -> its calls, by what is particular to each of them; they take a folder of their own.
CALLS = {
    "noise.samplers.discrete_laplace": {
        "table": lambda folder: samplers.discrete_laplace(40, 50),
        "digits": lambda folder: samplers.discrete_laplace(10**6, 50),
    },
    "noise.samplers.discrete_gaussian": {
        "table": lambda folder: samplers.discrete_gaussian(40, 50),
        "rejection": lambda folder: samplers.discrete_gaussian(10**6, 50),
    },
    "noise.samplers.LaplaceSampler.start": {"": lambda folder: samplers.LaplaceSampler().start(0.01, 50)},
    "noise.samplers.LaplaceSampler.refine": {
        "table": lambda folder: samplers.LaplaceSampler().refine(np.full(99, 500), 0.1, 1),
        "digits": lambda folder: samplers.LaplaceSampler().refine(np.full(99, 500_000), 0.0001, 0.001),
    },
    "noise.samplers.LaplaceSampler.tighten": {
        "": lambda folder: samplers.LaplaceSampler().tighten(np.zeros(99, int), 1, 0.01)
    },
    "noise.samplers.LaplaceSampler.draw_addition": {
        "": lambda folder: samplers.LaplaceSampler().draw_addition(1, 0.01, 50)
    },
    "noise.samplers.GaussianSampler.start": {
        "": lambda folder: samplers.GaussianSampler().start(0.01, 50),
        "rounded": lambda folder: samplers.RoundedGaussianSampler(9).start(1, 50),
    },
    "noise.samplers.GaussianSampler.draw_addition": {
        "": lambda folder: samplers.GaussianSampler().draw_addition(0.1, 0.01, 50)
    },
    "noise.samplers.RoundedGaussianSampler.refine": {
        "": lambda folder: samplers.RoundedGaussianSampler(20).refine(np.full(50, 10**7), Fraction(1, 10), 1)
    },
    "noise.samplers.RoundedGaussianSampler.tighten": {
        "": lambda folder: samplers.RoundedGaussianSampler(20).tighten(np.full(50, 10**7), 1, Fraction(1, 10))
    },
    "noise.samplers.sample_law": {
        law.kind: lambda folder, law=law: samplers.sample_law(law, 50, None)
        for law in (dh.laws.Laplace(Fraction(1000)), dh.laws.Gaussian(Fraction(10**6)))
    },
    "publishers.publication.draw_noise": in_each_unit(
        lambda folder, **how: publication.draw_noise(histogram_at(**how), None)
    ),
    "publishers.publication.charge_and_draw": in_each_unit(lambda folder, **how: charged(histogram_at(**how))),
    "publishers.publication.publish": in_each_unit(
        lambda folder, **how: dh.publish(COUNTS, SQUARE, "identity", **how).values
    )
    | {"flow": lambda folder: dh.publish(COUNTS, SQUARE, dh.strategies.Flow(SQUARE.domain), epsilon=0.01).values},
    "publishers.publication.publish_sorted": in_each_unit(
        lambda folder, **how: dh.publishers.publish_sorted(POINTS, LINE, **how).values
    ),
    "publishers.publication.publish_quantile": {
        noise: lambda folder, noise=noise: [
            dh.publishers.publish_quantile(POINTS, 0.5, LINE, method=noise, epsilon=0.1).value for _ in range(12)
        ]
        for noise in ("inverse", "smooth")
    },
    "publishers.publication.publish_mechanism": in_each_unit(
        lambda folder, **how: dh.publish(COUNTS, SQUARE, "identity", state=new_path(folder, "state"), **how).values
    ),
    "publishers.publication.draw_chain": {
        f"{name}, {amount}": lambda folder, how=how, amount=amount: draw_chain(in_chain(**how), amount)
        for name, how in UNITS.items()
        for amount in (None, 4, Fraction(1, 4))
    },
    "publishers.publication.refine": in_each_unit(refined),
    "publishers.publication.tighten": {
        f"{name}, state {state}": lambda folder, how=how, state=state: copied(folder, state, **how)
        for name, how in UNITS.items()
        for state in (False, True)
    },
    "network.diffusion.Diffusion.__init__": {
        "key of its own": lambda folder: responses(None),
        "key in a file": lambda folder: responses(new_path(folder, "key")),
    },
    "network.clients.Clients.__init__": {"bits": lambda folder: clients()._permanent}
    | {"cohorts": lambda folder: Clients(TEXTS, REPORTING, **WEAK).cohorts},
    "network.clients.Clients.report": {"bits": lambda folder: kept(folder).report().bits},
    "network.clients.Clients.relax": {
        "bits": lambda folder: kept(folder, told=True).relax(f=0.4, p=0.2, q=0.8, **WEAK)._permanent
    },
    "network.clients.Clients.refine": {"bits": lambda folder: kept(folder, told=True, relaxed=True).refine().bits},
    "personal": {"count": of_people},
}
#: They take a generator to look at it, or are the choice between generators themselves.
NO_DRAWS = {"noise.exact.open_words", "noise.exact.seeded_words", "publishers.publication.check_publication"}


def responses(state):
    network = dh.network.Network.from_edges([("ann", "bob"), ("bob", "cem")])
    mechanism = dh.network.DiffusionMechanism(network, "exp(2-d)", alpha=100, columns=("x", "y"))
    homes = {"ann": (586_000, 4_512_000), "bob": (583_500, 4_507_000)}
    return Diffusion(homes, mechanism, state=state).responses([("ann", "bob")])[["x", "y"]].to_numpy()


def entry_points():
    """Public functions and methods of the private rooms that take `rng`."""
    for room in ("noise", "network", "publishers", "personal", "counting", "accounts"):
        package = importlib.import_module(f"deltahist.{room}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(found.name)
            for name, thing in vars(module).items():
                own = (getattr(thing, "__module__", None), getattr(thing, "__name__", None)) == (module.__name__, name)
                if not own or name.startswith("_"):
                    continue
                inner = vars(thing).items() if inspect.isclass(thing) else [("", thing)]
                for method, function in inner:
                    function = getattr(function, "__func__", function)
                    public = not method.startswith("_") or method == "__init__"
                    if inspect.isfunction(function) and public and "rng" in inspect.signature(function).parameters:
                        yield ".".join(filter(None, (*found.name.split(".")[1:], name, method)))


def test_every_entry_point_is_called_here():
    """Models of weights draw futures of public numbers."""
    found = {name for name in entry_points() if not name.startswith("accounts.allocation.")} - NO_DRAWS
    assert found == {name for name in CALLS if "." in name}


@pytest.mark.parametrize(
    ("entry", "case"), [(entry, case) for entry, cases in CALLS.items() for case in cases], ids=lambda text: text
)
def test_without_a_generator_noise_is_the_systems(entry, case, tmp_path, monkeypatch):
    asked, system = [], os.urandom
    monkeypatch.setattr(exact.os, "urandom", lambda size: asked.append(size) or system(size))
    monkeypatch.setattr(exact, "seeded_words", lambda rng: pytest.fail("a seeded generator draws"))
    first = np.asarray(CALLS[entry][case](tmp_path))
    used = len(asked)
    assert used > 0
    second = np.asarray(CALLS[entry][case](tmp_path))
    assert len(asked) > used
    assert not np.array_equal(first, second)
