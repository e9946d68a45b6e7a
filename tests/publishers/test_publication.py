"""What every publication does, of whatever kind: it is stamped, asks about weak protection, and is charged first."""

import numpy as np
import pytest

import deltahist as dh
from deltahist.accounts import Account
from deltahist.accounts.ledger import Ledger
from deltahist.counting import Counts, Points
from deltahist.kinds import QuantileMechanism, SortedMechanism
from deltahist.noise import samplers
from deltahist.preprocessing import Preprocessing
from deltahist.publishers import publication, publish_mechanism, publish_quantile, publish_sorted
from deltahist.statement import list_facts

SQUARE = dh.Neighbourhood(dh.Domain((0, 0, 4, 4), (4, 4)), 1)
LINE = dh.Neighbourhood(dh.Domain((0, 10), (10,)), 1)
CELLS = dh.strategies.Identity(SQUARE.domain)
ONES, POINTS = np.ones((4, 4), dtype=int), np.linspace(0.5, 9.5, 30)

#: Kind -> its publication at a budget; they take a folder for a state.
KINDS = {
    "counts": lambda folder, **how: dh.publish(ONES, SQUARE, CELLS, **how),
    "a flow": lambda folder, **how: dh.publish(ONES, SQUARE, dh.strategies.Flow(SQUARE.domain), **how),
    "a mechanism": lambda folder, epsilon, **how: publish_mechanism(
        dh.Mechanism(SQUARE, CELLS, dh.Budget(epsilon)), ONES, **how
    ),
    "sorted points": lambda folder, **how: publish_sorted(POINTS, LINE, **how),
    "a quantile": lambda folder, **how: publish_quantile(POINTS, 0.5, LINE, **how),
    "a smooth quantile": lambda folder, **how: publish_quantile(POINTS, 0.5, LINE, method="smooth", **how),
    "a chain of counts": lambda folder, **how: dh.publish(ONES, SQUARE, CELLS, state=new_state(folder), **how),
    "a chain of points": lambda folder, **how: publish_sorted(POINTS, LINE, state=new_state(folder), **how),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def new_state(folder):
    return folder / f"{len(list(folder.iterdir()))}.state"


@every_kind
def test_a_seeded_generator_is_not_for_publication(kind, tmp_path):
    one, two = (KINDS[kind](tmp_path, epsilon=1, rng=np.random.default_rng(1)) for _ in range(2))
    assert np.array_equal(one.values, two.values)
    for release, publishable in ((one, False), (KINDS[kind](tmp_path, epsilon=1), True)):
        assert release.publishable is publishable
        assert not release.values.flags.writeable


@every_kind
def test_an_account_pays_once_before_noise_is_drawn(kind, tmp_path, monkeypatch):
    account = Account.total(epsilon=2, ledger=tmp_path / "l")
    assert KINDS[kind](tmp_path, epsilon=1, account=account).payment == account.payments[0]
    assert account.spent == 1

    def fail(*_, **__):
        raise RuntimeError(f"on the disk: {Ledger(tmp_path / 'l').list_charges('total')[0]}")

    for name in ("sample_law", "draw_chain"):
        monkeypatch.setattr(publication, name, fail)
    for name in samplers.QUANTILE_SAMPLERS:
        monkeypatch.setitem(samplers.QUANTILE_SAMPLERS, name, fail)
    with pytest.raises(RuntimeError, match="on the disk: 1500000000"):
        KINDS[kind](tmp_path, epsilon=0.5, account=account)
    with pytest.raises(dh.BudgetExceeded, match=r"0.5 is left"):
        KINDS[kind](tmp_path, epsilon=1, account=account)


@every_kind
def test_weak_protection_is_asked_about(tmp_path, kind):
    account = Account.total(epsilon=100)
    with pytest.raises(dh.InputError, match=r"epsilon is 50: .* weak_protection_accepted=True"):
        KINDS[kind](tmp_path, epsilon=50, account=account)
    assert account.spent == 0
    assert KINDS[kind](tmp_path, epsilon=1).may_be_published == "yes"
    weak = KINDS[kind](tmp_path, epsilon=50, weak_protection_accepted=True)
    weak.save(tmp_path / "weak")
    for release in (weak, dh.load(tmp_path / "weak")):
        assert dh.write_statement(release).startswith("WEAK PROTECTION: ")
        assert list_facts(release)["may_be_published"].startswith("only if everybody")
        assert "(WEAK PROTECTION)" in repr(release)
    seeded = KINDS[kind](tmp_path, epsilon=50, rng=np.random.default_rng(1))
    assert seeded.may_be_published.startswith("no: noise from a seeded generator")


def test_a_mechanism_allows_for_all_that_its_counts_hold():
    """Counts of three points of a user, or with rows left out, need a mechanism that was made for that."""

    def counted(domain=SQUARE.domain, **how):
        return Counts(np.ones((4, 4), dtype=np.int64), domain, Preprocessing(**{"where": "speed > 3"} | how))

    made = Preprocessing(contributions=2, user=True, dropped=("bad rows",), where="speed > 3")
    mechanism = dh.Mechanism(SQUARE, CELLS, dh.Budget(1), made)
    for how in ({}, {"contributions": 2}, {"dropped": ("bad rows",)}):
        released = publish_mechanism(mechanism, counted(**how)).mechanism
        assert (released.counting, released.laws) == (made, mechanism.laws)
    one = dh.Mechanism(SQUARE, CELLS, dh.Budget(1))
    elsewhere = dh.Domain((0, 0, 400, 400), (4, 4))
    more = (
        *({"contributions": 3}, {"dropped": ("points outside",)}, {"where": "speed > 2"}, {"where": None}),
        {"domain": elsewhere},
    )
    for made_for, how in [(mechanism, each) for each in more] + [(one, {"user": True, "where": None}), (one, {})]:
        account = Account.total(epsilon=1)
        with pytest.raises(dh.InputError):
            publish_mechanism(made_for, counted(**how), account=account)
        assert account.spent == 0
    own = dh.publish(counted(contributions=3, dropped=("bad rows",)), SQUARE, CELLS, 1)
    assert own.laws[0].parameter == 3 * dh.publish(ONES, SQUARE, CELLS, 1).laws[0].parameter
    assert (own.counting.contributions, own.total) == (3, None)
    with pytest.raises(dh.InputError, match="use a mechanism that covers these"):
        dh.publish(counted(contributions=3), SQUARE, CELLS, 1, contributions=2)
    more = dh.publish(counted(dropped=("bad rows",)), SQUARE, CELLS, 1, dropped=["people who cannot pay"])
    assert more.counting.dropped == ("bad rows", "people who cannot pay")


def test_each_kind_of_mechanism_takes_its_own_kind_of_data():
    """As many points as cells, at whole coordinates, would pass for counts; and counts for points."""
    points = Points(np.arange(10.0), LINE.domain, Preprocessing())
    counts = Counts(np.arange(10), LINE.domain, Preprocessing())
    cells = dh.strategies.Identity(LINE.domain)
    account = Account.total(epsilon=1)
    for mechanism, wrong, right in (
        (dh.Mechanism(LINE, cells, dh.Budget(1)), points, counts),
        (SortedMechanism(LINE, 10, dh.Budget(1)), counts, points),
        (QuantileMechanism(LINE, 0.5, 10, dh.Budget(1)), counts, points),
    ):
        with pytest.raises(dh.InputError, match="but the mechanism is for"):
            publish_mechanism(mechanism, wrong, account=account)
        assert publish_mechanism(mechanism, right).publishable
    for publish in (
        lambda: dh.publish(points, LINE, cells, 1, account=account),
        lambda: publish_sorted(counts, LINE, 1, account=account),
        lambda: publish_quantile(counts, 0.5, LINE, 1, account=account),
    ):
        with pytest.raises(dh.InputError, match="but the mechanism is for"):
            publish()
    assert account.spent == 0
