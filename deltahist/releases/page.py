"""The privacy statement as a page in plain words: one file of HTML that needs no other, Markdown, or plain text."""

from __future__ import annotations

import base64
import functools
import html
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltahist import plots
from deltahist._files import form_of, write_whole
from deltahist._progress import progress
from deltahist.budget import Payment, say_amount
from deltahist.plots.ground import new_figure
from deltahist.preprocessing import UNPAID
from deltahist.releases.guesses import bound_guess, say_guess, share_of_100
from deltahist.releases.series import Series
from deltahist.releases.together import Blocks, explain_series, introduce_series
from deltahist.statement import (
    BY_DISTANCE,
    VERDICT,
    Facts,
    Row,
    explain_withdrawal,
    length,
    list_rows,
    main_limits,
    name_sources,
    number,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from deltahist.mechanisms import BaseMechanism
    from deltahist.releases.base import BaseRelease

#: Form of a page by the suffix of its file.
FORMS = {".html": "html", ".htm": "html", ".md": "markdown", ".txt": "text"}
_TITLE = "Privacy statement"
#: Inches of the pictures: about the width of a telephone, where an inch of them is about 72 dots.
_SIZE = (4.6, 4.4)
#: Their letters: the smallest are 11 points.
_LETTERS: Any = {"font.size": 13.4, "axes.labelsize": "small", "xtick.labelsize": "small", "ytick.labelsize": "small"}

_STYLE = """
:root { color-scheme: light; --ink: #1b1f24; --pale: #57606a; --line: #d0d7de; --ground: #f6f8fa; }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: #fff; font: 1rem/1.55 system-ui, sans-serif; }
main { max-width: 46rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .6rem 0; }
.judgement { border-left: .4rem solid; padding: .6rem 1rem; background: var(--ground); }
.judgement strong { display: block; font-size: 1.1rem; }
.yes { border-color: #1a7f37; } .only { border-color: #9a6700; } .no { border-color: #cf222e; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums; }
table + table { margin-top: 1rem; }
caption { text-align: left; color: var(--pale); padding-bottom: .4rem; }
th, td { text-align: right; padding: .35rem .4rem; border-bottom: 1px solid var(--line); vertical-align: bottom; }
th:first-child { text-align: left; }
td { white-space: nowrap; }
tbody th { font-weight: normal; }
figure { margin: 1rem 0; max-width: 27rem; }
figure.wide { max-width: none; }
figure img { width: 100%; height: auto; display: block; }
figcaption { color: var(--pale); font-size: .9rem; }
ul { font-size: .92rem; list-style: none; padding: 0; color: var(--pale); }
li { margin-top: .5rem; } li strong { color: var(--ink); font-weight: 600; }
@media screen and (max-width: 30em) {
  table { display: block; overflow-x: auto; font-size: .76rem; } th, td { padding: .3rem .2rem; }
}
@media print {
  body { font-size: 10.5pt; } main { max-width: none; padding: 0; }
  h2 { break-after: avoid; } table, figure, .judgement, li { break-inside: avoid; } figure { max-width: 12cm; }
}
""".strip()


def check_page(path: str | Path) -> str:
    """Return the form that a file's suffix asks for; raise InputError on an unknown one.

    >>> check_page("statement.html")
    'html'
    """
    return form_of(path, FORMS)


def save_statement(release: BaseRelease | Series, path: str | Path, title: str | None = None) -> None:
    """Write a release's privacy statement to a file, in the form of its suffix.

    HTML is one page for the web, for telephones and for print: plain words first, the protection by distance as a table
    and a curve, the map if there is one, the technical parameters last. It refers to no other file. Markdown has the
    same words and tables without pictures; text is `release.statement()`. The file appears whole or not at all.

    Parameters
    ----------
    release : a release of any kind, or a series: then what all steps together cost stands before all else.
    path : .html, .htm, .md or .txt.
    title : of the page, such as the name of the data.

    Raises
    ------
    InputError
        On another suffix, or a folder that cannot be written.
    """
    text = render_page(release, check_page(path), title)
    write_whole(Path(path), lambda part: part.write_text(text, encoding="utf-8"))


@progress("writing the statement")
def render_page(release: BaseRelease | Series, form: str, title: str | None = None) -> str:
    """Return the statement as "html", "markdown" or "text"; parameters as for `save_statement`.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 1), (4,)), delta=0.25)
    >>> render_page(dh.publish(np.ones(4, dtype=int), near, epsilon=1), "markdown", "Four cells").splitlines()[0]
    '# Four cells'
    """
    if form == "text":
        text = release.statement() + "\n"
        return text if title is None else f"{title}\n\n{text}"
    title = _TITLE if title is None else title
    facts = release.facts()
    together: Blocks = []
    if isinstance(release, Series):
        rows, together = release.rows(), explain_series(release, facts)
    else:
        rows = list_rows(release.mechanism, facts)
    text = _write_markdown(release.mechanism, facts, title, rows, together)
    if form == "markdown":
        return text
    curve = _draw_curve(release)
    if isinstance(release, Series):
        pictures = [_draw_steps(release), curve]
    else:
        pictures = [f"{curve}\n{_draw_map(release)}".rstrip()]
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title>",
        f"<style>\n{_STYLE}\n</style></head>",
        "<body><main>",
        # yes, no, only (if)
        _render_html(text, facts["may_be_published"].partition(":")[0].split()[0], pictures),
        "</main></body></html>\n",
    ]
    return "\n".join(lines)


