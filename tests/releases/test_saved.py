"""Files that earlier versions wrote: they load, say what they said, and answer as before."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import deltahist as dh
from deltahist.mechanisms.rappor import Rappor
from deltahist.publishers.rappor import Clients
from deltahist.publishers.state import State
from deltahist.releases import SortedRelease

V1 = Path(__file__).parent.parent / "fixtures" / "v1"
EXPECTED = json.loads((V1 / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_releases_of_version_1_are_what_they_were(name, tmp_path):
    expected = EXPECTED[name]
    kind = SortedRelease if name.startswith("sorted") else dh.Release
    release = kind.load(V1 / f"{name}.parquet")
    cells = release.histogram() if kind is SortedRelease else release.cells()
    assert np.allclose(cells, expected["cells"], atol=1e-6)
    assert release.values.tolist() == expected["values"]
    for budget in ("epsilon", "rho"):
        said = expected[budget]
        assert getattr(release, budget) == (None if said is None else Fraction(said))
    assert release.total == expected["total"]
    old, new = expected["statement"].splitlines(), release.statement().splitlines()
    # Cells of whole metres on the map are since stated as a grid.
    lost = {line for line in set(old) - set(new) if not (line.startswith("Map") and release.domain.grid)}
    assert not lost or name.startswith(("users", "sorted_left_users", "seeded"))
    assert [line for line in old if line.startswith("Guarantee")] == [
        line for line in new if line.startswith("Guarantee")
    ]
    release.save(tmp_path / "again.parquet")
    again = kind.load(tmp_path / "again.parquet")
    assert again.describe() == release.describe()
    assert again.counting == release.counting


def test_chains_of_version_1_say_which_release_they_are():
    amounts = (Fraction(1, 2), Fraction(1))
    chains = {name: dh.load(V1 / f"{name}.parquet").mechanism.chain for name in ("chain", "copy", "sorted_chain")}
    assert chains["chain"].amounts == chains["sorted_chain"].amounts == amounts
    assert (chains["copy"].name, chains["copy"].amounts) == (chains["chain"].name, amounts)
    assert chains["copy"].copied == Fraction(1, 4)


@pytest.mark.parametrize(("name", "more"), [("chain", {"epsilon": 2}), ("chain_gaussian", {"rho": 2})])
def test_states_of_version_1_go_on(name, more, tmp_path):
    release = dh.load(V1 / f"{name}.parquet")
    state = secret(f"{name}.state", tmp_path)
    assert State.load(state).release.values.tolist() == release.values.tolist()
    finer = dh.refine(release, state, **more)
    assert (finer.mechanism.chain.number, finer.total) == (3, release.total)


def test_users_of_version_1_go_on(tmp_path):
    clients = Clients.load(secret("users.state", tmp_path))
    assert clients.mechanism == Rappor(bits=16, cohorts=2, f=0.5, p=0, q=1, form="laplace")
    assert [row.sum() for row in clients._report.drawn.bits] == [6, 7, 6]
    # With hardly any noise the bits are those of the texts.
    texts, cohorts = ["cafe", "museum", "park"], [0, 1, 0]
    last = clients.relax(clients.mechanism.relaxed(f=1e-12), weak_protection_accepted=True).refine()
    for text, cohort, bits in zip(texts, cohorts, last.bits, strict=True):
        at = clients.mechanism.positions([text])[0, cohort]
        assert np.flatnonzero(bits).tolist() == sorted(set(at.tolist()))


def test_keys_of_version_1_answer_as_before(tmp_path):
    """Another answer about the same data would be a second look at them."""
    network = dh.Network.from_edges([("ann", "bob"), ("bob", "cem")])
    mechanism = dh.DiffusionMechanism(network, "exp(3-d)", alpha=100, columns=("x", "y"))
    homes = {"ann": (586_000, 4_512_000), "bob": (583_500, 4_507_000)}
    answers = dh.Diffusion(homes, mechanism, state=secret("homes.key", tmp_path)).to("cem")
    assert answers[["x", "y"]].to_numpy().tolist() == [[585946.9, 4511986.8], [583496.2, 4506989.6]]


def secret(name, folder):
    """A copy that its owner alone can read, as it must be."""
    copy = folder / name
    copy.write_bytes((V1 / name).read_bytes())
    copy.chmod(0o600)
    return copy


def test_ledgers_of_version_1_keep_their_charges(tmp_path):
    copy = tmp_path / "w.ledger"
    copy.write_bytes((V1 / "window.ledger").read_bytes())
    copy.chmod(0o600)
    window = dh.Window(3, 1.0, ledger=copy, name="city")
    assert (window.last, window.available(3)) == (2, Fraction(1, 4))
