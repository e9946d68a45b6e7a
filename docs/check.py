"""Check README.md and docs/*.md: relative links resolve, and Python examples after `<!-- run -->` run.

The examples of one page share their names, top to bottom, and run in an empty folder of their own.
"""

import os
import re
import sys
import tempfile
import traceback
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
FENCED = re.compile(r"^```.*?^```[ \t]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)")
EXAMPLE = re.compile(r"^<!-- run -->\s*?\n+```python[^\n]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


def broken_links(page: Path, text: str) -> list[str]:
    """The relative links of a page that lead nowhere (links inside code are not links)."""
    broken = []
    for target in LINK.findall(FENCED.sub("", text)):
        path = unquote(target.split("#")[0])
        if path and not re.match(r"[a-z][a-z0-9+.-]*:", path) and not (page.parent / path).exists():
            broken.append(f"{page.relative_to(ROOT)}: link to {target} leads nowhere")
    return broken


def failing_examples(page: Path, text: str) -> list[str]:
    """Run the page's marked examples; what went wrong in the first that fails."""
    names: dict[str, object] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for match in EXAMPLE.finditer(text):
                line = text.count("\n", 0, match.start(1))
                try:  # the padding makes tracebacks show the page's own line numbers
                    exec(compile("\n" * line + match[1], str(page), "exec"), names)
                except (Exception, SystemExit):
                    return [f"{page.relative_to(ROOT)}: an example failed\n{traceback.format_exc()}"]
        finally:
            os.chdir(ROOT)
    return []


def main() -> int:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    problems = [problem for page, text in texts.items() for problem in broken_links(page, text)]
    problems += [problem for page, text in texts.items() for problem in failing_examples(page, text)]
    examples = sum(len(EXAMPLE.findall(text)) for text in texts.values())
    print("\n".join(problems) or f"{len(pages)} pages: links resolve, {examples} marked examples run")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