def _render_html(text: str, verdict: str, pictures: Sequence[str]) -> str:
    """Return the body of a page from its Markdown; tables get captions and scopes, the last ones pictures below."""
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(text)
    kinds = [token.type for token in tokens]
    tokens[kinds.index("paragraph_open")].attrSet("class", f"judgement {verdict}")
    for place, kind in enumerate(kinds):
        if kind == "th_open":
            tokens[place].attrSet("scope", "col")
        elif kind == "td_open" and kinds[place - 1] == "tr_open":
            tokens[place].attrSet("scope", "row")
            tokens[place].tag = tokens[place + 2].tag = "th"
    starts = [place for place, kind in enumerate(kinds) if kind == "table_open"]
    below = [""] * (len(starts) - len(pictures)) + list(pictures)
    for start, picture in reversed(list(zip(starts, below, strict=True))):
        end = kinds.index("table_close", start)
        caption = tokens[start - 3 : start]
        caption[0].tag = caption[-1].tag = "caption"
        drawn = [Token("html_block", "", 0, content=f"{picture}\n")] if picture else []
        tokens[start - 3 : end + 1] = [tokens[start], *caption, *tokens[start + 1 : end + 1], *drawn]
    return str(markdown.renderer.render(tokens, markdown.options, {}))


def _write_markdown(
    mechanism: BaseMechanism, facts: Facts, title: str, rows: Sequence[Row], together: Blocks
) -> str:
    named = "" if title == _TITLE else f"{title.rstrip('.')}. "
    verdict = facts["may_be_published"].partition(": ")[0]
    rows = [row for row in rows if row[0] not in (VERDICT, BY_DISTANCE)]
    sections = [
        [f"## {heading}", *map(_escape, paragraphs)] for heading, paragraphs in _explain(mechanism, facts).items()
    ]
    blocks = [
        f"# {_escape(title)}",
        f"**May be published: {verdict}.** {_escape(explain_verdict(facts))}",
        *sections[0],
        *(["## What all releases together cost"] if together else []),
        *(_escape(block) if isinstance(block, str) else _write_table(block) for block in together),
        "## Protection by distance",
        _escape(_explain_table(facts)),
        _write_table(_distance_table(facts)),
        *sections[1],
        *sections[2],
        _escape(f"Cite as: {named}{mechanism.promise}. Published with deltahist."),
        "## Technical parameters",
        "\n".join(
            f"- **{_escape(label)}**: " + "\\\n  ".join(_escape(line.strip()) for line in lines)
            for label, lines in rows
        ),
    ]
    return "\n\n".join(blocks) + "\n"


def _write_table(table: Sequence[Sequence[str]]) -> str:
    header, *rows = (list(map(_escape, row)) for row in table)
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---", *["---:"] * (len(header) - 1)], *rows])


def explain_release(release: BaseRelease) -> dict[str, list[str]]:
    """Return the statement's plain words: paragraphs by their headings.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 1), (4,)), delta=0.25)
    >>> list(explain_release(dh.publish(np.ones(4, dtype=int), near, epsilon=1)))[1]
    'Who is protected, and how strongly'
    """
    facts = release.facts()
    return {"May it be published?": [explain_verdict(facts)], **_explain(release.mechanism, facts)}


