"""The privacy statement as data, text, Markdown or a self-contained HTML page."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import math
import re
import textwrap
from collections.abc import Callable
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from deltahist._files import form_of, write_whole
from deltahist._text import format_length, format_number
from deltahist.budget import LETTERS
from deltahist.laws import Guarantee
from deltahist.mechanisms import BaseMechanism
from deltahist.mechanisms.base import Chain, Step
from deltahist.preprocessing import UNPAID
from deltahist.releases import BaseRelease, Series
from deltahist.space.crs import describe_map as describe_crs
from deltahist.space.neighbourhood import GraphNeighbourhood, Neighbourhood, list_limits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: A label and its lines.
Row: TypeAlias = tuple[str, list[str]]
Facts: TypeAlias = dict[str, Any]
Published: TypeAlias = BaseMechanism | BaseRelease | Series

#: Maximum number of limits that a statement lists, and the format of a statement for each file suffix.
MOST_LIMITS = 4
FORMS = {".html": "html", ".htm": "html", ".md": "markdown", ".txt": "text"}


def list_facts(published: Published | Any) -> Facts:
    """Return the privacy statement of a mechanism, a release or a series as JSON-ready data.

    Facts that only a release has, such as its digest, are None for a mechanism. For a series, the entry `series` holds
    its steps and their joint cost. For a remote release (see `dh.connect`), return the facts that its service states.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 1), (4,)), delta=0.25)
    >>> list_facts(dh.publish(np.ones(4, dtype=int), near, epsilon=1))["may_be_published"]
    'yes'
    """
    if (stated := getattr(published, "stated_facts", None)) is not None:
        return dict(stated)
    mechanism: Any = getattr(published, "mechanism", published)
    facts = _list_promises(mechanism)
    facts["about"] = {} if isinstance(published, BaseMechanism) else published.about.describe()
    if isinstance(published, BaseRelease):
        names = ("total", "publishable", "may_be_published")
        facts |= {"estimator": published.name_estimator(False), **{name: getattr(published, name) for name in names}}
        with contextlib.suppress(TypeError):  # a user-defined strategy cannot be saved
            facts["digest"] = published.digest
        if published.payment is not None:
            facts |= {"account": published.payment.describe(), "kept_by": str(published.payment)}
        if published.withdrawn is not None:
            facts["withdrawn"] = asdict(published.withdrawn)
    elif isinstance(published, Series):
        together = list_together(published)
        facts |= {name: together[name] for name in ("promise", "weak_protection", "may_be_published")}
        facts |= {"publishable": published.publishable, "noise": published.costliest_release.mechanism.noise_rows()}
        step, label = published.costliest_release.mechanism.step, published.clock.label
        facts["series"] = {
            "together": together,
            "first": label(published.first),
            "last": label(published.last),
            "period": published.clock.period or None,
            "steps": published.last - published.first + 1,
            "missing": published.missing_steps,
            "withdrawn": [label(each) for each in sorted(published.withdrawn)],
            "window": None if step is None else {k: v for k, v in step.describe().items() if k != "number"},
            "spent": {label(each): float(amount) for each, amount in published.spent.items()},
        }
    return facts


def _list_promises(mechanism: BaseMechanism) -> Facts:
    near, domain, guarantee = mechanism.neighbourhood, mechanism.domain, mechanism.guarantee
    counting = mechanism.counting
    # The vertices of a geometry are rounded to the lattice, like the points.
    steps_lost = 1 if near.sources is None or isinstance(near.sources, str) else 2
    facts: Facts = {
        "mechanism": mechanism.words,
        "promise": mechanism.promise,
        "domain": domain.describe(),
        "cells": list(domain.shape),
        "cell_size": [domain.ground(c) for c in domain.cell],
        "unit": domain.unit,
        "distance_unit": near.unit,
        "neighbour_relation": _explain_relation(mechanism),
        "delta": near.delta_ground,
        "delta_cells": [near.radius / steps for steps in near.domain.steps] if near.on_grid else None,
        "lattice_steps_lost": steps_lost if near.on_grid else None,
        "delta_guaranteed": near.delta_ground - domain.ground(steps_lost * max(domain.step)) if near.on_grid else None,
        "projection": counting.projection,
        "sources": near.describe()["sources"],
        "unit_of_privacy": counting.unit,
        "points_per_user": counting.contributions if counting.user else None,
        "epsilon": None if guarantee.epsilon is None else float(guarantee.epsilon),
        "rho": None if guarantee.rho is None else float(guarantee.rho),
        "limits": [
            {"distance": distance, "factor": float(factor), "times": float(factor**mechanism.norm)}
            for distance, factor in list_limits(near)
        ],
        "protection": [],
        "total_public": mechanism.total_known,
        "dropped": list(counting.dropped),
        "where": counting.where,
        "noise": mechanism.noise_rows(),
        "determines_cells": mechanism.determines_cells,
        **dict.fromkeys(("total", "digest", "publishable", "may_be_published", "account", "kept_by")),
        "weak_protection": mechanism.weakness,
        "values": mechanism.size,
    }
    if counting.replaces is not None:
        facts["replaces"] = asdict(counting.replaces)
    if mechanism.chain is not None:
        facts["chain"] = mechanism.chain.describe()
    if mechanism.step is not None:
        facts |= {"step": mechanism.step.label, "window": mechanism.step.describe()}
    if guarantee.rho is not None:
        facts["epsilon_at_1e-6"] = mechanism.approximate(1e-6)
    if not near.fixed_membership:
        facts["appear_anywhere"] = float(mechanism.cost_under(near.anywhere()))
    for distance in [*list_distances(near), near.diameter]:
        exact, bound = (None if cost == math.inf else float(cost) for cost in mechanism.cost_within(distance))
        deltas = distance / near.delta_ground
        row = {"distance": distance, "deltas": deltas, "exact": exact, "bound": bound}
        facts["protection"].append(row | {"guess": bound_guess(facts, exact)})
    return facts


def list_together(series: Series) -> Facts:
    """Return the joint cost of all releases of a series as JSON-ready data."""
    guarantee = series.mechanism.guarantee
    amounts = {name: None if amount is None else float(amount) for name, amount in asdict(guarantee).items()}
    guess = bound_guess(amounts, float(series.mechanism.budget.amount))
    verdict = {"weak_protection": series.weakness, "may_be_published": series.may_be_published}
    return {"releases": len(series.spent), **amounts, "guess": guess, "promise": series.promise, **verdict}


def list_distances(near: Neighbourhood) -> list[float]:
    """Return 1, 2, 5 and 10 δ and the distances of limits, in ground units, but only those below the diameter."""
    limits = [distance for distance, _ in list_limits(near, MOST_LIMITS) if distance is not None]
    distances = sorted([*(k * near.delta_ground for k in (1, 2, 5, 10)), *limits])
    # Merge distances that differ only by rounding.
    pairs = itertools.pairwise([*distances, math.inf])
    return [r for r, after in pairs if r < min(near.diameter, after * (1 - 1e-6))]


def bound_guess(facts: Facts, cost: float | None) -> float | None:
    """Return an upper bound on the probability of guessing which of two equally likely places is right.

    `cost` is the ε or ρ of a move between the places. If it is None, nothing is promised, so return None. For ε,
    the bound is `Guarantee.certainty`. For ρ, it is (1 + v) / 2, where v bounds the total variation distance for any
    zCDP noise, by the Pinsker and Bretagnolle–Huber inequalities.
    """
    if cost is None:
        return None
    if facts["rho"] is not None:
        return 0.5 + 0.5 * math.sqrt(min(cost / 2, -math.expm1(-cost)))
    return Guarantee(Fraction(cost)).certainty


def format_guess(share: float | None) -> str:
    """Return a share of right guesses as text such as "73.2 of 100", rounded up because the share is a bound."""
    return "nearly always" if share is None or share > 0.9995 else f"{math.ceil(1000 * share - 1e-9) / 10:g} of 100"


# --- text and pages -----------------------------------------------------------------------------------------


def write_statement(published: Published | Any, form: str = "text", title: str | None = None) -> str:
    """Return the privacy statement of a mechanism, a release or a series.

    Parameters
    ----------
    form : "text", "markdown" or "html". The HTML page includes the protection curve and the map, and needs no
        other file.
    title : title of the statement. By default, it is the title of the release, if it has one.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 1), (4,)), delta=0.25)
    >>> write_statement(dh.publish(np.ones(4, dtype=int), near, epsilon=1), "markdown", "Four cells").splitlines()[0]
    '# Four cells'
    """
    if hasattr(published, "stated_facts"):  # the facts of a remote release are incomplete, so load its file
        remote: Any = published
        published = remote.load()
    facts, rows = list_facts(published), list_rows(published)
    title = title or facts["about"].get("title")
    warning = facts["weak_protection"] and f"WEAK PROTECTION: {facts['weak_protection']}"
    if "withdrawn" in facts:
        warning = f"WITHDRAWN on {facts['withdrawn']['date']}: {facts['withdrawn']['reason']}"
    table = _tabulate_protection(facts)
    if form == "text":
        lines = [warning, ""] if warning else []
        lines = ([title, ""] if title else []) + lines + ["Privacy statement", "================="]
        for label, texts in rows:
            starts = [f"{label:<20}", *[" " * 20] * (len(texts) - 1)]
            for start, text in zip(starts, texts, strict=True):
                lines += textwrap.wrap(text, 110, initial_indent=start, subsequent_indent=" " * 20)
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines += ["", "Protection by distance"]
        lines += ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in table]
        return "\n".join(lines)
    import jinja2

    loader = jinja2.PackageLoader("deltahist.statement", ".")
    templates = jinja2.Environment(loader=loader, autoescape=form == "html")
    templates.filters["plain"] = lambda text: re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", text).replace("\n", " ")
    return templates.get_template("statement.jinja").render(
        form=form,
        title="Privacy statement" if title is None else title,
        warning=warning,
        verdict=re.split(r"[ :]", facts["may_be_published"] or "yes")[0],
        rows=rows,
        table=table,
        pictures=_draw_pictures(published) if form == "html" else [],
    )


def save_statement(published: Published | Any, path: str | Path, title: str | None = None) -> None:
    """Write the text of `write_statement` to a file, which appears whole or not at all.

    The suffix determines the format: .html, .htm, .md or .txt. Raises InputError for any other suffix, or if the file
    cannot be written.
    """
    text = write_statement(published, form_of(path, FORMS), title)
    write_whole(Path(path), lambda part: part.write_text(text.rstrip("\n") + "\n", encoding="utf-8"))


def _tabulate_protection(facts: Facts) -> list[tuple[str, ...]]:
    letter = "ε" if facts["rho"] is None else "ρ"
    promised = f"{letter} {'promised' if facts['limits'] else 'bound'}"
    table: list[tuple[str, ...]] = [("distance", "in δ", "best guess is right", f"{letter} exact", promised)]
    for row in facts["protection"]:
        exact, bound = ("none" if row[key] is None else f"{row[key]:.4g}" for key in ("exact", "bound"))
        distance = format_length(row["distance"], facts["distance_unit"], 4)
        table.append((distance, f"{row['deltas']:.4g}", format_guess(row["guess"]), exact, bound))
    table[-1] = (f"any move ({table[-1][0]})", *table[-1][1:])
    if "appear_anywhere" in facts:
        cost = facts["appear_anywhere"]
        share = format_guess(bound_guess(facts, cost))
        table.append(("present or absent", "", share, f"{cost:.4g}", ""))
    return table


def _draw_pictures(published: Published) -> list[dict[str, str]]:
    from matplotlib import rc_context

    from deltahist import plots

    def embed(name: str, draw: Callable[[Any, Axes], Any], alt: str, caption: str) -> dict[str, str]:
        small = dict.fromkeys(("axes.labelsize", "xtick.labelsize", "ytick.labelsize"), "small")
        # Fix the salt and omit the date, so that the same release always produces the same page.
        look: Any = {"font.size": 13.4, "svg.hashsalt": name, **small}
        file = io.BytesIO()
        with rc_context(look):
            figure = plots.figures.new_figure(figsize=(4.6, 4.4), layout="compressed")  # the width of a phone
            draw(published, figure.subplots())
            figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
        return {"alt": alt, "caption": caption, "data": base64.b64encode(file.getvalue()).decode()}

    caption = "Privacy loss of a move, by distance."
    pictures = [embed("curve", plots.plot_protection, "Curve of privacy loss by distance", caption)]
    cells = published.mechanism.determines_cells if isinstance(published, BaseRelease) else None
    if cells is not None and published.domain.ndim == 2:
        caption = f"The published map. Estimates: {list_facts(published)['estimator']}."
        pictures.append(embed("map", plots.plot_map, "Map of estimated points per cell", caption))
    return pictures


# --- rows of text -------------------------------------------------------------------------------------------


def list_rows(published: Published) -> list[Row]:
    """Return the statement as a list of rows, each a label and its lines."""
    facts = list_facts(published)
    mechanism: Any = getattr(published, "mechanism", published)
    rows = {name.capitalize(): [text] for name, text in facts["about"].items() if name != "title"}
    rows |= _list_series_rows(published) if isinstance(published, Series) else {}
    folder = "This is the cost of one step. The statement of the whole folder gives the cost of all steps together."
    pointer = [] if mechanism.step is None else [folder]
    if facts["may_be_published"] is not None:
        rows["May be published"] = [facts["may_be_published"], *pointer]
        if not facts["publishable"]:
            rows["Warning"] = ["This file protects nobody. The rest of this statement describes fresh noise."]
    rows |= _list_promise_rows(mechanism, facts) | _list_content_rows(mechanism, facts)
    cite = f"Cite: {facts['promise']}, published with deltahist."
    rows["Use"] = [f"Nothing computed from these figures weakens the guarantee. {cite}", *pointer]
    if facts["determines_cells"] is not None and "unit" not in facts["noise"][0]:  # counts, not coordinates
        quote = "Quote every figure with its standard error. Do not add standard errors: query the sum."
        rows["Use"].append(f"{quote} Single cells can be mostly noise. Larger areas are more accurate.")
    if isinstance(published, BaseRelease):
        rows["Account"] = [facts["kept_by"] or _explain_no_account(mechanism)]
        if facts["digest"] is not None:
            rows["SHA-256"] = [facts["digest"]]
    return list(rows.items())


def _list_series_rows(series: Series) -> dict[str, list[str]]:
    step, letter = series.first_release.mechanism.step, series.mechanism.letter
    each = f" of {series.clock.period}" if series.clock.period else ""
    steps = [f"{series.last - series.first + 1:,}{each}, from {series.step_labels[0]} to {series.step_labels[-1]}"]
    if series.missing_steps:
        steps.append(f"{series.explain_missing()}.")
    least, most = (float(end(series.spent.values())) for end in (min, max))
    amount = f"{letter} = {most:.6g}" if least == most else f"{letter} = {least:.6g} to {most:.6g}"
    rows = {"In all": [explain_cost(series)], "Steps": steps, "Spent in each": [amount]}
    if step is not None:
        longer = f"For data that differ in more steps, all releases together cost at most {explain_longer(step)}."
        rows["Window"] = [f"{explain_window(step).capitalize()}.", longer]
    if (payment := series.releases[max(series.releases)].payment) is not None:
        rows["Account"] = [str(payment)]
    return rows


def _list_promise_rows(mechanism: BaseMechanism, facts: Facts) -> dict[str, list[str]]:
    near, points, unit = mechanism.neighbourhood, facts["points_per_user"], facts["distance_unit"]
    delta = format_length(facts["delta"], unit)
    lines = ["The guarantee covers one point at a time. A user with several points is less protected."]
    if points is not None:
        kept = "their one kept point" if points == 1 else f"up to {points:,} kept points"
        lines = [f"The guarantee covers each user with {kept}."]
    steps = facts["series"]["together"]["releases"] if "series" in facts else None
    guess = explain_guess(f"δ = {delta}", facts["protection"][0]["guess"], steps)
    lines.append(f"{guess} Protection fades over longer distances.")
    if near.fixed_membership:
        lines.append("Only places are hidden. Who is in the data is assumed to be known.")
    else:
        lines.append(f"For people within {delta} of {name_sources(near)}, being in the data at all is hidden too.")
    rows = {"In plain words": lines, "Guarantee": [_explain_guarantee(facts)]}
    rows["Neighbours"] = [facts["neighbour_relation"]]
    if isinstance(near, GraphNeighbourhood):
        graph = f"1 edge of a public graph with {len(near.pairs):,} edges between the cells"
        rows["δ"] = [graph, "The guarantee is for the cells in which points are counted."]
    else:
        cells = " × ".join(format_number(c) for c in facts["delta_cells"])
        lost = "one lattice step" if facts["lattice_steps_lost"] == 1 else "two lattice steps"
        raw = f"For raw coordinates the guarantee holds up to {facts['delta_guaranteed']:.10g} {unit}, {lost} less."
        rows["δ"] = [f"{format_number(facts['delta'])} {unit} = {cells} cell{'' if cells == '1' else 's'}", raw]
    rows["Unit of privacy"] = ["one point"]
    if points is not None:
        rows["Unit of privacy"] = [
            f"one user with at most {f'{points:,} points, which may all move at once' if points > 1 else '1 point'}",
            "The guarantee covers the points that were kept. They were chosen without looking at places.",
        ]
        if not near.fixed_membership:
            record = "One record more or less can change which other records of the same user are kept, even far"
            cost = "This costs as much as appearing, vanishing or moving anywhere."
            rows["Unit of privacy"].append(f"{record} from any source. {cost}")
    if facts["limits"]:
        rows["Limits"] = [explain_limits(near, mechanism.letter, mechanism.norm)]
    if (step := mechanism.step) is not None:
        within = "one step" if step.window == 1 else f"{step.window:,} consecutive steps"
        rows["Stream"] = [
            f"step {step.label} of a stream: {explain_window(step)}",
            f"That is the guarantee of all releases together for data that differ within {within}.",
            f"For data that differ in more steps they cost at most {explain_longer(step)}.",
        ]
    if mechanism.chain is not None:
        rows["Chain"] = [explain_chain(mechanism.chain, mechanism.letter)]
    return rows


def _list_content_rows(mechanism: BaseMechanism, facts: Facts) -> dict[str, list[str]]:
    domain, counting, dropped = mechanism.domain, mechanism.counting, facts["dropped"]
    plural = "s" if facts["values"] > 1 else ""
    numbers = f"{facts['values']:,} noisy whole number{plural} ({facts['mechanism']}), and nothing else"
    rows = {"What is published": [numbers]}
    if counting.replaces is not None:
        lines = [f"the release with the SHA-256 {counting.replaces.digest}", f"Reason: {counting.replaces.reason}"]
        rows["Replaces"] = [*lines, "An attacker can compare the two releases, so their costs add up."]
    sides = " × ".join(format_number(c) for c in facts["cell_size"])
    cells = f"{' × '.join(map(str, facts['cells']))} cells of {sides} {facts['unit']}"
    rows["Map"] = [cells] if domain.crs is None else [f"{cells}, {domain.crs}", describe_crs(domain)]
    bounds = ", ".join(format_number(b) for b in domain.bounds)
    outside = "dropped, so the boundary is a source" if "points outside" in dropped else "counted in the nearest cell"
    rows["Bounds"] = [f"{bounds}, extended to whole cells", f"Points outside are {outside}."]
    if counting.projection is not None:
        rows["Projection"] = [f"one operation for all points: {counting.projection}"]
    if facts["total_public"]:
        total = "" if facts["total"] is None else f"{facts['total']:,}{' kept' if counting.user else ''}, "
        number = f"{total}published exactly, because membership is fixed and the number reveals nothing"
    elif facts["sources"] is None:
        number = "not published, because rows were dropped, and their number may depend on a person"
    else:
        near = "" if UNPAID in dropped else " near the sources"
        number = f"not published, because who takes part is protected{near}"
    rows["Number of points"] = [number]
    if facts["where"] is not None:
        nor = ", nor is the number of matching rows" if facts["total_public"] else ""
        condition = f"Places are protected. What the condition tests is not{nor}."
        rows["Rows"] = [f"only rows where {facts['where']}", condition]
    if "bad rows" in dropped:
        bad = "Rows without usable coordinates, user or time were dropped. They are the same in neighbouring data sets."
        rows["Dropped rows"] = [bad]
    if UNPAID in dropped:
        paid = "Each person's budget paid for their records. Records of people who could not pay were left out."
        rows["Budgets"] = [paid]
    rows["Noise"] = _explain_noise(facts["noise"])
    if facts["determines_cells"] is False:
        rows["Resolution"] = ["The numbers do not determine every cell. Answers state what is unresolved."]
    return rows


# --- sentences ----------------------------------------------------------------------------------------------


def explain_guess(distance: str, share: float | None, steps: int | None = None) -> str:
    """Return text about an attacker who weighs two places at most `distance` apart (for a series, in each step)."""
    words = format_guess(share)
    right = words if words == "nearly always" else f"in at most {words} cases"
    each, source = ("", "this release") if steps is None else (f" in each of {steps:,} steps", "all releases together")
    return (
        "Suppose an attacker knows everything about everyone else, and is weighing two guesses about where you were"
        f"{each}, at most {distance} apart. With {source} they pick the right one {right}. A coin toss is right in 50."
    )


def explain_cost(series: Series) -> str:
    """Return a sentence about the joint cost of all releases of a series."""
    number, amount = len(series.spent), float(series.mechanism.budget.amount)
    subject = "One release costs" if number == 1 else f"All {number:,} releases together cost"
    cost = f"{subject} {series.mechanism.letter} = {amount:.6g}"
    if series.mechanism.letter == "ρ":
        cost += f" (ε = {series.mechanism.approximate(1e-6):.4g}, except with a probability of 10⁻⁶)"
    return f"{cost} for a user who is in every step and moves by at most δ in each."


def explain_window(step: Step) -> str:
    """Return a clause about the joint budget of a window of steps."""
    period = f" of {step.clock.period}" if step.clock.every else ""
    most = f"{LETTERS[step.budget.unit]} = {float(step.budget.amount):.10g}"
    if step.window == 1:
        return f"each step{period} spends at most {most}"
    return f"any {step.window:,} consecutive steps{period} spend at most {most} together"


def explain_longer(step: Step) -> str:
    """Return a phrase about the joint cost for data sets that differ in more steps than one window contains."""
    letter, amount, limits = LETTERS[step.budget.unit], float(step.budget.amount), step.limits
    parts = []
    for limit in limits:
        reach = "in any steps" if limit.any else f"within {int(limit.distance):,} steps"
        parts.append(f"{letter} = {amount * float(limit.factor):.10g} {reach}")
    if not limits or not limits[-1].any:
        length, factor = (int(limits[-1].distance), limits[-1].factor) if limits else (step.window, 1)
        parts.append(f"{letter} = {2 * amount * float(factor):.10g} within {2 * length:,} steps, and so on without end")
    return "; ".join(parts)


def explain_chain(chain: Chain, letter: str) -> str:
    """Return sentences about the joint cost of all releases in a chain, or of a release and all its copies."""
    amount = f"{letter} = {float(chain.amounts[-1]):.10g}"
    if chain.copied is not None:
        original = f"release {chain.number} of chain {chain.name}" if chain.name else "a release"
        return (
            f"A more private copy of {original}, which cost {amount} and has the SHA-256 {chain.origin}. That release "
            f"and all copies of it together cost at most {amount}, not the sum."
        )
    if chain.number == 1:
        return f"Release 1 of chain {chain.name}. If it is refined, all releases together cost what the last one costs."
    return f"Release {chain.number} of chain {chain.name}. All {chain.number} together cost {amount}, not the sum."


def explain_limits(near: Neighbourhood, letter: str, norm: int) -> str:
    """Return a phrase about the maximum cost of moves longer than δ and of appearing farther than δ from a source."""
    parts: list[str] = []
    for distance, factor in list_limits(near, MOST_LIMITS):
        move, arrival = "any move", "or appearing anywhere"
        if distance is not None:
            reach = format_length(distance, near.unit, 6)
            move, arrival = f"a move of up to {reach}", f"or appearing within {reach} of {name_sources(near)}"
        move += "" if near.fixed_membership else f", {arrival},"
        parts.append(f"{move}{'' if parts else ' costs'} at most {format_number(float(factor**norm), 6)} {letter}")
    number = len(near.profile)
    lead = f"as a function of the distance, in {number:,} steps: " if number > MOST_LIMITS else ""
    return lead + (", " if near.fixed_membership else "; ").join(parts)


def name_sources(near: Neighbourhood) -> str:
    """Return a phrase for the places where people may appear or vanish."""
    names = {"boundary": "the domain's boundary", "left": "the left end", "right": "the right end"}
    other = "the source geometry" if near.on_grid else "the outside (1 edge from each source cell)"
    return names[near.sources] if isinstance(near.sources, str) else other


def _explain_relation(mechanism: BaseMechanism) -> str:
    near, counting = mechanism.neighbourhood, mechanism.counting
    subject, recorded, absent = "one point", "where it is recorded", "it may be absent if it is"
    if counting.user and counting.contributions == 1:
        subject = "the one kept point of one user"
    elif counting.user:
        subject, recorded = f"all kept points (at most {counting.contributions}) of one user", "where they are recorded"
        absent = "they may be absent if they are"
    unit = near.unit.removesuffix("s") if near.delta_ground == 1 else near.unit
    move = f"{subject} may be anywhere within {format_number(near.delta_ground)} {unit} of {recorded}"
    if near.fixed_membership:
        return f"{move}; who is in the data is fixed"
    return f"{move}, and {absent} within that distance of {name_sources(near)}"


def _explain_guarantee(facts: Facts) -> str:
    if facts["rho"] is not None:
        epsilon = f"ε = {facts['epsilon_at_1e-6']:.3g} with a failure probability of 10⁻⁶"
        return f"ρ = {format_number(facts['rho'])} (zero-concentrated), which implies {epsilon}"
    ratio = math.exp(min(facts["epsilon"], 700.0))
    return (
        f"ε = {format_number(facts['epsilon'])} (pure): no conclusion from the release is more than e^ε = {ratio:.3g} "
        "times as likely under one data set as under a neighbouring one"
    )


def _explain_noise(noise: list[Facts]) -> list[str]:
    first, most = noise[0], 12
    if first["std"] is None:
        return [first["law"]]
    law = f"{first['law'].capitalize()} noise, drawn exactly on the integers; standard deviation per number"
    if len(noise) == 1:
        unit = f" {first['unit']}" if "unit" in first else ""
        return [f"{law}: {first['std']:.4g}{unit}"]
    lines = [f"{law}:", *(f"{each['std']:.4g} for {each['rows']}" for each in noise[:most])]
    return lines if len(noise) <= most else [*lines, f"... and {len(noise) - most} more groups of rows"]


def _explain_no_account(mechanism: BaseMechanism) -> str:
    if UNPAID in mechanism.counting.dropped:
        return "Each person's own account, which tracks all queries about their records."
    free = "More private copies of this release cost nothing."
    if mechanism.chain is not None and mechanism.chain.copied is None:
        free = "Other releases of its chain and more private copies cost nothing more."
    elif mechanism.chain is not None:
        free = "The original release and other copies of it cost nothing more."
    return f"None. Nothing tracks the total: each further release about the same people adds its own cost. {free}"
