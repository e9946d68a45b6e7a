"""Descriptions of files of cells and of answers, which stand in the files themselves."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from deltahist.releases.series import Series
from deltahist.releases.sums import Difference
from deltahist.releases.tables import NEAREST, UNBIASED
from deltahist.space.domain import Domain, has_codes
from deltahist.statement import BY_DISTANCE, VERDICT, Facts, list_rows

if TYPE_CHECKING:
    import pandas as pd

    from deltahist.releases.base import BaseRelease

#: Said wherever there are standard errors.
_NOT_ADDED = "nor its square: ask deltahist query for the sum"
#: Hexadecimal digits of a digest that are shown below a table.
_SHORT = 16
#: Unit and description of the columns of answers; of None the unit is that of the estimate.
_ANSWERS: dict[str, tuple[str | None, str]] = {
    "rank": ("1", "place by the estimate, shared by neighbours whose order is less sure than {level}"),
    "step": ("", "step of the series"),
    "before": (None, "estimate of the earlier period"),
    "after": (None, "estimate of the later period"),
    "estimate": (None, "estimate, {estimator}"),
    "std_error": (None, f"standard error of noise, and of places in cells that are cut; do not add it, {_NOT_ADDED}"),
    "low": (None, "lower end of the {level} interval"),
    "high": (None, "upper end of the {level} interval"),
    "above_next": ("1", "how sure it is that the row is above the next, by the joint error of their difference"),
    "noise_error": (None, "the part of std_error that is noise"),
    "placement_error": (None, "the part of std_error that is places in cells that are cut"),
    "cut": ("1", "share of the area in cells that are cut"),
    "inner": (None, "answer with all points of cut cells outside"),
    "outer": (None, "answer with all points of cut cells inside"),
    "steps": ("1", "number of steps that the answer is of"),
    "unresolved": ("1", "share that was not measured"),
    "estimator": ("", "name of the estimate"),
    "outside": ("1", "share of the area outside the map"),
    "note": ("", "that the region was clipped or repaired, or why there is no answer"),
    "q": ("1", "share of the points below the quantile"),
}


def columns_of(domain: Domain, estimator: str, each: str = "cell") -> dict[str, dict[str, str]]:
    """Return unit and description of each column of `cells_frame`; `estimator` is the name of the estimates.

    `each` is a row, in words.

    >>> columns_of(Domain((0, 4), (4,)), "unbiased")["estimate"]
    {'unit': 'points', 'description': 'points in the cell, unbiased; may be below zero'}
    """
    where = domain.crs or "units of the bounds"
    sides = ("low", "high") if domain.ndim == 1 else ("west", "south", "east", "north")
    axes = ("x", "y")[: domain.ndim]
    kind = f"{estimator}; may be below zero" if estimator == UNBIASED else estimator
    out = {
        "block": ("cells", "side of the square of cells that the row is of, 1 for a cell; narrower at the rim"),
        "column": ("1", "number of the cell from the west, from 0; of a block its first one"),
    }
    if domain.ndim == 2:
        out["row"] = ("1", "number of the cell from the south, from 0; of a block its first one")
    if has_codes(domain):
        out["cell"] = ("1", "INSPIRE's name of the cell")
    out |= {side: (where, f"{side} edge of the {each}") for side in sides}
    out |= {axis: (where, f"{axis} of the centre of the {each}") for axis in axes}
    out["cells"] = ("1", "number of cells in the block")
    out["estimate"] = ("points", f"points in the {each}, {kind}")
    whose = "unbiased estimate" if estimator == NEAREST else f"estimate beside it, which is {estimator}"
    related = f"errors of cells depend on each other: do not add it, {_NOT_ADDED}"
    out["std_error"] = ("points", f"standard error of the {whose}; {related}")
    return {name: {"unit": unit, "description": text} for name, (unit, text) in out.items()}


def describe_cells(
    release: BaseRelease, names: Iterable[Hashable], nonnegative: bool, each: str = "cell"
) -> dict[str, Any]:
    """Describe a file of cells as JSON: promise, statement, and the columns with their units.

    Parameters
    ----------
    names : of its columns. nonnegative : which estimates. each : a row, in words.
    """
    estimator = release.estimator(nonnegative)
    return {
        "title": f"Estimates of points per {each}, {estimator}, with standard errors",
        "how_to_read": f"estimate, give or take two std_error. Do not add std_error, {_NOT_ADDED}.",
        **_describe(release.facts(), estimator),
        "columns": _chosen(columns_of(release.domain, estimator, each), names),
        "statement": release.statement(),
    }


def describe_answers(facts: Facts, table: Mapping[str, Any], level: float) -> dict[str, Any]:
    """Describe answers as JSON: level, unit, estimator, promise, digest, and how to read them.

    Parameters
    ----------
    facts : of the release (`facts_of`). table : the answers, by column. level : of their intervals.
    """
    names = list(map(str, table))
    kinds = [each for each in dict.fromkeys(table["estimator"]) if each == each] if "estimator" in names else []
    estimator = "; ".join(kinds) or facts["estimator"]
    about = _describe(facts, estimator)
    share = f"{100 * level:.10g}%"
    read = f"low to high: {share} interval. Do not add std_error, {_NOT_ADDED}."
    if "before" in names:
        read += " The estimate is the change: after less before."
    if "rank" in names:
        read += f" above_next: how sure a row is above the next; rows of one rank are less sure than {share} of it."
    if "q" in names:  # of coordinates, not of counts
        about["unit"] = facts["unit"]
        read = f"Below estimate lies the share q of all points; low to high: {share} interval."
    words = {"estimator": estimator, "level": share}
    known = {
        name: {"unit": about["unit"] if unit is None else unit, "description": text.format(**words)}
        for name, (unit, text) in _ANSWERS.items()
    }
    what = "Quantiles" if "q" in names else "Estimates of changes" if "before" in names else "Estimates"
    return {
        "title": f"{what}, {estimator}, with {share} intervals",
        "how_to_read": read,
        "level": level,
        **about,
        "columns": _chosen(known, names),
    }


def _describe(facts: Facts, estimator: str) -> dict[str, Any]:
    most = facts["points_per_user"]
    each = " in a step" if isinstance(facts["digest"], dict) else ""
    return {
        "unit": "points" if most is None else f"points, of each user at most {most:,}{each}",
        "estimator": estimator,
        "promise": facts["promise"],
        "may_be_published": facts["may_be_published"],
        "digest": facts["digest"],
    }


def _chosen(known: dict[str, dict[str, str]], names: Iterable[Hashable]) -> dict[str, dict[str, str]]:
    return {name: known[name] for name in map(str, names) if name in known}


def explain_below(about: dict[str, Any]) -> str:
    """Return two lines for below a table of answers."""
    digest = about["digest"]
    whose = f"{len(digest):,} releases" if isinstance(digest, dict) else f"Release {str(digest)[:_SHORT]}"
    return f"{about['unit'].capitalize()}, {about['estimator']}; {about['how_to_read']}\n{whose}: {about['promise']}."


def facts_of(source: BaseRelease | Series | Difference) -> Facts:
    """Return the facts of a release, also behind a service; or of all releases of a series or a change together."""
    if not isinstance(source, Series | Difference):
        return dict(source.facts())
    periods = [source.before, source.after] if isinstance(source, Difference) else [source]
    releases = {each.clock.label(step): own for each in periods for step, own in each.releases.items()}
    example: BaseRelease = next(iter(releases.values()))
    verdicts = [each.may_be_published for each in releases.values()]
    facts = example.facts() | {"digest": {label: each.digest for label, each in releases.items()}}
    facts["may_be_published"] = next((each for each in verdicts if each != "yes"), "yes")
    near, step = example.neighbourhood, example.mechanism.step
    if step is not None:
        who = f"for each {example.counting.who} moving up to {near.delta_ground:g} {near.domain.unit}"
        facts["promise"] = f"{step.words}, {who}"
    return facts


def tabulate_statement(source: Any, about: dict[str, Any]) -> pd.DataFrame:
    """Return a file's description as a table of labels and texts; of a release with all rows of its statement.

    Parameters
    ----------
    source : of the figures; behind a service its rows are left out. about : the description.
    """
    import pandas as pd

    rows = [(VERDICT, about["may_be_published"]), ("Promise", about["promise"]), ("How to read", about["how_to_read"])]
    if hasattr(source, "mechanism") and not isinstance(source, Series):
        listed = list_rows(source.mechanism, source.facts())
        rows += [(label, " ".join(lines)) for label, lines in listed if label not in (VERDICT, BY_DISTANCE)]
    else:
        digests = about["digest"] if isinstance(about["digest"], dict) else {"": about["digest"]}
        rows += [(f"SHA-256 {label}".strip(), digest) for label, digest in digests.items()]
    return pd.DataFrame([(label, " ".join(text.split())) for label, text in rows], columns=["label", "text"])
