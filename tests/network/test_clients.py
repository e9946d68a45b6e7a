"""Clients of Rappor: what all of their reports tell, over all outcomes in fractions; and what is refused."""

import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from bits import Script, cut_pairs, laplace_pairs, largest_ratio, texts_of_filters

from deltahist._files import exclusive
from deltahist.errors import DamagedFile, InputError
from deltahist.network import clients as publishing
from deltahist.network.clients import Clients
from deltahist.network.rappor import Rappor
from deltahist.publishers import publication as states

F = Fraction


def clients_of(monkeypatch, text, mechanism, calls):
    """All outcomes of one user, as users."""
    script = Script(mechanism.bits, calls)
    monkeypatch.setattr(publishing, "throw_coins", script.coins)
    zeros = np.zeros(script.users, dtype=int)
    return script, Clients([text] * script.users, mechanism, zeros, weak_protection_accepted=True)


def odds(channel):
    return channel.one * (1 - channel.zero) / (channel.zero * (1 - channel.one))


@pytest.mark.parametrize("flips", [(F(4, 5), F(1, 5)), (F(1), F(3, 4), F(1, 2))])
def test_a_chain_of_permanent_bits_costs_its_last_level_between_all_texts(monkeypatch, flips):
    """Reports without noise of their own, refined: ((1 − f/2)/(f/2)) to the number of bits that differ, exactly."""
    start = Rappor(bits=3, hashes=2, cohorts=1, f=flips[0], p=0, q=1)
    laws = {}
    for bits, text in texts_of_filters(start).items():
        script, clients = clients_of(monkeypatch, text, start, len(flips))
        said = [clients.report().bits]
        for f in flips[1:]:
            clients = clients.relax(f=f, weak_protection_accepted=True)
            said.append(clients.refine().bits)
        laws[bits] = script.law(*said)
    assert len(laws) == 6
    each = (1 - flips[-1] / 2) / (flips[-1] / 2)
    for first, second in itertools.combinations(laws, 2):
        differ = sum(a != b for a, b in zip(first, second, strict=True))
        assert largest_ratio(laws[first], laws[second]) == each**differ
        assert differ <= 2 * start.hashes
    assert float(clients.mechanism.guarantee.epsilon) == pytest.approx(4 * math.log(each), rel=1e-12)


def audit(monkeypatch, levels, way, calls):
    """Laws of all that users of two texts say that differ in two bits (k = 1); the same with their permanent bits.

    `way` lists the steps: report, relax to the next of the levels (f, p, q), or refine.
    """
    levels = [dict(zip("fpq", level, strict=True)) for level in levels]
    start, laws, everything = Rappor(bits=2, hashes=1, cohorts=1, **levels[0]), [], []
    for text in map(texts_of_filters(start).get, [(1, 0), (0, 1)]):
        script, clients = clients_of(monkeypatch, text, start, calls)
        said, finer = [], iter(levels[1:])
        for step in way.split():
            if step == "relax":
                clients = clients.relax(**next(finer), weak_protection_accepted=True)
            else:
                said.append(getattr(clients, step)().bits)
        laws.append(script.law(*said))
        everything.append(script.law(clients._permanent, *said))
        last = script.law(said[-1])
    return largest_ratio(*laws), largest_ratio(*everything), clients.mechanism, last


LEVELS = {
    "all three": ((F(4, 5), F(1, 4), F(3, 4)), (F(2, 5), F(1, 5), F(4, 5)), (F(1, 5), F(1, 8), F(4, 5))),
    "f alone": ((F(4, 5), F(1, 2), F(3, 4)), (F(2, 5), F(1, 2), F(3, 4)), (F(1, 5), F(1, 2), F(3, 4))),
    "q alone": ((F(1, 2), F(1, 2), F(5, 8)), (F(1, 2), F(1, 2), F(3, 4)), (F(1, 2), F(1, 2), F(7, 8))),
}