def _explain(mechanism: BaseMechanism, facts: Facts) -> dict[str, list[str]]:
    return {
        "Who is protected, and how strongly": _explain_protection(mechanism, facts),
        "What was done with the rows": _explain_rows(mechanism, facts),
        "Using and citing these figures": _explain_use(facts),
    }


def _escape(text: str) -> str:
    """Return Markdown that shows a text as written."""
    return re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", text).replace("\n", " ")


def explain_verdict(facts: Facts) -> str:
    """Return the reason why a release may be published, or may not, at length."""
    if "withdrawn" in facts:
        return f"WITHDRAWN {explain_withdrawal(facts['withdrawn'])}. What is said below is what it promised."
    if not facts["publishable"]:
        return (
            "The noise came from a seeded generator, so that whoever knows or guesses the seed can take it away "
            "again, or no publisher of this toolkit drew the numbers. Such a file is for trials only."
        )
    if facts["weak_protection"] is not None:
        return f"Hardly anybody is protected: {facts['weak_protection']}."
    return (
        "The noise came from the operating system's cryptographic generator, nobody can draw it again, and its size is "
        "what the promise below needs. Whether that promise is strong enough for these people is for the publisher to "
        "answer."
    )


def _guess_presence(facts: Facts) -> float | None:
    """Return how often a guess at whether somebody is in the data at all is right at most."""
    return bound_guess(facts, facts["appear_anywhere"], facts["protection"][-1]["deltas"])


def _explain_protection(mechanism: BaseMechanism, facts: Facts) -> list[str]:
    near, points = mechanism.neighbourhood, facts["points_per_user"]
    delta = length(facts["delta"], facts["unit"])
    kind = "place" if mechanism.domain.ndim == 2 else "value"
    whose = f"the {kind} of a point" if points is None else f"a person's {kind}{'s' if points > 1 else ''}"
    if points is None:
        who = (
            "Every single point is protected, such as one visit. A person with several points is protected for each of "
            "them, and less for all of them together."
        )
    elif points > 1:
        who = f"All {kind}s that were kept of a person, up to {points:,}, are protected together."
    else:
        who = f"The one {kind} that was kept of each person is protected."
    nearest = facts["protection"][0]
    strength = (
        f"Suppose that somebody knows everything but {whose}, and holds two possibilities for equally likely that are "
        f"no more than {delta} apart (the length that is called δ below). Whatever they do with what is published, "
        f"their guess is {say_guess(bound_guess(facts, nearest['exact'], nearest['deltas']))}; tossing a coin is "
        f"right in 50. Over longer distances the protection is weaker{_explain_limits(mechanism, facts)}: the table "
        "says how much."
    )
    if near.fixed_membership:
        there = f"Only {kind}s are hidden: who is in the data, and how many they are, is taken to be known."
    else:
        there = (
            f"Being in the data at all is hidden as well as a {kind} is, for whoever is within {delta} of "
            f"{name_sources(near)}. For others a guess at whether they are there is "
            f"{say_guess(_guess_presence(facts))}."
        )
    others = introduce_series(facts) if "series" in facts else _explain_other_releases(mechanism, facts)
    paragraphs = [who, strength, there, others]
    if not facts["publishable"]:
        seeded = (
            "This file keeps nothing of the following, which is what the same would promise with noise that nobody can "
            "draw again."
        )
        return [seeded, *paragraphs]
    return paragraphs


def _explain_limits(mechanism: BaseMechanism, facts: Facts) -> str:
    """Return the consequence of limits for guesses; empty without limits."""
    guesses = []
    for limit in main_limits(mechanism.neighbourhood, 1 if facts["rho"] is None else 2):
        far, cost = limit["distance"], (limit["times"] or 0) * (facts["epsilon"] or facts["rho"])
        deltas = facts["protection"][-1]["deltas"] if far is None else far / facts["delta"]
        apart = "however far apart they are" if far is None else f"up to {length(far, facts['unit'], 6)} apart"
        guesses.append(f"{say_guess(bound_guess(facts, cost, deltas))} {apart}")
    return f", but limited (a guess is {', '.join(guesses)})" if guesses else ""


