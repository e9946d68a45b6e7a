"""Chains of releases: every strategy, the error of one release, states that are neither lost nor used twice."""

import functools
import shutil
import stat
from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist._files import exclusive
from deltahist.noise import samplers
from deltahist.publishers import publication
from deltahist.publishers.publication import State, read_state, released_noise, write_state
from deltahist.releases.series import Summed

SQUARE = dh.Neighbourhood(dh.Domain((0, 0, 8, 8), (8, 8)), delta=1)
LINE = dh.Neighbourhood(dh.Domain((0, 16), (16,)), delta=1)
COUNTS, ROW = np.arange(64).reshape(8, 8), np.arange(16)
WEAK = {"weak_protection_accepted": True}
POINTS = np.linspace(0.5, 15.5, 60)

FLOW = dh.strategies.Flow(SQUARE.domain, widths=(3, 5))


def on_square(strategy, unit):
    return functools.partial(dh.publish, COUNTS, SQUARE, strategy), unit


#: Name -> (publishes with a state, unit).
CHAINS = {
    **{name: on_square(name, "epsilon") for name in ("identity", "wavelet", "hierarchical", "shifted:2,1")},
    "flow": on_square(FLOW, "epsilon"),
    "flow between blocks": on_square(dh.strategies.Flow(SQUARE.domain, block=2), "epsilon"),
    "cumulative": (functools.partial(dh.publish, ROW, LINE, "cumulative"), "epsilon"),
    "flow on a line": (functools.partial(dh.publish, ROW, LINE, "flow"), "epsilon"),
    "sorted points": (functools.partial(dh.publishers.publish_sorted, POINTS, LINE, group=4), "epsilon"),
    "identity, Gaussian": on_square("identity", "rho"),
    "spectral": on_square("spectral", "rho"),
    "flow, Gaussian": on_square(FLOW, "rho"),
    "sorted points, Gaussian": (functools.partial(dh.publishers.publish_sorted, POINTS, LINE, group=4), "rho"),
}


def rng(seed=1):
    return np.random.default_rng(seed)


@pytest.fixture
def chain(tmp_path):
    """The state's path and its first release, of cells at ε = 1."""
    path = tmp_path / "city.state"
    return path, dh.publish(COUNTS, SQUARE, "identity", epsilon=1, state=path)


@pytest.mark.parametrize("name", CHAINS)
def test_each_release_of_a_chain_is_the_data_with_the_noise_of_a_single_one(name, tmp_path):
    """y − R(η) is A c for each of them, and a refinement does not need the data; laws are those at the last budget."""
    publish, unit = CHAINS[name]
    path = tmp_path / "s"
    release = publish(**{unit: Fraction(1, 10)}, state=path, rng=rng())
    exact = release.values - released_noise(release.mechanism, State.load(path).draws)
    if name.partition(",")[0] != "sorted points":
        assert (exact == release.strategy.measure(ROW if release.domain.ndim == 1 else COUNTS)).all()
    for amount in (Fraction(1, 5), Fraction(1, 2), 3):
        release.save(tmp_path / "r.parquet")
        before = dh.load(tmp_path / "r.parquet")
        assert before.describe() == release.describe()
        release = dh.refine(before, path, **{unit: amount}, rng=rng())
        known = State.load(path)
        assert (release.values - released_noise(release.mechanism, known.draws) == exact).all()
        assert (release.values != before.values).any()
        assert (known.release.values == release.values).all()
        assert release.total == before.total
        assert getattr(release.guarantee, unit) == amount
        single = publish(**{unit: amount}, rng=rng())
        assert [law.parameter for law in release.laws] == [law.parameter for law in single.laws]
    assert {law.kind for law in release.laws} == ({"laplace"} if unit == "epsilon" else {"rounded gaussian"})


def test_the_noise_of_experiments_stays_marked(tmp_path):
    path = tmp_path / "s"
    assert not dh.tighten(dh.publish(COUNTS, SQUARE, "identity", epsilon=1), epsilon=0.5, rng=rng()).publishable
    release = dh.publish(COUNTS, SQUARE, "identity", epsilon=1, state=path, rng=rng())
    assert not dh.tighten(release, epsilon=0.5).publishable
    assert not dh.refine(release, path, epsilon=2).publishable


