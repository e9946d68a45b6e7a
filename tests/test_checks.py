"""Strategies from outside the package: one file that subclasses and registers, and checks that name what is wrong."""

import dataclasses
import sys
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
from examples import EVERY_STRATEGY, random_domain, random_neighbourhood

import deltahist as dh
from deltahist.strategies import Group, base, parse_strategy
from deltahist.strategies.base import read_shares

LINE = dh.Domain((0, 8), (8,))
NEAR = dh.Neighbourhood(LINE, 1)


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(base, "_KNOWN", dict(base._KNOWN))


@dataclasses.dataclass(frozen=True, eq=False)
class Pairs(dh.Strategy):
    """Each cell with the next one, and the last one twice."""

    domain: dh.Domain
    times: int = 1
    determines_cells = True
    texts = ("pairs[:times]",)

    @property
    def shape(self):
        return self.domain.size, self.domain.size

    def _matmat(self, X):
        out = X * self.times
        out[:-1] += X[1:] * self.times
        return out

    def _rmatmat(self, X):
        out = X * self.times
        out[1:] += X[:-1] * self.times
        return out

    @classmethod
    def from_text(cls, near, text, norm):
        return cls(near.domain, *(int(n) for n in text.partition(":")[2].split(",") if n))

    @classmethod
    def candidates(cls, near, workload, norm):
        yield "Pairs", cls(near.domain)


@pytest.mark.parametrize("name", EVERY_STRATEGY)
def test_the_packages_own_pass(name):
    """Flows, spectral and optimal strategies as all others, on random domains and relations."""
    rng = np.random.default_rng([7, len(name)])
    for _ in range(4):
        domain = random_domain(rng)
        near = random_neighbourhood(rng, domain)
        strategy = EVERY_STRATEGY[name](rng, near)
        if strategy is not None:
            dh.check_strategy(strategy, near)


def test_a_strategy_of_somebody_elses_is_published_saved_loaded_planned_and_decoded(tmp_path):
    dh.register(Pairs)
    dh.check_strategy(Pairs(LINE), NEAR)
    counts = np.array([3, 0, 0, 5, 1, 0, 0, 7])
    release = dh.publish(counts, NEAR, "pairs:3", epsilon=1000, weak_protection_accepted=True)
    assert (release.strategy.times, release.total) == (3, 16)
    release.save(tmp_path / "r.parquet")
    again = dh.load(tmp_path / "r.parquet")
    assert again.describe() == release.describe()
    assert np.allclose(again.cells(), counts, atol=0.2)
    assert "Pairs" in dh.write_statement(again)
    assert "Pairs" in {c.label for c in dh.plan(NEAR)}
    assert isinstance(parse_strategy("pairs", NEAR), Pairs)
    error = dh.answer(again, dh.workloads.boxes([[0, 3]]))["std_error"][0]
    assert error**2 == pytest.approx(dh.expected_error(Pairs(LINE, 3), NEAR, dh.workloads.boxes([[0, 3]]), 1000)[0])


@dataclasses.dataclass(frozen=True, eq=False)
class Moves(dh.Strategy):
    """Cells whose noise moves points from each cell to the next one; `more` draws beside make the total noisy too."""

    domain: dh.Domain
    more: int = 0
    determines_cells = True

    @property
    def shape(self):
        return self.domain.size, self.domain.size

    @property
    def keeps_total(self):
        return not self.more

    @property
    def draws(self):
        return self.domain.size - 1 + self.more

    @property
    def groups(self):
        return (Group("moves", slice(None)),)

    @property
    def parts(self):
        return (Group("cells", slice(None)),)

    def _matmat(self, X):
        return X

    def _rmatmat(self, X):
        return X

    def scatter(self, noise):
        out = np.zeros(self.domain.size, dtype=noise.dtype)
        moves = noise[: self.domain.size - 1]
        out[:-1] -= moves
        out[1:] += moves
        out[: self.more] += noise[self.domain.size - 1 :]
        return out

    def gather(self, weights):
        return np.concatenate([np.diff(weights), weights[: self.more]])

    def changes(self, near):
        far = (near.edges()[:, 1] - near.edges()[:, 0])[:, None]
        first, place = near.edges()[:, :1], np.arange(self.domain.size - 1)
        crossed = (place >= first) & (place < first + far)
        out = np.zeros((self.draws, len(far)), dtype=np.int64)
        out[: self.domain.size - 1] = crossed.T
        return scipy.sparse.csr_array(out)


@pytest.mark.parametrize("more", [0, 1, 8])
def test_noise_that_enters_otherwise_is_decoded_and_its_errors_are_right(more, tmp_path):
    """Draws that are shared between values, fewer or more of them than values."""
    dh.register(Moves)
    strategy = Moves(LINE, more)
    dh.check_strategy(strategy, NEAR)
    mechanism = dh.Mechanism(NEAR, strategy, dh.Budget(1))
    work, rng = dh.workloads.boxes([[2, 7], [3, 4], [0, 5]]), np.random.default_rng(8)
    total = 0 if mechanism.total_known else None
    noise = rng.laplace(scale=float(mechanism.laws[0].parameter), size=(4000, strategy.draws))
    cells = np.array([mechanism.decoder.estimate_cells(strategy.scatter(row), total) for row in noise])
    # Relative standard error of a variance: at most √(5 / 4000) = 3.5%.
    seen, said = (np.var(cells @ work.matrix(LINE).toarray().T, axis=0), mechanism.variance(work, continuous=True))
    assert np.allclose(seen, said, rtol=0.14)
    release = dh.publishers.publish_mechanism(mechanism, np.arange(8))
    release.save(tmp_path / "r.parquet")
    assert np.allclose(dh.load(tmp_path / "r.parquet").cells(), release.cells())