def _explain_other_releases(mechanism: BaseMechanism, facts: Facts) -> str:
    adds = "If more is published about the same people, what can be learnt about them adds up."
    if (replaced := mechanism.counting.replaces) is not None:
        adds += (
            f" It does already: this replaces the release with the SHA-256 {replaced.digest} ({replaced.reason}), and "
            "who has both can compare them."
        )
    paid = Payment.from_description(facts["account"])
    adds += "" if paid is None else f" {_explain_payment(paid)}"
    step, chain = mechanism.step, mechanism.chain
    if chain is not None and chain.name and chain.copied is None:
        return (
            f"This is release {chain.number} of a chain of ever finer releases of the same data, {chain.name}: all "
            f"releases of it up to this one together promise what this one does. {adds}"
        )
    if chain is not None and chain.copied is not None:
        return (
            "This is a more private copy of a finer release of the same data: whoever has both, or several copies of "
            f"it, may learn what the finer one allows, and no more. {adds}"
        )
    if step is None:
        return adds
    unit, whole = step.budget.unit, float(step.budget.amount)
    together = bound_guess({"rho": whole if unit == "rho" else None}, whole, 1.0)
    return (
        f"This is step {step.label} of a stream of releases: {step.words}. So with all of them a guess at one whose "
        f"data differ within {step.window:,} steps, by no more than δ in each, is {say_guess(together)}. About whoever "
        "comes for longer more can be learnt, and from anything else that is published as well."
        + ("" if paid is None else f" {_explain_payment(paid, limited=bool(step.limits))}")
    )


def _explain_payment(paid: Payment, *, limited: bool = False) -> str:
    """Return what all releases of an account cost together, as known when one of them was published."""
    letter = "ε" if paid.unit == "epsilon" else "ρ"
    spent, limit, left = (say_amount(each, paid.limit) for each in (paid.spent, paid.limit, paid.limit - paid.spent))
    what, where = "All releases that it has ever paid for", ""
    if paid.steps is not None:
        steps = "this step" if paid.steps == 1 else f"the {paid.steps:,} steps that end with this one"
        what = f"Its releases of {steps}"
        where = " in these steps"
    rest = f"nothing more may be published{where}" if left == "0" else f"{left} was left for others{where}"
    rest += ", unless a longer limit leaves less" if limited and left != "0" else ""
    return (
        f"The account {paid.account!r} paid for this release. {what} cost {letter} = {spent} of {limit} together, as "
        f"known when this one was published: {rest}."
    )


def _explain_table(facts: Facts) -> str:
    letter, more = "ε" if facts["rho"] is None else "ρ", " and the limits" if facts["limits"] else ""
    return (
        f"How often a guess between two possibilities that are so far apart is right at most. {letter} is what the "
        f"difference costs: exactly, and by the rule of {letter} for every δ{more}; with 0 nothing could be learnt."
    )


def _distance_table(facts: Facts) -> list[tuple[str, ...]]:
    """Return the protection by distance: a row of headings, then a row for each distance."""
    letter = "ε" if facts["rho"] is None else "ρ"
    table: list[tuple[str, ...]] = [
        ("Distance", "A guess is right in", letter, f"{letter} {'promised' if facts['limits'] else 'by rule'}")
    ]
    for row in facts["protection"]:
        cost, bound = ("none" if row[k] is None else f"{row[k]:.4g}" for k in ("exact", "bound"))
        share = bound_guess(facts, row["exact"], row["deltas"])
        table.append((length(row["distance"], facts["unit"]), share_of_100(share), cost, bound))
    table[-1] = (f"{table[-1][0]}, anywhere at all", *table[-1][1:])
    if "appear_anywhere" in facts:
        there = share_of_100(_guess_presence(facts))
        table.append(("being there or not", there, f"{facts['appear_anywhere']:.4g}", ""))
    return table