def test_the_state_is_for_its_owner_alone(chain):
    path, release = chain
    dh.refine(release, path, epsilon=2)
    assert "draws" not in repr(State.load(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(dh.InputError, match="mode 644"):
        State.load(path)


@pytest.mark.parametrize("came", ["before", "meanwhile"])
def test_a_state_is_never_overwritten(chain, monkeypatch, came):
    """Of two runs that look for the file at the same time and find none, the second to write does not replace it."""
    path, _ = chain
    before = path.read_bytes()
    if came == "meanwhile":
        calls = iter([lambda path: None, publication.check_new])
        monkeypatch.setattr(publication, "check_new", lambda path, **taken: next(calls)(path, **taken))
    with pytest.raises(dh.InputError, match=r"city.state' already exists"):
        dh.publish(COUNTS, SQUARE, "identity", epsilon=1, state=path)
    assert path.read_bytes() == before
    # A new release of the chain's mechanism does not join the chain, which would hide what it costs.
    assert dh.publishers.publish_mechanism(chain[1].mechanism, COUNTS).mechanism.chain is None


def test_a_state_of_two_names_is_refused(chain, tmp_path):
    """Each name has a lock of its own, and would be replaced by itself."""
    path, release = chain
    (tmp_path / "other.state").hardlink_to(path)
    for name in (path, tmp_path / "other.state"):
        with pytest.raises(dh.InputError, match=r"has 2 names \(hard links\)"):
            dh.refine(release, name, epsilon=2)
    (tmp_path / "other.state").unlink()
    assert dh.refine(release, path, epsilon=2).guarantee.epsilon == 2


def test_a_state_is_read_under_its_lock(chain, monkeypatch):
    path, release = chain
    load = State.load

    def locked(read):
        with pytest.raises(dh.InputError, match="in use"), exclusive(path, "state"):
            pass
        return load(read)

    monkeypatch.setattr(State, "load", locked)
    assert dh.refine(release, path, epsilon=2).guarantee.epsilon == 2


@pytest.mark.parametrize("at", ["before the state", "after the state"])
def test_a_process_that_dies_never_leads_to_another_draw(chain, monkeypatch, at):
    """After the state is written the same release comes out again; before it nothing was handed out."""
    path, release = chain

    def dies(self, target, *, new):
        if at == "after the state":
            write(self, target, new=new)
        raise KeyboardInterrupt

    write = State.write
    with monkeypatch.context() as patch:
        patch.setattr(State, "write", dies)
        with pytest.raises(KeyboardInterrupt):
            dh.refine(release, path, epsilon=2)
    drawn = State.load(path)
    assert drawn.chain.number == (2 if at == "after the state" else 1)
    once_more = dh.refine(release, path, epsilon=2)
    if at == "after the state":
        assert (once_more.values == drawn.release.values).all()
        assert State.load(path).token == drawn.token
    assert dh.refine(once_more, path, epsilon=Fraction(21, 10)).mechanism.chain.amounts == (1, 2, Fraction(21, 10))


def test_damaged_states_are_refused(chain, tmp_path):
    path, release = chain
    whole = path.read_bytes()
    broken = tmp_path / "broken.state"
    middle = len(whole) - 300
    header = whole.index(b"{'descr'")
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    # NumPy parses headers as Python literals.
    parsed = [whole[:header] + word + whole[header + len(word) :] for word in (b"{'descr'(", b"[[[[[[[[[")]
    contents = (b"", whole[:-30], whole[: len(whole) // 2], b"something else", bytes(5_000), flipped, *parsed)
    for content in contents:
        broken.write_bytes(content)
        broken.chmod(0o600)
        with pytest.raises(dh.DamagedFile, match=r"broken.state' is truncated, altered or no state"):
            dh.refine(release, broken, epsilon=2)


@pytest.fixture
def account(tmp_path):
    return dh.accounts.Account.total(epsilon=3, ledger=tmp_path / "l", name="people")


def start(path, account):
    return dh.publish(COUNTS, SQUARE, "identity", epsilon=1, state=path, account=account)


@pytest.mark.parametrize("ledger", ["l", None])
def test_refining_charges_the_difference(tmp_path, ledger):
    account = dh.accounts.Account.total(epsilon=3, ledger=None if ledger is None else tmp_path / ledger, name="people")
    release = start(tmp_path / "s", account)
    for epsilon in (Fraction(3, 2), 2.75):
        release = dh.refine(release, tmp_path / "s", epsilon=epsilon, account=account, **WEAK)
        assert account.spent == release.payment.spent == Fraction(epsilon)
    with pytest.raises(dh.BudgetExceeded, match=r"account 'people' has spent 2.75 of 3, 0.25 is left"):
        dh.refine(release, tmp_path / "s", epsilon=3.5, account=account, **WEAK)
    assert account.spent == Fraction(11, 4)
    assert State.load(tmp_path / "s").chain.number == 3
    assert dh.refine(release, tmp_path / "s", epsilon=3, account=account, **WEAK).payment.spent == 3


def test_whatever_fails_in_drawing_fails_before_the_charge(tmp_path, account, monkeypatch):
    release = start(tmp_path / "s", account)
    monkeypatch.setattr(samplers, "_refine_laplace", lambda *_: (_ for _ in ()).throw(dh.InputError("no draw")))
    with pytest.raises(dh.InputError, match="no draw"):
        dh.refine(release, tmp_path / "s", epsilon=1 + 1e-9, account=account)
    assert account.spent == 1


def test_who_paid_goes_on_paying(tmp_path, account):
    release = start(tmp_path / "s", account)
    others = dh.accounts.Account.total(epsilon=9, name="others")
    elsewhere = dh.accounts.Account.total(epsilon=3, ledger=tmp_path / "two", name="people")
    for given in (None, others, elsewhere):
        with pytest.raises(dh.InputError):
            dh.refine(release, tmp_path / "s", epsilon=2, account=given)
    assert (account.spent, others.spent, elsewhere.spent) == (1, 0, 0)
    free = dh.publish(COUNTS, SQUARE, "identity", epsilon=1, state=tmp_path / "free")
    dh.refine(free, tmp_path / "free", epsilon=2, account=others)  # nobody paid for it: it is charged whole
    assert others.spent == 2


def test_a_copy_of_a_state_is_not_paid_for_twice(tmp_path, account):
    """Two copies would give two independent refinements for the price of one: the account knows which came first."""
    release = start(tmp_path / "s", account)
    shutil.copy(tmp_path / "s", tmp_path / "copy")
    dh.refine(release, tmp_path / "s", epsilon=2, account=account)
    for epsilon in (2, 2.5):
        with pytest.raises(dh.InputError, match="has been used already"):
            dh.refine(release, tmp_path / "copy", epsilon=epsilon, account=account)
    assert account.spent == 2
    assert State.load(tmp_path / "copy").chain.number == 1


def test_a_charge_without_a_release_is_used_again(tmp_path, account, monkeypatch):
    """A process dies after it was charged: who refines the same state again is not charged twice."""
    release = start(tmp_path / "s", account)
    interrupted(monkeypatch, publication, "draw_chain", release, tmp_path / "s", 2, account)
    assert account.spent == 2
    assert dh.refine(release, tmp_path / "s", epsilon=1.5, account=account).payment.spent == 2
    assert dh.refine(None, tmp_path / "s", epsilon=2, account=account).payment.spent == 2
    assert account.spent == 2


def interrupted(monkeypatch, place, name, release, path, epsilon, account):
    """A process dies where it calls a function, while it refines a release, or publishes the first one."""
    with monkeypatch.context() as patch:
        patch.setattr(place, name, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            _ = dh.refine(release, path, epsilon=epsilon, account=account) if release else start(path, account)


def test_a_state_that_lost_stays_lost(tmp_path, account, monkeypatch):
    """Of two states that came of one the second is not settled later either, when the first one is charged again."""
    release = start(tmp_path / "s", account)
    shutil.copy(tmp_path / "s", tmp_path / "copy")
    interrupted(monkeypatch, dh.accounts.Account, "record_state", release, tmp_path / "s", 1.5, account)
    copied = dh.refine(release, tmp_path / "copy", epsilon=1.5, account=account)
    interrupted(monkeypatch, publication, "draw_chain", copied, tmp_path / "copy", 2, account)
    for again in (
        lambda: dh.refine(release, tmp_path / "s", epsilon=1.5, account=account),
        lambda: dh.refine(None, tmp_path / "s", epsilon=2, account=account),
        lambda: dh.refine(None, tmp_path / "s", account=account),
    ):
        with pytest.raises(dh.InputError, match="has been used already"):
            again()
    assert dh.refine(None, tmp_path / "copy", account=account).guarantee.epsilon == Fraction(3, 2)
    assert dh.refine(None, tmp_path / "copy", epsilon=2, account=account).payment.spent == 2


@pytest.mark.parametrize("number", [1, 2])
def test_a_state_that_was_not_settled_goes_on(tmp_path, account, monkeypatch, number):
    release = start(tmp_path / "s", account) if number == 2 else None
    interrupted(monkeypatch, dh.accounts.Account, "record_state", release, tmp_path / "s", 1.5, account)
    assert dh.refine(None, tmp_path / "s", epsilon=2, account=account).mechanism.chain.number == number + 1
    assert account.spent == 2


@pytest.mark.parametrize("name", ["wavelet", "spectral", "users of three points"])
def test_the_least_step_keeps_the_noise(name, tmp_path):
    """Lesser steps are refused before the charge; the least one hardly ever moves a draw, and nothing wraps around."""
    points, users = np.random.default_rng(2).uniform(0, 8, (40, 2)), np.arange(40) // 3
    three = dh.count(points, SQUARE.domain, user=users, max_per_user=3)
    publish, unit = CHAINS.get(name, (functools.partial(dh.publish, three, SQUARE, "identity"), "epsilon"))
    account = dh.accounts.Account.total(**{unit: 10})
    release = publish(**{unit: 0.001}, state=tmp_path / "s", account=account, **WEAK)
    for amount in (np.nextafter(0.001, 1), 0.001 * (1 + 1e-12), 0.001 + 1e-9):
        finer = Fraction(float(amount))
        if finer < Fraction(0.001) * (1 + Fraction(1, 10 ** (13 if unit == "rho" else 11))):
            spent = account.spent
            with pytest.raises(dh.InputError, match=r"too close together|must exceed .* by more than 8"):
                dh.refine(release, tmp_path / "s", account=account, **{unit: finer}, **WEAK)
            assert account.spent == spent
            continue
        before, release = (release, dh.refine(release, tmp_path / "s", account=account, **{unit: finer}, **WEAK))
        # Gaussian noise moves by a thousandth of itself in the last step, which may be rounded to one.
        assert np.abs(release.values - before.values).max() <= 1 + 1e-2 * np.abs(before.values).max()


def test_the_window_of_a_stream_pays_for_no_chain(tmp_path):
    with pytest.raises(dh.InputError):
        start(tmp_path / "s", dh.accounts.Account(dh.accounts.Window(3, epsilon=3), 0))
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("name", CHAINS)
def test_a_more_private_copy_is_as_a_release_at_that_budget(name, tmp_path):
    publish, unit = CHAINS[name]
    fine = publish(**{unit: 1}, state=tmp_path / "s", rng=rng())
    copy = dh.tighten(fine, **{unit: Fraction(1, 4)}, state=tmp_path / "s", rng=rng())
    single = publish(**{unit: Fraction(1, 4)}, rng=rng())
    assert [law.parameter for law in copy.laws] == [law.parameter for law in single.laws]
    assert copy.guarantee == single.guarantee
    assert not copy.publishable
    copy.save(tmp_path / "c.parquet")
    assert "A more private copy of release 1 of chain" in dh.write_statement(dh.load(tmp_path / "c.parquet"))
    assert State.load(tmp_path / "s").chain.number == 1
    # A copy at nearly the same budget has nearly the same noise.
    close = dh.tighten(fine, **{unit: Fraction(999, 1000)}, state=tmp_path / "s", rng=rng())
    noise = released_noise(fine.mechanism, State.load(tmp_path / "s").draws)
    assert np.abs(close.values - fine.values).mean() < 0.3 * np.abs(noise).mean()


def test_copies_pay_for_the_sum_of_two_noises(monkeypatch):
    """Two Gaussian noises on whole numbers add up to nearly one: a 2^30th more variance pays for that."""
    near = dh.Neighbourhood(dh.Domain((0, 4), (4,)), delta=1)
    release = dh.publish(np.zeros(4, dtype=int), near, "identity", rho=Fraction(1, 50))
    drawn = []
    monkeypatch.setattr(samplers, "_draw_gaussian", lambda variance, shape, rng: drawn.append(variance) or 0)
    copy = dh.tighten(release, rho=Fraction(1, 100))
    (before,), (after,) = release.laws, copy.laws
    assert drawn == [after.parameter * (1 + Fraction(1, 1 << 30)) - before.parameter]


def test_copies_of_one_release_say_so(tmp_path):
    """Together they cost what the release does, and never the sum: they share its noise."""
    release = dh.publish(COUNTS, SQUARE, "identity", epsilon=0.1)
    copies = [dh.tighten(release, epsilon=0.01) for _ in range(3)]
    copies.append(dh.tighten(copies[0], epsilon=0.005))  # of a copy: of the release as well
    assert {each.noise_origin for each in (release, *copies)} == {release.digest}
    for number, copy in enumerate(copies):
        copy.save(tmp_path / f"{number}.parquet")
        text = dh.write_statement(dh.load(tmp_path / f"{number}.parquet"))
        assert release.digest in text
    other = dh.publish(COUNTS, SQUARE, "identity", epsilon=0.1)
    assert dh.tighten(other, epsilon=0.01).noise_origin == other.digest != release.digest
    assert len(Summed((copies[0], dh.tighten(other, epsilon=0.01))).releases) == 2
    again = dh.load(release.save(tmp_path / "again.parquet") or tmp_path / "again.parquet")
    for together in (copies[:2], [release, copies[1]], [release, release], [release, again]):
        with pytest.raises(dh.InputError, match=rf"2 of the releases share data and noise \({release.digest}"):
            Summed(tuple(together))


def test_bad_input_draws_nothing(chain, tmp_path, monkeypatch):
    path, release = chain
    before = path.read_bytes()
    other = dh.publish(COUNTS, SQUARE, "identity", epsilon=1, state=tmp_path / "other.state")
    alone, copy = dh.publish(COUNTS, SQUARE, "identity", epsilon=1), dh.tighten(release, epsilon=0.5)
    monkeypatch.setattr(publication, "draw_chain", lambda *_: pytest.fail("drawn"))
    altered = dh.Release(release.mechanism, release.values + 1, release.total)
    amounts = ({"epsilon": 1}, {"epsilon": -1}, {"rho": 1}, {}, {"epsilon": 9})
    for given, how in [(release, how) for how in amounts] + [
        (r, {"epsilon": 2}) for r in (other, alone, copy, altered)
    ]:
        with pytest.raises(dh.InputError):
            dh.refine(given, path, **how)
    assert path.read_bytes() == before


@pytest.mark.parametrize("change", ["version", "format", "draws", "alone", "copy"])
def test_states_that_contradict_themselves_are_refused(chain, change):
    """A state holds the draws of the latest release of a chain: neither a release alone, nor a copy."""
    path, release = chain
    said, arrays, token = read_state(path, "deltahist-state")
    said |= {"version": {"version": 99}, "format": {"format": "deltahist-rappor-state"}}.get(change, {})
    if change == "draws":
        arrays["draws"] = np.zeros(65, dtype=np.int64)
    elif change in ("alone", "copy"):
        alone = dh.publish(COUNTS, SQUARE, "identity", epsilon=1)
        (dh.tighten(release, epsilon=0.5) if change == "copy" else alone).save(path)
        arrays["release"] = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    path.unlink()
    write_state(path, "deltahist-state", said, arrays, token)
    with pytest.raises(dh.DamagedFile):
        State.load(path)


def test_copies_that_need_the_noise_are_refused_without_it():
    for release, how in (
        (dh.publish(COUNTS, SQUARE, FLOW, epsilon=1), {"epsilon": 0.5}),
        (dh.publish(COUNTS, SQUARE, "identity", rho=1), {"rho": 0.5}),  # too little noise for a sum of two
        (dh.publish(COUNTS, SQUARE, "identity", epsilon=1), {"epsilon": 2}),
        (dh.publish(COUNTS, SQUARE, "identity", epsilon=1), {"rho": 0.5}),
        (dh.tighten(dh.publish(COUNTS, SQUARE, "identity", epsilon=1), epsilon=0.5), {"epsilon": 0.7}),
    ):
        with pytest.raises(dh.InputError):
            dh.tighten(release, **how)


def test_a_state_that_was_used_already(chain, tmp_path):
    """An earlier release of the chain cannot be refined again, nor the last one with an old copy of the state."""
    path, first = chain
    shutil.copy(path, tmp_path / "copy.state")
    second = dh.refine(first, path, epsilon=2)
    with pytest.raises(dh.InputError, match=r"is of release 2 of its chain, up to 2, but release 1 is given"):
        dh.refine(first, path, epsilon=3)
    with pytest.raises(dh.InputError, match=r"is of release 1 of its chain, but release 2 is given: it is an old copy"):
        dh.refine(second, tmp_path / "copy.state", epsilon=3)
    with pytest.raises(dh.InputError, match="is of release 2 of its chain, up to 2, but release 1 is given"):
        dh.tighten(first, epsilon=0.5, state=path)
