"""The privacy statement as a page: one file of HTML that needs no other, Markdown, or plain text."""

from __future__ import annotations

import html
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

from deltahist import plots
from deltahist._files import write_whole
from deltahist.errors import InputError
from deltahist.mechanisms.plain import Section, judged, sections
from deltahist.mechanisms.statement import Row, joined, parameters

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from deltahist.releases.base import BaseRelease

#: What the suffix of a file says.
FORMS = {".html": "html", ".htm": "html", ".md": "markdown", ".txt": "text"}
_TITLE = "Privacy statement"
_TECHNICAL = "Technical parameters"
#: A line of a list in Markdown that goes on in the next.
_BREAK = "\\\n  "
#: Inches of the pictures: about the width of a telephone, so that their letters can be read there.
_WIDTH, _HEIGHT = 4.6, 3.5

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
caption { text-align: left; color: var(--pale); padding-bottom: .4rem; }
th, td { text-align: right; padding: .35rem .4rem; border-bottom: 1px solid var(--line); vertical-align: bottom; }
th:first-child { text-align: left; }
td { white-space: nowrap; }
tbody th { font-weight: normal; }
figure { margin: 1rem 0; max-width: 34rem; }
figure svg { width: 100%; height: auto; display: block; }
figcaption { color: var(--pale); font-size: .9rem; }
dl { font-size: .92rem; } dt { font-weight: 600; margin-top: .5rem; } dd { margin: 0; color: var(--pale); }
@media (min-width: 44rem) {
  dl { display: grid; grid-template-columns: 11rem 1fr; gap: .4rem 1rem; } dt { margin: 0; }
}
@media print {
  body { font-size: 10.5pt; } main { max-width: none; padding: 0; }
  h2 { break-after: avoid; } table, figure, .judgement, dt { break-inside: avoid; } figure { max-width: 12cm; }
}
""".strip()


def check_page(path: str | Path) -> str:
    """The form that a file's suffix asks for; InputError on an unknown one.

    >>> check_page("statement.html")
    'html'
    """
    form = FORMS.get(Path(path).suffix.lower())
    if form is None:
        raise InputError(f"output is {str(path)!r}: its suffix must be one of {', '.join(FORMS)}")
    return form


def save_statement(release: BaseRelease, path: str | Path, title: str | None = None) -> None:
    """Write a release's privacy statement to a file; the suffix says in which form.

    HTML is one page for the web, for telephones and for print: plain words first, the protection by distance as a table
    and a curve, the map if there is one, the technical parameters last. It refers to no other file. Markdown has the
    same words and tables without pictures; text is `release.statement()`. The file appears whole or not at all.

    Parameters
    ----------
    release : a release of any kind.
    path : .html, .htm, .md or .txt.
    title : of the page, such as the name of the data.

    Raises
    ------
    InputError
        On another suffix, or a folder that cannot be written.
    """
    text = page(release, check_page(path), title)
    write_whole(Path(path), lambda part: part.write_text(text, encoding="utf-8"))


def page(release: BaseRelease, form: str, title: str | None = None) -> str:
    """The statement as "html", "markdown" or "text"; parameters as for `save_statement`.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 1), (4,)), delta=0.25)
    >>> page(dh.publish(np.ones(4, dtype=int), near, epsilon=1), "markdown", "Four cells").splitlines()[0]
    '# Four cells'
    """
    if form == "text":
        text = release.statement() + "\n"
        return text if title is None else f"{title}\n\n{text}"
    title = _TITLE if title is None else title
    return (_html if form == "html" else _markdown)(release, title)


def _parts(release: BaseRelease, title: str) -> tuple[tuple[str, str], list[Section], list[Row]]:
    """The judgement, the sections in plain words, and the technical parameters."""
    facts = release.facts()
    parts = sections(release.mechanism, facts)
    named = "" if title == _TITLE else f"{title.rstrip('.')}. "
    cited = f"Cite as: {named}{release.mechanism.promise}. Published with deltahist."
    last = parts[-1]
    parts[-1] = Section(last.heading, (*last.paragraphs, cited))
    return judged(facts), parts, parameters(release.mechanism, facts)


def _html(release: BaseRelease, title: str) -> str:
    (verdict, why), parts, technical = _parts(release, title)
    kind = verdict.split()[0]  # yes, no, only (if)
    body = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="judgement {kind}"><strong>May be published: {verdict}</strong> {html.escape(why)}</p>',
    ]
    for part in parts:
        body += [f"<h2>{html.escape(part.heading)}</h2>", *_html_of(part)]
        if part.header:
            body.append(_curve(release))
            body += (
                [_map(release)]
                if release.domain.ndim == 2 and release.mechanism.determines_cells is not None
                else []
            )
    body += [f"<h2>{_TECHNICAL}</h2>", "<dl>"]
    for label, lines in joined(technical):
        body.append(
            f"<dt>{html.escape(label)}</dt><dd>{'<br>'.join(html.escape(t.strip()) for t in lines)}</dd>"
        )
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{html.escape(title)}</title>",
            f"<style>\n{_STYLE}\n</style></head>",
            "<body><main>",
            *body,
            "</dl>",
            "</main></body></html>\n",
        ]
    )


def _html_of(part: Section) -> list[str]:
    if not part.header:
        return [f"<p>{html.escape(text)}</p>" for text in part.paragraphs]
    caption = "".join(f"<caption>{html.escape(text)}</caption>" for text in part.paragraphs)
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in part.header)
    rows = [
        f'<tr><th scope="row">{html.escape(first)}</th>'
        + "".join(f"<td>{html.escape(c)}</td>" for c in rest)
        + "</tr>"
        for first, *rest in part.rows
    ]
    return [f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>", *rows, "</tbody></table>"]


def _curve(release: BaseRelease) -> str:
    figure, ax = _figure()
    plots.plot_protection(release, ax)
    what = "Curve of what a move costs against its distance; the table above has its values."
    return _in_page(figure, "curve", what, "What a move costs, by its distance.")


def _map(release: BaseRelease) -> str:
    figure, ax = _figure()
    release.plot(ax)
    what = "Map of the published estimates of points per cell."
    kind = release.estimator(release.draws_nonnegative())
    return _in_page(figure, "map", what, f"The published map. Estimates: {kind}.")


def _figure() -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="compressed")
    return figure, figure.subplots()


def _in_page(figure: Figure, name: str, what: str, caption: str) -> str:
    """A figure as SVG within a page: its letters stay text, and its names are its own."""
    from matplotlib import rc_context

    file = io.StringIO()
    # Without a date and chance names the same release makes the same page.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    drawing = file.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", drawing)
    drawing = re.sub(r'(<svg [^>]*?) width="[^"]*"', r"\1", drawing, count=1)
    drawing = re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", drawing, count=1)
    drawing = drawing.replace("<svg ", f'<svg role="img" aria-label="{html.escape(what)}" ', 1)
    return f"<figure>\n{drawing}<figcaption>{html.escape(caption)}</figcaption></figure>"


def _markdown(release: BaseRelease, title: str) -> str:
    (verdict, why), parts, technical = _parts(release, title)
    blocks = [f"# {_plain(title)}", f"**May be published: {verdict}.** {_plain(why)}"]
    for part in parts:
        blocks += [f"## {part.heading}", *map(_plain, part.paragraphs)]
        if part.header:
            rule = ["---", *["---:"] * (len(part.header) - 1)]
            blocks.append(
                "\n".join(f"| {' | '.join(map(_plain, row))} |" for row in (part.header, rule, *part.rows))
            )
    lines = [
        f"- **{_plain(label)}**: {_BREAK.join(_plain(t.strip()) for t in texts)}"
        for label, texts in joined(technical)
    ]
    return "\n\n".join([*blocks, f"## {_TECHNICAL}", "\n".join(lines)]) + "\n"


def _plain(text: str) -> str:
    """Text that Markdown takes for text."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", text).replace("\n", " ")
