"""Accounts that pay for releases: the sum never exceeds the limit, is charged before noise is drawn, and is stated."""

import contextlib
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import deltahist as dh
from deltahist.budget import Payment
from deltahist.budgets.ledger import Ledger
from tests.budgets.processes import SERVER

LINE = dh.Neighbourhood(dh.Domain((0, 8), (8,)), delta=1)
CELLS = dh.strategies.Identity(LINE.domain)
COUNTS, POINTS = np.arange(8), np.linspace(0.5, 7.5, 20)

PUBLISHERS = {
    "counts": lambda **how: dh.publish(COUNTS, LINE, CELLS, **how),
    "sorted points": lambda **how: dh.publish_sorted(POINTS, LINE, **how),
    "a quantile": lambda **how: dh.publish_quantile(POINTS, 0.5, LINE, **how),
    "a smooth quantile": lambda **how: dh.publish_quantile(POINTS, 0.5, LINE, method="smooth-student", **how),
}
AMOUNTS = st.sampled_from([0.1, 0.25, 1 / 3, Fraction(1, 7), 0.5, 0.001, 1])


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(sorted(PUBLISHERS)), AMOUNTS), max_size=10), st.booleans())
def test_what_was_published_never_exceeds_the_limit(asked, durable):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        account = dh.Account.total(epsilon=1, ledger=f"{folder}/l" if durable else None, name="people")
        published = Fraction(0)
        for name, amount in asked:
            left, payments = account.left, len(account.payments)
            try:
                release = PUBLISHERS[name](epsilon=amount, account=account)
            except dh.BudgetExceeded:
                assert Fraction(repr(amount) if isinstance(amount, float) else amount) > left
                assert (account.left, len(account.payments)) == (left, payments)
                continue
            published += release.epsilon
            assert published <= account.spent == release.payment.spent <= 1
            assert account.left == left - (account.spent - (1 - left))
        assert published <= 1


@pytest.mark.parametrize("name", PUBLISHERS)
def test_it_is_charged_before_noise_is_drawn_and_stays_charged(tmp_path, monkeypatch, name):
    from deltahist.publishers import histogram, quantile, sorted as in_order

    account = dh.Account.total(epsilon=1, ledger=tmp_path / "l")

    def drawn(*_, **__):
        assert Ledger(tmp_path / "l").charges("total") == {0: 500_000_000}
        raise RuntimeError

    drawing = [(histogram, "draw"), (in_order, "draw"), *((quantile, f) for f in ("draw", "draw_place", "rounded"))]
    for module, function in drawing:
        monkeypatch.setattr(module, function, drawn)
    with pytest.raises(RuntimeError):
        PUBLISHERS[name](epsilon=0.5, account=account)
    monkeypatch.undo()
    assert account.spent == Fraction(1, 2)
    with pytest.raises(dh.BudgetExceeded, match=r"amount is 0.6: account 'total' has spent 0.5 of 1, 0.5 is left"):
        PUBLISHERS[name](epsilon=0.6, account=account)


@pytest.mark.parametrize(
    "refused",
    [
        lambda account: dh.publish(COUNTS[:3], LINE, CELLS, 0.5, account=account),
        lambda account: dh.publish(-COUNTS, LINE, CELLS, 0.5, account=account),
        lambda account: dh.publish(COUNTS, LINE, CELLS, 50, account=account),
        lambda account: dh.publish(COUNTS, LINE, CELLS, rho=0.5, account=account),
        lambda account: dh.publish(COUNTS, LINE, epsilon=0.5, probability=1e-6, noise="gaussian", account=account),
        lambda account: dh.publish_sorted([], LINE, 0.5, account=account),
        lambda account: dh.publish_sorted([np.nan], LINE, 0.5, account=account),
        lambda account: dh.publish_quantile(
            POINTS, 0.5, LINE, 0.5, probability=1e-6, method="smooth-laplace", account=account
        ),
    ],
)
def test_what_is_refused_is_not_charged(tmp_path, refused):
    account = dh.Account.total(epsilon=100, ledger=tmp_path / "l")
    with pytest.raises(dh.InputError):
        refused(account)
    assert (account.spent, account.payments) == (0, [])


def test_ten_times_a_tenth_is_one():
    account = dh.Account.total(epsilon=1)
    for _ in range(10):
        assert PUBLISHERS["counts"](epsilon=0.1, account=account).epsilon == Fraction(1, 10)
    assert account.left == 0


def test_units_must_agree():
    with pytest.raises(dh.InputError, match="keeps pure epsilon, and the release spends rho"):
        PUBLISHERS["counts"](rho=1, account=dh.Account.total(epsilon=3))
    with pytest.raises(dh.InputError, match="keeps rho, and the release spends epsilon"):
        PUBLISHERS["counts"](epsilon=1, account=dh.Account.total(rho=3))
    assert PUBLISHERS["counts"](rho=1, account=dh.Account.total(rho=3)).payment.unit == "rho"


@pytest.mark.parametrize("name", PUBLISHERS)
def test_the_release_says_who_keeps_the_sum(tmp_path, name):
    account = dh.Account.total(epsilon=3, name="checkins")
    PUBLISHERS[name](epsilon=1, account=account)
    release = PUBLISHERS[name](epsilon=0.5, account=account)
    release.save(tmp_path / "r")
    again = dh.load(tmp_path / "r")
    for each in (release, again):
        assert each.payment == Payment("checkins", "epsilon", Fraction(3), Fraction(3, 2))
        assert "Account             'checkins' has spent ε = 1.5 of 3, this release with it\n" in each.statement()
        assert each.facts()["account"]["spent"] == "3/2"
    alone = PUBLISHERS[name](epsilon=0.5)
    assert "Account             none: nobody keeps the sum" in alone.statement()
    assert alone.facts()["account"] is None
    assert "Account" not in alone.mechanism.statement()


