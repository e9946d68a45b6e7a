"""Audits of Rappor's clients on samples: events of a chain that tell most, and the whole law of its versions.

Two events of two texts: every version shows the first text's bits, and all but the first one do, which shows the
second text's. The claim is P(event | first) ≤ e^ε P(event | second), tested between two Clopper-Pearson bounds
(harness.py). Laws are compared by chi-square. Each audit has at most `ALARM` of false alarms, all of them together
`ERROR` = 0.1%. What each catches is planted; docs/privacy/audits.md has the power.
"""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from bits import texts_of_filters

from deltahist.network import clients as publishing
from deltahist.network.clients import Clients
from deltahist.network.rappor import Channel, Rappor
from deltahist.noise.exact import throw_coins
from tests.audits.harness import ERROR, log_ratio_bound

F = Fraction
#: Users of each text; four audits of soundness share the error.
USERS, ALARM = 60_000, ERROR / 4
#: f, p, q of three versions; k = 1, so that the texts differ in two bits.
LEVELS = [(F(4, 5), F(0), F(1)), (F(3, 5), F(0), F(1)), (F(2, 5), F(0), F(1))]
NOISY = [(F(3, 5), F(1, 4), F(3, 4)), (F(2, 5), F(1, 5), F(4, 5)), (F(1, 5), F(1, 6), F(5, 6))]


def versions(levels, text, rng):
    """A report and its finer versions, (versions, users, 2), of users that all have one text."""
    f, p, q = levels[0]
    start = Rappor(bits=2, hashes=1, cohorts=1, f=f, p=p, q=q)
    clients = Clients([texts_of_filters(start)[text]] * USERS, start, rng=rng)
    said = [clients.report(rng=rng).bits]
    for f, p, q in levels[1:]:
        clients = clients.relax(f=f, p=p, q=q, rng=rng)
        said.append(clients.refine(rng=rng).bits)
    return np.array(said), clients.mechanism


def bound_of_the_worst_event(levels, seed):
    """Lower confidence bound of the log ratio of the worse event, and what is claimed."""
    rng = np.random.default_rng(seed)
    first, mechanism = versions(levels, (1, 0), rng)
    second, _ = versions(levels, (0, 1), rng)
    bounds = []
    for opening in ([1, 0], [0, 1]):
        event = [opening, *[[1, 0]] * (len(levels) - 1)]
        hits = [int((said == np.array(event)[:, None]).all(axis=(0, 2)).sum()) for said in (first, second)]
        bounds.append(log_ratio_bound(*hits, USERS, 0.0, ALARM / 2))
    return max(bounds), float(mechanism.report_guarantee.epsilon)


@pytest.mark.parametrize("levels", [LEVELS, NOISY], ids=["permanent bits", "reports"])
def test_the_worst_event_of_a_chain_keeps_its_claim(levels):
    bound, claim = bound_of_the_worst_event(levels, 1)
    assert bound <= claim


def redrawn(coarse, law, true, before, rng):
    """A bug: noise of the new level, whatever was said before."""
    return publishing._draw_bits(law, true, rng)


def kept_too_often(coarse, law, true, before, rng):
    """A bug: a bit that was right stays right, as if refining could only mend."""
    flips = coarse.zero
    mended = 1 - Channel.flipping(law.zero).zero / flips
    wrong = before != true
    shown = throw_coins((mended,), np.zeros_like(true), publishing.open_words(rng)) & wrong
    return np.where(shown, true, before)


@pytest.mark.parametrize("levels", [LEVELS, NOISY], ids=["permanent bits", "reports"])
def test_versions_with_noise_of_their_own_are_caught(monkeypatch, levels):
    monkeypatch.setattr(publishing, "_refine_bits", redrawn)
    bound, claim = bound_of_the_worst_event(levels, 1)
    assert bound > claim


def test_bits_that_are_only_mended_are_caught(monkeypatch):
    """Each version alone has the right rate: a version that is wrong and was right never comes."""
    monkeypatch.setattr(publishing, "_refine_bits", kept_too_often)
    said, mechanism = versions(LEVELS, (1, 0), np.random.default_rng(1))
    assert abs(said[-1].mean(axis=0)[0] - float(mechanism.report.one)) < 0.01
    bound, claim = bound_of_the_worst_event(LEVELS, 1)
    assert bound > claim
    assert chain_p_value(LEVELS, 1) < ALARM


def test_halved_noise_is_caught(monkeypatch):
    def halved(law, true, rng):
        return throw_coins((law.zero / 2, 1 - (1 - law.one) / 2), true, publishing.open_words(rng)).view(np.uint8)

    monkeypatch.setattr(publishing, "_draw_bits", halved)
    bound, claim = bound_of_the_worst_event(LEVELS[:1], 1)
    assert bound > claim


# ------------------------------------------------------------------------------------------------- laws


def chain_law(levels):
    """P(versions of one true 1), by the definition: the finest bit, then channels that do not look at the truth."""
    finest = F(levels[-1][0]) / 2
    again = [(F(coarse[0]) - F(fine[0])) / 2 / (1 - F(fine[0])) for coarse, fine in itertools.pairwise(levels)]
    out = {}
    for said in itertools.product((0, 1), repeat=len(levels)):
        chance = 1 - finest if said[-1] else finest
        for flips, (coarse, fine) in zip(again, itertools.pairwise(said), strict=True):
            chance *= flips if coarse != fine else 1 - flips
        out[said] = float(chance)
    return out


def p_value(said, expected):
    """Chi-square of the versions of one bit, (versions, users)."""
    code = sum(bits.astype(int) << place for place, bits in enumerate(said))
    law = np.zeros(1 << len(said))
    for key, chance in expected.items():
        law[sum(bit << place for place, bit in enumerate(key))] = chance
    seen = np.bincount(code, minlength=len(law))
    return scipy.stats.chisquare(seen, law * said.shape[1] / law.sum()).pvalue


def chain_p_value(levels, seed):
    said, _ = versions(levels, (1, 0), np.random.default_rng(seed))
    return p_value(said[:, :, 0], chain_law(levels))


def test_the_law_of_a_chain():
    assert chain_p_value(LEVELS, 2) > ALARM


@pytest.mark.slow
def test_false_alarms_and_power(monkeypatch):
    """40 audits each with other seeds: none of the sound ones is refuted, all planted bugs are caught."""
    for levels in (LEVELS, NOISY):
        sound = [bound_of_the_worst_event(levels, seed) for seed in range(10, 50)]
        assert all(bound <= claim for bound, claim in sound)
    monkeypatch.setattr(publishing, "_refine_bits", redrawn)
    for levels in (LEVELS, NOISY):
        faulty = [bound_of_the_worst_event(levels, seed) for seed in range(10, 50)]
        assert sum(bound > claim for bound, claim in faulty) == 40
