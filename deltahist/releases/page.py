"""The privacy statement as a page: one file of HTML that needs no other, Markdown, or plain text."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltahist._files import form_of, write_whole
from deltahist.releases.series import Series
from deltahist.statement import distance_table, headline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from deltahist.releases.base import BaseRelease

#: Form of a page by the suffix of its file.
FORMS = {".html": "html", ".htm": "html", ".md": "markdown", ".txt": "text"}
#: Inches of the pictures: about the width of a telephone, with letters of 11 points at least.
_SIZE = (4.6, 4.4)
_LETTERS: Any = {"font.size": 13.4, "axes.labelsize": "small", "xtick.labelsize": "small", "ytick.labelsize": "small"}


def save_statement(release: BaseRelease | Series, path: str | Path, title: str | None = None) -> None:
    """Write a release's privacy statement to a file, in the form of its suffix.

    HTML is one page for the web and for print, with the curve of protection by distance and the map if there is one.
    It refers to no other file. Markdown has the same words and table without pictures; text is `release.statement()`.
    The file appears whole or not at all.

    Parameters
    ----------
    release : a release of any kind, or a series.
    path : .html, .htm, .md or .txt.
    title : of the page, such as the name of the data.

    Raises
    ------
    InputError
        On another suffix, or a folder that cannot be written.
    """
    text = render_page(release, form_of(path, FORMS), title)
    write_whole(Path(path), lambda part: part.write_text(text, encoding="utf-8"))


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
    import jinja2

    facts = release.facts()
    shelf = jinja2.Environment(loader=jinja2.PackageLoader("deltahist.releases", "."), autoescape=form == "html")
    shelf.filters["plain"] = lambda text: re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", text).replace("\n", " ")
    return shelf.get_template("statement.jinja").render(
        form=form,
        title="Privacy statement" if title is None else title,
        warning=headline(facts),
        verdict=re.split(r"[ :]", facts["may_be_published"])[0],
        rows=release.rows(),
        table=distance_table(facts),
        pictures=_draw(release) if form == "html" else [],
    )


def _draw(release: BaseRelease | Series) -> list[dict[str, Any]]:
    """Return the pictures of a page: the map if there is one, and the curve of protection."""
    from deltahist import plots

    def on_axes(plot: Callable[[Any], Any]) -> Callable[[], Figure]:
        def make() -> Figure:
            figure = plots.ground.new_figure(figsize=_SIZE, layout="compressed")
            plot(figure.subplots())
            return figure

        return make

    curve = on_axes(lambda axes: plots.plot_protection(release, axes))
    pictures = [_embed("curve", curve, "Curve of costs by distance", "Cost of a move by its distance.")]
    if not isinstance(release, Series) and release.domain.ndim == 2 and release.mechanism.determines_cells is not None:
        caption = f"The published map. Estimates: {release.estimator(False)}."
        draw = on_axes(lambda axes: plots.plot_map(release, axes))
        pictures.append(_embed("map", draw, "Map of the estimates of points per cell", caption))
    return pictures


def _embed(name: str, make: Callable[[], Figure], alt: str, caption: str) -> dict[str, Any]:
    from matplotlib import rc_context

    file = io.BytesIO()
    # Without a date and chance names the same release makes the same page.
    with rc_context(_LETTERS | {"svg.hashsalt": name}):
        make().savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return {"alt": alt, "caption": caption, "data": base64.b64encode(file.getvalue()).decode()}
