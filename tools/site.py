"""Build the site from docs/ and from pages made of the code: `python -m tools.site FOLDER` writes FOLDER/site."""

from __future__ import annotations

import json
import os
import pkgutil
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
import numpy as np
import typer
from typer.cli import get_docs_for_click

import deltahist as dh
from deltahist import cli
from deltahist.server.app import create_app
from deltahist.server.catalogue import Catalogue
from tools import explorable

ROOT = Path(__file__).resolve().parent.parent
# Links to these files lead to the pages that are made from them.
MADE = {
    "deltahist/__init__.pyi": "api/index.md",
    "deltahist/cli/__init__.py": "commands/index.md",
    "deltahist/server/app.py": "http.md",
    "tools/gallery.py": "gallery/gallery.md",
}
# Every public name is on one of these pages. A name that is missing here fails the build.
PAGES = {
    "space": ("Space and queries", "Domain Neighbourhood workloads.Boxes workloads"),
    "publishing": (
        "Publishing",
        "count count_file publish About refine tighten withdraw publishers.publish_mechanism Mechanism Budget "
        "laws.Guarantee sensitivity",
    ),
    "reading": (
        "Releases and answers",
        "load connect Release Series Difference answer answers.answer_each answers.covariance releases.Measurements "
        "combining.Combined export synthetic statement.list_facts write_statement plots.protection_curve",
    ),
    "planning": (
        "Planning",
        "plan planning.advise planning.Candidate expected_error check_strategy sweeping.sweep sweeping.Peer",
    ),
    "accounts": (
        "Ledgers and accounts",
        "Ledger accounts.Account accounts.Window accounts.allocate_offline accounts.allocate_online",
    ),
    "kinds": (
        "Other kinds",
        "publishers.publish_sorted kinds.SortedRelease kinds.SortedMechanism publishers.publish_quantile "
        "kinds.Quantile kinds.QuantileMechanism network.Network network.PrivacyLevels "
        "network.DiffusionMechanism network.Diffusion network.Rappor network.Clients personal.People",
    ),
    "strategies": ("Strategies", "Strategy register strategies"),
    "modules": ("Noise, decoding and pictures", "noise decode plots"),
    "errors": ("Errors", "InputError errors.OutsideBounds BudgetExceeded DamagedFile errors.DeltaHistWarning"),
}


class PlainDocstrings(griffe.Extension):
    """Markdown for the package's docstrings, whose lists of parameters have no types."""

    def on_instance(self, *, obj: griffe.Object | griffe.Alias, **_: Any) -> None:
        """Rewrite a docstring when its object is loaded."""
        if isinstance(obj, griffe.Object) and obj.docstring is not None:
            obj.docstring.value = convert_docstring(obj.docstring.value)


def convert_docstring(text: str) -> str:
    """Return a docstring with lists of parameters, fenced examples and links to pages."""
    parts = []
    for block in re.split(r"\n\n+", text):
        block = re.sub(r"^(\w+)\n-{3,}\n", r"**\1**\n\n", block)
        if block.lstrip().startswith(">>>"):
            parts.append(f"```pycon\n{block}\n```")
            continue
        block = re.sub(r"(`[^`]*`)|<", lambda found: found[1] or "&lt;", block)
        # "name : what it is", at the start of a line or after a sentence
        items = r"(^|(?<=\.) )((?:\w+, )*\w+) : "
        block = re.sub(items, lambda found: f"{found[1] and chr(10)}- **{found[2]}**: ", block, flags=re.MULTILINE)
        block = re.sub(r"docs/([\w/-]+)\.md", r"[\1](../\1.md)", block)
        parts.append(re.sub(r"`dh\.(\w+)(?:\(\))?`", r"[`dh.\1`][deltahist.\1]", block))
    return "\n\n".join(parts)


def build_site(folder: Path) -> None:
    """Write the site to folder/site, from pages collected in folder/pages. Fails if there are warnings."""
    pages = folder / "pages"
    for old in ("pages", "site", ".cache"):
        shutil.rmtree(folder / old, ignore_errors=True)
    collect_pages(pages)
    settings: dict[str, Any] = {"cwd": folder, "env": {**os.environ, "PYTHONPATH": str(ROOT)}}
    # Gallery and sliders take half a minute, so they are made at the same time.
    with subprocess.Popen([sys.executable, ROOT / "tools" / "gallery.py", pages / "gallery"], **settings) as drawing:
        explorable.write_page(pages / "explorable")
    if drawing.returncode:
        raise SystemExit("the gallery cannot be drawn")
    write_reference(pages / "api")
    write_commands(pages / "commands")
    write_paths(pages / "http.md")
    shutil.copy(ROOT / "zensical.toml", folder)
    subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], **settings, check=True)
    merge_properties(folder / "site" / "search.json")