def _explain_rows(mechanism: BaseMechanism, facts: Facts) -> list[str]:
    """Return paragraphs about what was done with the rows of the data."""
    counting, dropped = mechanism.counting, facts["dropped"]
    done = []
    if counting.where is not None:
        done.append(
            f"Only rows where {counting.where} were taken. Which rows these are is taken to be known: the condition "
            "hides nothing that it asks for."
        )
    if counting.user:
        kept = f"{counting.contributions:,} rows were" if counting.contributions > 1 else "1 row was"
        done.append(f"Of each person at most {kept} kept, chosen without looking at places.")
    if "bad rows" in dropped:
        done.append("Rows whose coordinates could not be used were left out.")
    if UNPAID in dropped:
        done.append(
            "Every person has a budget of their own, from which each of their records was paid for; records of people "
            "who could not pay were left out."
        )
    if counting.projection is not None:
        done.append(f"All coordinates came to the map by one operation: {counting.projection.name}.")
    cells = " × ".join(f"{n:,}" for n in facts["cells"])
    size = " × ".join(number(c, 6) for c in facts["cell_size"])
    where = "left out" if "points outside" in dropped else "counted in the nearest cell"
    done.append(f"The map has {cells} cells of {size} {facts['unit']}; points outside it were {where}.")
    if facts["total_public"]:
        total = "" if facts["total"] is None else f", {facts['total']:,},"
        done.append(f"The number of points{total} is published exactly; it is taken to be known.")
    else:
        done.append("The number of points is not published.")
    errors = [n["std"] for n in facts["noise"] if n["std"] is not None]
    if not errors:
        return [*done, f"One number was published: {facts['noise'][0]['law']}."]
    least, most = min(errors), max(errors)
    spread = f"{least:.3g}" if least == most else f"{least:.3g} to {most:.3g}"
    numbers = "1 number was" if facts["values"] == 1 else f"{facts['values']:,} numbers were"
    done.append(
        f"{numbers} published, with random whole-number noise of a standard deviation of {spread} "
        f"{facts['noise'][0].get('unit', 'points')} in each. Nothing else was."
    )
    return done


def _explain_use(facts: Facts) -> list[str]:
    text = [
        "Whatever is computed from these figures is protected as they are: no calculation takes the noise away. Pass "
        "them on together with this statement.",
    ]
    if facts["determines_cells"] is not None and "unit" not in facts["noise"][0]:  # counts, not coordinates
        text.append(
            "Every figure is an estimate and comes with a standard error; state both. Errors must not be added, nor "
            "their squares: the release is asked for a sum (deltahist query), and states its error. Unbiased "
            "estimates of small or empty areas can be below zero: leave them so when adding up, or the sum will be "
            "too large. Non-negative ones are usually nearer to the truth, but sums of many are a little off; files "
            "and maps say which they show. A single cell can be mostly noise; larger areas are known better."
        )
    if facts["determines_cells"] is False:
        text.append("The numbers do not determine every cell; answers say which share was not measured.")
    return text


def _draw_curve(release: BaseRelease | Series) -> str:
    what = "Curve of what a move costs against its distance; the table above has its values."
    caption = "What a move costs, by its distance."
    return _draw("curve", functools.partial(plots.plot_protection, release), what, caption)


def _draw_map(release: BaseRelease) -> str:
    """Return the picture of a release's map; nothing if it has none."""
    if release.domain.ndim != 2 or release.mechanism.determines_cells is None:
        return ""
    caption = f"The published map. Estimates: {release.estimator(release.draws_nonnegative())}."
    draw = functools.partial(plots.plot_map, release)
    return _draw("map", draw, "Map of the published estimates of points per cell.", caption)


def _draw_steps(series: Series) -> str:
    what = "Small maps of the published estimates, one for each step, or for each longer period."
    drawn = _embed("steps", lambda: plots.draw_steps(series), what, "The published maps, in order of time.")
    return drawn.replace("<figure>", '<figure class="wide">', 1)


def _draw(name: str, plot: Callable[[Axes], Any], what: str, caption: str) -> str:
    """Return a picture within a page, from a function that draws on axes."""

    def make() -> Figure:
        figure = new_figure(figsize=_SIZE, layout="compressed")
        plot(figure.subplots())
        return figure

    return _embed(name, make, what, caption)


def _embed(name: str, make: Callable[[], Figure], what: str, caption: str) -> str:
    """Return a picture within a page, from a function that makes a figure."""
    from matplotlib import rc_context

    file = io.BytesIO()
    # Without a date and chance names the same release makes the same page.
    with rc_context(_LETTERS | {"svg.hashsalt": name}):
        make().savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    drawing = base64.b64encode(file.getvalue()).decode()
    picture = f'<img alt="{html.escape(what)}" src="data:image/svg+xml;base64,{drawing}">'
    return f"<figure>\n{picture}<figcaption>{html.escape(caption)}</figcaption></figure>"