def test_a_window_pays_for_a_step(tmp_path):
    window = dh.Window(length=7, epsilon=1, ledger=tmp_path / "l", name="days")
    release = PUBLISHERS["counts"](epsilon=0.25, account=dh.Account(window, 3))
    assert window.spent(3) == Fraction(1, 4)
    said = "'days' has spent ε = 0.25 of 1, this release with it, in the 7 steps that end with it"
    assert said in release.statement()
    with pytest.raises(dh.BudgetExceeded, match=r"at step 4: steps -2 to 4 have spent 0\.25"):
        PUBLISHERS["counts"](epsilon=1, account=dh.Account(window, 4))


def test_a_total_goes_on_and_stays_what_it_is(tmp_path):
    dh.Account.total(epsilon=3, ledger=tmp_path / "l", name="a").window.charge(0, 2)
    again = dh.Account.total(epsilon=3, ledger=tmp_path / "l", name="a")
    assert (again.spent, again.left, again.limit) == (2, 1, 3)
    for other in ({"epsilon": 4}, {"rho": 3}):
        with pytest.raises(dh.InputError, match="opened with other parameters"):
            dh.Account.total(**other, ledger=tmp_path / "l", name="a")
    with pytest.raises(dh.InputError, match='kind was "total", is "window"'):
        dh.Window(3, 3, ledger=tmp_path / "l", name="a")
    with pytest.raises(dh.InputError, match="no share of it can be spent for ever"):
        again.window.equal  # noqa: B018
    with pytest.raises(dh.InputError, match="at least a billionth"):
        dh.Account.total(epsilon=1e-10)


@pytest.mark.parametrize("durable", [False, True])
def test_a_later_step_takes_nothing_from_what_an_earlier_one_states(tmp_path, durable, monkeypatch):
    """Whoever charges a later step meanwhile makes the window forget this one."""
    window = dh.Window(2, 1, ledger=tmp_path / "l" if durable else None)
    charge = dh.Window.charge_and_sum

    def overtaken(self, step, amount):
        found = charge(self, step, amount)
        charge(self, 5, 0.1)
        return found

    monkeypatch.setattr(dh.Window, "charge_and_sum", overtaken)
    assert PUBLISHERS["counts"](epsilon=0.5, account=dh.Account(window, 0)).payment.spent == Fraction(1, 2)


@pytest.mark.parametrize("limit", [None, 100, 1])
def test_an_account_that_was_closed_meanwhile_pays_nothing(where, limit):
    """What is charged to none could be spent again under another limit."""
    ledger = Ledger(where)
    dh.Account.total(epsilon=1, ledger=ledger, name="other").window.charge(0, 1)
    account = dh.Account.total(epsilon=1, ledger=ledger, name="a")
    ledger.close_if_unused("a")
    if limit is not None:
        dh.Account.total(epsilon=limit, ledger=ledger, name="a")
    if limit == 1:
        assert account.window.charge(0, 1) == 1
        return
    with pytest.raises(dh.InputError, match="nothing was charged"):
        account.window.charge(0, 1)
    assert not ledger.charges("a")


@pytest.mark.parametrize("change", [{"spent": "4"}, {"spent": "0"}, {"unit": "delta"}, {"steps": 0}, {"account": 7}])
def test_a_file_cannot_say_more_than_the_limit(change):
    good = Payment("a", "epsilon", Fraction(3), Fraction(1)).describe()
    assert Payment.from_description(good).spent == 1
    with pytest.raises(dh.InputError):
        Payment.from_description(good | change)


def _publish_all(path, results):
    account = dh.Account.total(epsilon=1, ledger=path, name="people")
    won = []
    for _ in range(15):
        with contextlib.suppress(dh.BudgetExceeded):
            won.append(PUBLISHERS["counts"](epsilon=0.07, account=account).epsilon)
    results.put(won)


def test_two_processes_share_one_limit(where):
    dh.Account.total(epsilon=1, ledger=where, name="people")
    results = SERVER.Queue()
    runs = [SERVER.Process(target=_publish_all, args=(where, results)) for _ in range(2)]
    for run in runs:
        run.start()
    won = [epsilon for _ in runs for epsilon in results.get(timeout=120)]
    for run in runs:
        run.join()
    assert len(won) == 14  # of thirty: 15 times 0.07 is more than 1
    assert sum(won) == dh.Account.total(epsilon=1, ledger=where, name="people").spent <= 1


def test_an_account_that_paid_is_not_withdrawn(tmp_path):
    ledger = Ledger(tmp_path / "l")
    ledger.open("city", epsilon=1)
    ledger.charge("city", Fraction(1, 2))
    ledger.close_if_unused("city")
    assert (ledger.spent("city"), ledger.left("city")) == (Fraction(1, 2), Fraction(1, 2))


def test_the_limit_of_a_longer_run_is_rounded_down():
    """A billionth more would be more than was promised."""
    window = dh.Window(1, epsilon=Fraction(1, 10**9), limits=[(2, Fraction(3, 2))])
    window.charge(0, Fraction(1, 10**9))
    assert window.available(1) == 0