def _forgetful(self, near):
    out = dh.Strategy.changes(self, near).tolil()
    out[0] = 0
    return out.tocsr()


def wrong(**members):
    cls = dataclasses.dataclass(frozen=True, eq=False)(type("Wrong", (Pairs,), members))
    cls.__module__ = __name__
    return dh.register(cls)(LINE)


def entering(times, adjoint=None):
    scatter = {"scatter": lambda self, noise: times * noise}
    return scatter if adjoint is None else scatter | {"gather": lambda self, weights: adjoint * weights}


@pytest.mark.parametrize(
    ("members", "words", "published"),
    [({"_rmatmat": lambda self, X: X}, "_rmatmat is not the adjoint of _matmat", False),
     ({"_rmatmat": lambda self, X: X[:3]}, "_rmatmat returns the shape", False),
     ({"_matmat": lambda self, X: X / 2}, "have type float64", False),
     ({"_matmat": lambda self, X: (X / 2).astype(X.dtype)}, "rows must be linear", False),
     ({"edge_cost": lambda self, near, norm: 1}, r"edge_cost\(near, 1\) is 1; an edge costs 2", True),
     ({"groups": (Group("some", slice(0, 5)),)}, "groups of", False), ({"groups": ()}, "groups of", False),
     ({"groups": (Group("all", slice(0, 8)), Group("one", slice(7, 8)))}, "groups of", False),
     ({"groups": (Group("one twice", np.array([0, 1, 2, 3, 4, 5, 6, 6])),)}, "groups of", False),
     ({"parts": (Group("cells", slice(0, 5)),)}, "parts of", False),
     (entering(0.5), "scatter returns type float64", False),
     (entering(2), "gather is not the adjoint of scatter", False),
     (entering(0), "gather is not the adjoint of scatter", False),
     (entering(2, 2), "changes.near. does not offset edge", True), (entering(0, 0), "does not offset", True),
     ({"changes": _forgetful}, "does not offset edge", True),
     ({"describe": lambda self: {"strategy": "Wrong", "times": 2}}, "restores a different strategy", True),
     ({"shape": property(lambda self: (8, 9))}, "it must be .k, 8.", False),
     ({"measure": lambda self, counts: 1000 * counts}, "measure differs from _matmat", False)],
)  # fmt: skip
def test_what_is_wrong_is_named_and_mostly_not_published(members, words, published):
    strategy = wrong(**members)
    with pytest.raises(dh.InputError, match=words):
        dh.check_strategy(strategy, NEAR)
    if not published:
        with pytest.raises(dh.InputError):
            dh.publish(np.ones(8, dtype=int), NEAR, strategy, epsilon=1)


def test_a_total_that_is_given_away_is_named():
    """A flow that denies keeping the number of points."""

    @dh.register
    @dataclasses.dataclass(frozen=True, eq=False)
    class Denying(dh.strategies.Flow):
        texts = ()
        keeps_total = False

    square = dh.Domain((0, 0, 4, 4), (4, 4))
    with pytest.raises(dh.InputError, match="keeps_total must be True"):
        dh.check_strategy(Denying(square), dh.Neighbourhood(square, 1))


def test_a_strategy_that_changes_after_it_was_priced_is_not_published():
    @dh.register
    @dataclasses.dataclass(frozen=True, eq=False)
    class Growing(Pairs):
        texts = ()
        grown: list = dataclasses.field(default_factory=lambda: [1])

        def _matmat(self, X):
            return super()._matmat(X) * self.grown[0]

        def _rmatmat(self, X):
            return super()._rmatmat(X) * self.grown[0]

    strategy = Growing(LINE)
    mechanism = dh.Mechanism(NEAR, strategy, dh.Budget(1))
    assert mechanism.laws[0].parameter == 2
    strategy.grown[0] = 1000
    with pytest.raises(dh.InputError, match="changed"):
        dh.publishers.publish_mechanism(mechanism, np.ones(8, dtype=int))


def test_an_installed_package_is_known_by_its_entry_point(tmp_path, monkeypatch):
    lines = (
        "import dataclasses, deltahist as dh",
        "@dataclasses.dataclass(frozen=True, eq=False)",
        "class Elsewhere(dh.strategies.Identity):",
        "    texts = ('elsewhere',)",
    )
    (tmp_path / "elsewhere.py").write_text("\n".join(lines))
    info = tmp_path / "elsewhere-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[deltahist.strategies]\nelsewhere = elsewhere:Elsewhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    base._load_entry_points.cache_clear()
    try:
        release = dh.publish(np.ones(8, dtype=int), NEAR, "elsewhere", epsilon=1)
        assert release.strategy.name == "Elsewhere"
        release.save(tmp_path / "r.parquet")
        assert dh.load(tmp_path / "r.parquet").strategy.name == "Elsewhere"
    finally:
        base._load_entry_points.cache_clear()
        sys.modules.pop("elsewhere", None)


def test_shares_are_exact():
    assert read_shares(None, 2, "level") == (1, 1)
    assert read_shares((0.1, Fraction(1, 3)), 2, "level")[1] == Fraction(1, 3)
    pair = dh.strategies.Hierarchical(dh.Domain((0, 1), (2,)), shares=(Fraction(1, 6), Fraction(3, 4)))
    assert pair.whole_shares == ([2, 9], 12)
    for bad in ((0, 1), (1,), (1, -1), (1, float("nan")), (1, None)):
        with pytest.raises(dh.InputError):
            read_shares(bad, 2, "level")