@pytest.mark.parametrize(
    ("levels", "way"),
    [
        ("all three", "report relax refine relax refine"),
        ("f alone", "report relax relax refine"),
        ("q alone", "report relax refine relax refine"),
    ],
)
def test_a_refined_report_costs_one_report_of_the_last_level(monkeypatch, levels, way):
    """Equality, over all outcomes of all versions of one report; the last version alone is as if it were the only."""
    ratio, _, mechanism, last = audit(monkeypatch, LEVELS[levels], way, 6 if "relax refine relax" in way else 5)
    report = mechanism.report
    assert last[((0, 1),)] == report.one * (1 - report.zero)
    assert ratio == odds(report)
    assert float(mechanism.report_guarantee.epsilon) == pytest.approx(math.log(ratio), rel=1e-12)


def test_all_reports_together_cost_no_more_than_the_permanent_bits(monkeypatch):
    """A report, a second one, less noise, and a refinement of the second: below ε_∞, above ε_1."""
    levels = [(F(4, 5), F(1, 4), F(3, 4)), (F(2, 5), F(1, 4), F(3, 4))]
    ratio, everything, mechanism, _ = audit(monkeypatch, levels, "report report relax refine", 5)
    assert odds(mechanism.report) < ratio < odds(mechanism.permanent) == everything


def test_a_refined_report_beside_a_new_one_costs_more_than_the_sum(monkeypatch):
    """Only ε_∞ bounds them (docs/privacy/rappor.md has the figures); without the refinement the sum does."""
    levels = [(F(47, 50), F(9, 20), F(99, 100)), (F(7, 100), F(19, 50), F(51, 100))]
    refined, _, mechanism, _ = audit(monkeypatch, levels, "report report relax refine", 5)
    new, *_ = audit(monkeypatch, levels, "report relax report", 4)
    together = odds(Rappor(**dict(zip("fpq", levels[0], strict=True))).report) * odds(mechanism.report)
    assert new <= together < refined < odds(mechanism.permanent)
    assert math.log(together) == pytest.approx(0.6529, abs=1e-4)
    assert math.log(refined) == pytest.approx(0.6813, abs=1e-4)


def log_ratio(first, second):
    return math.log(max((first / second).max(), (second / first).max()))


def test_cut_noise_costs_more_than_its_last_bits_and_reports():
    """The figures of docs/privacy/rappor.md for noise as in 2015, section 4.1, at ε = 1, then 2."""
    steps, middle = 51, (26, 26)
    permanent = laplace_pairs(math.exp(-1 / steps), math.exp(-2 / steps), 900)
    rate = math.exp(-math.log(4) / steps)  # cut in the middle it flips a quarter of the bits
    laws = [cut_pairs(permanent, (b, b), middle, steps) for b in (0, 1)]
    flips = math.exp(-1) / (2 * math.cosh(2 / 102))
    assert math.log((1 - flips) / flips) == pytest.approx(1.4901, abs=1e-4)
    assert log_ratio(*laws) == pytest.approx(1.5514, abs=1e-4)
    # Where both reports differ, the attacker knows that the instantaneous noise was small.
    noise = laplace_pairs(rate, rate, 900)
    said = {y: cut_pairs(noise, y, middle, steps) for y in itertools.product((0, 1), repeat=2)}
    reports = [sum(law[y] * said[y] for y in said) for law in laws]
    assert log_ratio(*(law.sum(axis=0) for law in reports)) == pytest.approx(0.6547, abs=1e-4)
    assert log_ratio(*reports) == pytest.approx(1.2798, abs=1e-4)


def test_noise_of_reports_can_go_away_altogether():
    clients = Clients(["a", "b"] * 20, Rappor(f=0.5, p=0.25, q=0.75))
    assert clients.refine() is clients._report  # the first report
    kept = clients._permanent
    clients = clients.relax(p=0, q=1)
    for bits in (clients._permanent, clients.refine().bits, clients.report().bits):
        assert (bits == kept).all()
    assert (clients.relax()._permanent == kept).all()


def test_a_seeded_generator_stays_on_record():
    rng = np.random.default_rng(1)
    clients = Clients(["a"], Rappor(f=0.5))
    assert clients.report().publishable
    assert not clients.report(rng=rng).publishable
    assert not clients.relax(f=0.4).report().publishable
    assert not Clients(["a"], Rappor(f=0.5), rng=rng).report().publishable


