"""Rappor's public half: what it costs in both forms, the filter, what relaxes what, and what is refused."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from deltahist.errors import InputError
from deltahist.kinds.channels import Channel
from deltahist.kinds.rappor import Rappor, Reports

F = Fraction


def test_the_figures_of_the_original_paper():
    """Erlingsson et al. 2014, section 5: k = 2, f = ½, p = ½, q = ¾."""
    mechanism = Rappor(hashes=2, f=0.5, p=0.5, q=0.75)
    one, zero = F(11, 16), F(9, 16)
    assert (mechanism.report.one, mechanism.report.zero) == (one, zero)
    assert float(mechanism.guarantee.epsilon) == pytest.approx(4 * math.log(3), rel=1e-13)
    expected = 2 * math.log(one * (1 - zero) / (zero * (1 - one)))
    assert float(mechanism.report_guarantee.epsilon) == pytest.approx(expected, rel=1e-13)
    assert mechanism.report_guarantee == mechanism.lone_report_guarantee


@pytest.mark.parametrize(
    ("f", "channels", "laplace"),
    [
        (0.9, 0.8027, 0.8429),
        (0.75, 2.0433, 2.3015),
        (0.5, 4.3944, 5.5452),
        (0.25, 7.7836, 11.0904),
        (0.1, 11.7778, 18.4207),
    ],
)
def test_the_same_flips_cost_less_as_channels(f, channels, laplace):
    """The table of docs/rappor.md: ε_∞ of two hashes."""
    found = [float(Rappor(f=f, form=form).guarantee.epsilon) for form in ("channels", "laplace")]
    assert found[0] == pytest.approx(channels, abs=1e-4)
    assert found[1] == pytest.approx(laplace, abs=1e-4)
    assert found[1] == pytest.approx(8 * math.log(1 / f), rel=1e-8)


@pytest.mark.parametrize("form", ["channels", "laplace"])
@pytest.mark.parametrize("epsilon", [0.01, 1, 4, 20])
def test_costing_spends_all_of_it_and_no_more(form, epsilon):
    found = Rappor.costing(epsilon, hashes=3, p=0, q=1, form=form).guarantee.epsilon
    assert found <= epsilon
    assert float(found) == pytest.approx(epsilon, rel=1e-8)


def test_guarantees_are_rounded_up_and_none_where_nothing_is_told():
    assert Rappor(f=1).guarantee.epsilon == 0
    found = Rappor(hashes=1, f=F(1, 2)).guarantee.epsilon
    assert math.log(9) <= float(found) < math.log(9) * (1 + 1e-13)
    assert found > F(math.log1p(8))


def test_laplace_reports_have_nearly_the_rates_that_were_asked_for():
    asked, found = Rappor(f=0.5, p=0.2, q=0.9), Rappor(f=0.5, p=0.2, q=0.9, form="laplace")
    assert float(found.report.zero) == pytest.approx(float(asked.report.zero), abs=1e-5)
    assert float(found.report.one) == pytest.approx(float(asked.report.one), abs=1e-5)
    assert found.report_guarantee == found.guarantee  # nothing better is known of a report that is refined
    assert float(found.lone_report_guarantee.epsilon) == pytest.approx(
        float(asked.report_guarantee.epsilon), abs=1e-4
    )


def test_positions_are_fixed_by_text_cohort_and_hash():
    """Written down, since reports of one version are decoded by another."""
    mechanism = Rappor(bits=128, hashes=2, cohorts=3)
    found = mechanism.positions(["cafe", "Ωmega"])
    assert found.tolist() == FOUND
    assert Rappor(bits=128, hashes=1, cohorts=2).positions(["cafe"]).tolist() == [
        [row[:1] for row in FOUND[0][:2]]
    ]


FOUND = [[[105, 6], [92, 84], [14, 66]], [[2, 127], [55, 86], [94, 113]]]


def test_positions_are_spread_evenly():
    """Chi-square of 20,000 positions over 50 bits, one false alarm in 10⁶."""
    import scipy.stats

    found = Rappor(bits=50, hashes=2, cohorts=10).positions([str(i) for i in range(1000)])
    assert scipy.stats.chisquare(np.bincount(found.ravel(), minlength=50)).pvalue > 1e-6


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ({}, {"f": 0.6}, r"f is 0.6, and was 0.5: it may only fall"),
        ({}, {"p": 0.6}, r"were 0.5, 0.5, 0.75: a reported 1 would tell less .*; lower p, or raise q"),
        ({}, {"p": 0.25, "q": 0.6}, r"are 0.5, 0.25, 0.6, .* a reported 0 would"),
        ({"f": 1}, {"p": 0.6}, "a reported 1 would"),
        ({"p": 0, "q": 1}, {"p": 0.1}, "a reported 1 would"),
        ({"form": "laplace"}, {"p": 0.6}, "the Laplace noise between permanent bits and reports would grow"),
        ({"form": "laplace", "p": 0, "q": 1}, {"p": 0.1, "q": 0.9}, "would grow"),
        ({"form": "laplace"}, {"f": 0.6}, "f is 0.6"),
    ],
)  # fmt: skip
def test_what_does_not_relax_names_the_figure(before, after, message):
    with pytest.raises(InputError, match=message):
        Rappor(**{"f": 0.5, "p": 0.5, "q": 0.75} | before).relaxed(**after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {}),
        ({}, {"f": 0.2}),
        ({}, {"q": 0.8}),
        ({}, {"p": 0.4, "q": 0.75}),
        ({"f": 1}, {"f": 0.5}),
        ({"f": 1}, {"q": 0.8}),
        ({}, {"f": 0.05, "q": 0.7}),  # more noise in reports, less altogether
        ({"form": "laplace"}, {"f": 0.2, "q": 0.8}),
        ({"form": "laplace"}, {"p": 0, "q": 1}),
    ],
)
def test_what_relaxes(before, after):
    start = Rappor(**{"f": 0.5, "p": 0.5, "q": 0.75} | before)
    finer = start.relaxed(**after)
    assert finer.guarantee.epsilon >= start.guarantee.epsilon
    assert finer.lone_report_guarantee.epsilon >= start.lone_report_guarantee.epsilon
    if start.form == "channels":
        whole = finer.report.then(start.report.remainder(finer.report))
        assert whole == start.report


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"f": 0}, "f is 0: it must be above 0"),
        ({"f": 1.5}, "f is 1.5: it must be a probability"),
        ({"p": -0.1}, "p is -0.1: it must be a probability, from 0 to 1"),
        ({"q": 2}, "q is 2: it must be a probability"),
        ({"q": "1"}, "q is '1': it must be a probability"),
        ({"p": 0.75, "q": 0.5}, r"p is 0.75 and q is 0.5: p must be less than q.*swapped"),
        ({"p": 0.5, "q": 0.5}, "p must be less than q"),
        ({"bits": 0}, "bits is 0"),
        ({"hashes": 2.5}, "hashes is 2.5"),
        ({"hashes": 9, "bits": 8}, "hashes is 9: a filter of 8 bits has no room"),
        ({"cohorts": 0}, "cohorts is 0"),
        ({"form": "gauss"}, "form is 'gauss': it must be one of 'channels', 'laplace'"),
        ({"form": "laplace", "f": 1}, "f is 1: Laplace noise always tells something"),
        ({"form": "laplace", "p": 0}, "probability 0 and 0.75"),
    ],
)
def test_settings_that_cannot_be(fields, message):
    with pytest.raises(InputError, match=message):
        Rappor(**fields)


@pytest.mark.parametrize(("epsilon", "message"), [(0, "epsilon is 0"), (math.nan, "epsilon is nan")])
def test_costing_nothing_is_refused(epsilon, message):
    with pytest.raises(InputError, match=message):
        Rappor.costing(epsilon)


def test_reports_are_counted_by_cohort():
    bits = np.random.default_rng(1).integers(0, 2, (40, 5), dtype=np.uint8)
    cohorts = np.random.default_rng(2).integers(0, 3, 40)
    found = Reports(Rappor(bits=5, cohorts=4), cohorts, bits)
    assert found.ones.tolist() == [bits[cohorts == j].sum(axis=0).tolist() for j in range(4)]
    assert found.users.tolist() == [(cohorts == j).sum() for j in range(4)]
    assert len(found) == 40


@pytest.mark.parametrize(
    ("cohorts", "bits", "message"),
    [
        ([0, 2], [[0, 1], [1, 1]], "cohort 2 is unknown: there are 2, numbered from 0"),
        (
            [0],
            [[0, 1], [1, 1]],
            r"bits have the shape \(2, 2\): they must be 0 or 1, a row of 2 for each of 1 users",
        ),
        ([0], [[0, 2]], "they must be 0 or 1"),
        ([[0]], [[0, 1]], "cohorts are an array of int64 and shape"),
    ],
)
def test_reports_that_cannot_be(cohorts, bits, message):
    with pytest.raises(InputError, match=message):
        Reports(Rappor(bits=2, hashes=1, cohorts=2), cohorts, bits)


def test_a_candidate_stands_once():
    with pytest.raises(InputError, match="candidate 'b' stands twice: list each text once"):
        Rappor(bits=4, cohorts=1).decode(np.zeros((1, 4)), [9], ["a", "b", "b"])


def test_nothing_can_be_decoded_where_nothing_is_told():
    with pytest.raises(InputError, match="at f = 1 reports tell nothing"):
        Rappor(bits=4, cohorts=1, f=1).decode(np.zeros((1, 4)), [9], ["a"])


def _exact(part):
    """P(1 | 0) and P(1 | 1), to 300 digits."""
    if isinstance(part, Channel):
        return [Decimal(x.numerator) / x.denominator for x in (part.zero, part.one)]
    rate = Decimal(part.epsilon.numerator) / part.epsilon.denominator / part.steps

    def beyond(least):
        return 1 - beyond(1 - least) if least <= 0 else (-rate * least).exp() / (1 + (-rate).exp())

    return [beyond(part.at - bit * part.steps) for bit in (0, 1)]


@pytest.mark.parametrize("form", ["channels", "laplace"])
@pytest.mark.parametrize("rates", [(0, 1), (Fraction(1, 5), Fraction(9, 10)), (1e-9, 1 - 1e-9)])
@pytest.mark.parametrize("epsilon", [0.001, 0.3, 4.0, 60.0, 1000.0])
def test_no_guarantee_is_below_the_truth(form, rates, epsilon):
    """Where a 1 is nearly always reported as such, what is left of a probability is what counts."""
    mechanism = Rappor.costing(epsilon, hashes=2, p=rates[0], q=rates[1], form=form)
    assert mechanism.guarantee.epsilon <= Fraction(epsilon)
    with localcontext() as exactly:
        exactly.prec = 600
        low, high = _exact(mechanism.instantaneous)
        zero, one = (low + (high - low) * bit for bit in _exact(mechanism.permanent))
        truth = 2 * (one * (1 - zero) / (zero * (1 - one))).ln()
        said = mechanism.lone_report_guarantee.epsilon
        assert truth <= Decimal(said.numerator) / said.denominator <= truth * (1 + Decimal("1e-9"))


def test_an_epsilon_without_noise_is_refused():
    for form in ("channels", "laplace"):
        with pytest.raises(InputError, match="f is 0: it must be above 0"):
            Rappor.costing(10_000, form=form)
