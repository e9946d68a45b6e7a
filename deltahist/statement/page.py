"""The privacy statement as plain text, Markdown, or one page of HTML that needs no other file."""

from __future__ import annotations

import base64
import io
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltahist._files import form_of, write_whole
from deltahist._text import format_length
from deltahist.releases import BaseRelease
from deltahist.statement.facts import Facts, Published, bound_guess, format_guess, list_facts, list_rows, mechanism_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Form of a statement by the suffix of its file.
FORMS = {".html": "html", ".htm": "html", ".md": "markdown", ".txt": "text"}


def write_statement(published: Published | Any, form: str = "text", title: str | None = None) -> str:
    """Return the privacy statement of a mechanism, a release or a series.

    Parameters
    ----------
    form : "text", "markdown", or "html": a page for the web and for print, with the curve of protection by distance and
        the map, which refers to no other file.
    title : of the page, such as the name of the data.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 1), (4,)), delta=0.25)
    >>> write_statement(dh.publish(np.ones(4, dtype=int), near, epsilon=1), "markdown", "Four cells").splitlines()[0]
    '# Four cells'
    """
    if hasattr(published, "stated_facts"):  # a remote release: its file has the rest
        remote: Any = published
        published = remote.load()
    facts, rows = list_facts(published), list_rows(published)
    warning = facts["weak_protection"] and f"WEAK PROTECTION: {facts['weak_protection']}"
    if "withdrawn" in facts:
        warning = f"WITHDRAWN on {facts['withdrawn']['date']}: {facts['withdrawn']['reason']}"
    table = _list_distances(facts)
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
    """Write a privacy statement to a file, as `write_statement` does; it appears whole or not at all.

    The form follows the suffix: .html, .htm, .md or .txt. Raises InputError on any other suffix, or if the file cannot
    be written.
    """
    text = write_statement(published, form_of(path, FORMS), title)
    write_whole(Path(path), lambda part: part.write_text(text.rstrip("\n") + "\n", encoding="utf-8"))


def _list_distances(facts: Facts) -> list[tuple[str, ...]]:
    """Return the protection by distance as a table: a row of headings, then a row for each distance."""
    letter = "ε" if facts["rho"] is None else "ρ"
    promised = f"{letter} {'promised' if facts['limits'] else 'bound'}"
    table: list[tuple[str, ...]] = [("distance", "in δ", "best guess is right", f"{letter} exact", promised)]
    for row in facts["protection"]:
        exact, bound = ("none" if row[key] is None else f"{row[key]:.4g}" for key in ("exact", "bound"))
        distance = format_length(row["distance"], facts["unit"], 4)
        table.append((distance, f"{row['deltas']:.4g}", format_guess(row["guess"]), exact, bound))
    table[-1] = (f"any move ({table[-1][0]})", *table[-1][1:])
    if "appear_anywhere" in facts:
        cost = facts["appear_anywhere"]
        share = format_guess(bound_guess(facts, cost))
        table.append(("present or absent", "", share, f"{cost:.4g}", ""))
    return table


def _draw_pictures(published: Published) -> list[dict[str, str]]:
    """Return the pictures of a page as SVG: the curve of protection, and the map if there is one."""
    from matplotlib import rc_context

    from deltahist import plots

    def embed(name: str, draw: Callable[[Any, Axes], Any], alt: str, caption: str) -> dict[str, str]:
        small = dict.fromkeys(("axes.labelsize", "xtick.labelsize", "ytick.labelsize"), "small")
        # With a fixed salt and no date, the same release makes the same page.
        look: Any = {"font.size": 13.4, "svg.hashsalt": name, **small}
        file = io.BytesIO()
        with rc_context(look):
            figure = plots.ground.new_figure(figsize=(4.6, 4.4), layout="compressed")  # the width of a phone
            draw(published, figure.subplots())
            figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
        return {"alt": alt, "caption": caption, "data": base64.b64encode(file.getvalue()).decode()}

    caption = "Privacy loss of a move, by distance."
    pictures = [embed("curve", plots.plot_protection, "Curve of privacy loss by distance", caption)]
    has_map = isinstance(published, BaseRelease) and published.domain.ndim == 2
    if has_map and mechanism_of(published).determines_cells is not None:
        caption = f"The published map. Estimates: {list_facts(published)['estimator']}."
        pictures.append(embed("map", plots.plot_map, "Map of estimated points per cell", caption))
    return pictures