def test_a_state_goes_on_from_its_file(tmp_path):
    file, rng = tmp_path / "users.state", np.random.default_rng(5)
    clients = Clients(["a", "b"] * 30, Rappor(bits=20, f=0.5, p=0.2, q=0.7), rng=rng)
    clients.save(file)
    assert [(f.name, f.stat().st_mode & 0o777) for f in tmp_path.iterdir()] == [("users.state", 0o600)]
    clients.report(rng=rng)
    again = Clients.load(file)
    assert (again._report.bits == clients._report.bits).all()
    clients = again.relax(f=0.25, rng=np.random.default_rng(6))
    again = Clients.load(file)
    assert again.mechanism == clients.mechanism
    for name in ("_permanent", "_true", "cohorts"):
        assert (getattr(again, name) == getattr(clients, name)).all()
    found = again.refine()
    assert not found.publishable
    assert (found.bits == Clients.load(file)._report.bits).all()


def test_users_are_kept_in_one_file(tmp_path):
    """Of two files each could be loaded, and relaxed by itself; a link leads to the same one."""
    file, link = tmp_path / "users.state", tmp_path / "link"
    clients = Clients(["a"], Rappor(f=0.5))
    clients.save(file)
    with pytest.raises(InputError):
        clients.save(tmp_path / "other")
    clients.save(file)
    link.symlink_to(file)
    first, second = Clients.load(link), Clients.load(file)
    with exclusive(file, "state"), pytest.raises(InputError):
        first.report()
    first.relax(f=0.4)
    for call in (lambda: second.relax(f=0.4), second.report):
        with pytest.raises(InputError):
            call()


def test_nothing_is_said_that_could_not_be_kept(tmp_path, monkeypatch):
    file = tmp_path / "users.state"
    clients = Clients(["a"], Rappor(f=0.5))
    clients.save(file)

    def full(*given, **how):
        raise OSError("no space left")

    monkeypatch.setattr(publishing, "write_state", full)
    for change in (clients.report, lambda: clients.relax(f=0.4)):
        with pytest.raises(OSError, match="no space left"):
            change()
    assert clients._report is None
    monkeypatch.undo()
    assert len(clients.relax(f=0.4).report()) == 1
    assert Clients.load(file).mechanism.f == F(0.4)


def test_files_that_are_no_states(tmp_path):
    file, form = tmp_path / "users.state", "deltahist-rappor-state"
    with pytest.raises(InputError):
        Clients.load(file)
    Clients(["a", "b"], Rappor()).save(file)
    description, arrays, token = states.read_state(file, form)
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(DamagedFile):
        Clients.load(file)
    changes = [({}, {name: arrays[name][:1]}) for name in ("true", "permanent", "cohorts")]
    changes += [({name: value}, {}) for name, value in (("report", {}), ("mechanism", 5), ("format", "x"))]
    for changed, parts in changes:
        states.write_state(file, form, description | changed, {**arrays, **parts}, token)
        with pytest.raises(InputError):
            Clients.load(file)


def test_relaxed_users_and_forks_say_nothing_more(tmp_path):
    """Loaded from a file they could be relaxed a second time, too."""
    relaxed, forked = Clients(["a"] * 3, Rappor(f=0.5)), Clients(["a"] * 3, Rappor(f=0.5))
    for clients in (relaxed, forked):
        clients.report()
    relaxed.relax(f=0.4)
    forked._process -= 1  # as a child sees it
    for clients in (relaxed, forked):
        for call in (clients.relax, clients.report, clients.refine, lambda c=clients: c.save(tmp_path / "users.state")):
            with pytest.raises(InputError):
                call()
    assert not list(tmp_path.iterdir())
    with pytest.raises(TypeError):
        pickle.dumps(relaxed)


def test_a_refusal_leaves_the_users_as_they_were():
    """Settings that are not finer, or that protect hardly anybody: that must be said to be meant."""
    clients, weak = Clients(["a"] * 3, Rappor(f=0.5)), Rappor(f=0.01)
    with pytest.raises(InputError):
        clients.relax(f=0.6)
    for call in (lambda: clients.relax(f=0.01), lambda: Clients(["a"], weak)):
        with pytest.raises(InputError):
            call()
    assert len(clients.relax(f=0.01, weak_protection_accepted=True).report()) == 3
    Clients(["a"], weak, rng=np.random.default_rng(0))