def collect_pages(folder: Path) -> None:
    """Copy docs/, and what its pages link to elsewhere in the repository, with links that fit the new places."""

    def place_of(path: str) -> str:
        # A README would become a second index.
        return MADE.get(path) or path.removeprefix("docs/").replace("README", "overview")

    waiting = [str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*") if path.is_file()]
    for path in waiting:  # grows
        target = folder / place_of(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not path.endswith(".md"):
            shutil.copy(ROOT / path, target)
            continue

        def move_link(found: re.Match[str], path: str = path) -> str:
            linked = posixpath.normpath(posixpath.join(posixpath.dirname(path), found[1]))
            if not (ROOT / linked).is_file():
                return found[0]  # the builder finds it if it is dead
            if linked not in (*waiting, *MADE):
                waiting.append(linked)
            return f"]({posixpath.relpath(place_of(linked), posixpath.dirname(place_of(path)) or '.')}"

        text = (ROOT / path).read_text(encoding="utf-8")
        if path == "docs/glossary.md":  # search ranks headings first
            text = re.sub(r"^- \*\*(.*?)\*\*: ", r"## \1\n\n", text, flags=re.MULTILINE)
        target.write_text(re.sub(r"\]\(([^)#:\s]+)", move_link, text), encoding="utf-8")


def write_reference(folder: Path) -> None:
    """Write a page for each subject of the Python interface, and an index."""
    named = [name for _, names in PAGES.values() for name in names.split()]
    if missing := set(dh.__all__) - {name.split(".")[0] for name in named}:
        raise SystemExit(f"PAGES of tools/site.py lacks {missing}")
    folder.mkdir()
    index = ["# Python\n\n`import deltahist as dh` imports a name on its first use."]
    for page, (title, names) in PAGES.items():
        blocks = [f"# {title}", *(f"::: deltahist.{name}" for name in names.split())]
        if page == "strategies":  # all inherit the same methods
            blocks[-1] += "\n    options:\n      inherited_members: false"
        (folder / f"{page}.md").write_text("\n\n".join(blocks), encoding="utf-8")
        index.append(f"## [{title}]({page}.md)\n\n| name | what it is or does |\n|---|---|")
        for name in names.split():
            sentence = (
                re.split(r"(?<=\.)\s", str(pkgutil.resolve_name(f"deltahist.{name}").__doc__))[0]
                .replace("|", r"\|")
                .replace("\n", " ")
            )
            index[-1] += f"\n| [`{name}`][deltahist.{name}] | {sentence} |"
    (folder / "index.md").write_text("\n\n".join(index), encoding="utf-8")


def write_commands(folder: Path) -> None:
    """Write a page for each command, with its arguments and options, and an index."""
    group: Any = typer.main.get_command(cli.make_app(None))
    for name in cli.COMMANDS:  # an app imports only the command that is called
        called: Any = typer.main.get_command(cli.make_app(name))
        group.commands[name] = called.commands[name]
    text = get_docs_for_click(obj=group, ctx=typer.Context(group), name="deltahist", title="Command line")
    # Four spaces make an example a block of code.
    text = re.sub(r"\x08\n(.*:)\n((?:  .*\n)+)", lambda found: f"{found[1]}\n\n{textwrap.indent(found[2], '  ')}", text)
    text = text.replace("* `--help`: Show this message and exit.\n", "").replace("**Options**:\n\n\n", "")
    # "## `deltahist publish`" becomes the title of a page.
    text = re.sub(r"^#(#+ `)deltahist ", r"\1", text, flags=re.MULTILINE)
    index, *pages = re.split(r"^(?=# `)", text, flags=re.MULTILINE)
    folder.mkdir()
    (folder / "index.md").write_text(
        re.sub(r"^\* `(\w+)`", r"* [`\1`](\1.md)", index, flags=re.MULTILINE), encoding="utf-8"
    )
    for name, page in zip(cli.COMMANDS, pages, strict=True):
        (folder / f"{name}.md").write_text(page, encoding="utf-8")


def merge_properties(path: Path) -> None:
    """Merge properties into their classes in the search index, so that a search for "epsilon" leads to the glossary."""
    index = json.loads(path.read_text(encoding="utf-8"))
    entries, index["items"] = index["items"], []
    for entry in entries:
        if entry["location"].startswith("api/") and "property</code>" in entry["title"]:
            index["items"][-1]["text"] += entry["text"]
        else:
            index["items"].append(entry)
    path.write_text(json.dumps(index, ensure_ascii=False), encoding="utf-8")


def write_paths(path: Path) -> None:
    """Write a page of the service's paths, with their parameters and answers."""
    near = dh.Neighbourhood(dh.Domain((0, 4), (4,)), delta=1)
    with tempfile.TemporaryDirectory() as folder:
        dh.publish(np.ones(4, dtype=int), near, epsilon=1).save(Path(folder, "line.parquet"))
        api = create_app(Catalogue([folder])).openapi()
    lines = ["# HTTP paths", "The [service](service.md) serves this description as `/openapi.json`."]
    for place, methods in api["paths"].items():
        for method, operation in methods.items():
            lines += [f"## `{method.upper()} {place}`", operation["description"]]
            parameters = operation.get("parameters", [])
            lines += list_fields("parameter", {each["name"]: each["schema"] for each in parameters})
            if sent := operation.get("requestBody"):
                lines.append(f"**Body**: {', '.join(f'`{kind}`' for kind in sent['content'])}")
            content = operation["responses"]["200"]["content"]
            lines.append(f"**Answer**: {', '.join(f'`{kind}`' for kind in content)}")
            lines += list_fields("field of the answer", next(iter(content.values()))["schema"].get("properties", {}))
    path.write_text("\n\n".join(lines), encoding="utf-8")


def list_fields(heading: str, fields: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield a table of fields, each with its JSON schema, unless there are none."""
    rows = [f"| {heading} | type | meaning |", "|---|---|---|"]
    for name, schema in fields.items():
        kinds = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
        kind = ", ".join(f"`{value}`" for value in kinds[0].get("enum", [])) or kinds[0].get("type", "")
        default = f" [default: {json.dumps(schema['default'])}]" if schema.get("default") is not None else ""
        rows.append(f"| `{name}` | {kind} | {schema.get('description', '')}{default} |")
    if fields:
        yield "\n".join(rows)


if __name__ == "__main__":
    build_site(Path(sys.argv[1]).resolve())
