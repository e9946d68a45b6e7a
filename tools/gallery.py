"""Draw the gallery: `python tools/gallery.py FOLDER` runs the scripts of docs/gallery and writes FOLDER/gallery.md."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path
from unittest import mock

import matplotlib
import matplotlib.pyplot as plt
from PIL import Image

SCRIPTS = sorted((Path(__file__).resolve().parent.parent / "docs" / "gallery").glob("*.py"))


def draw_gallery(folder: Path) -> None:
    """Write a picture for each script, and a page with all titles, pictures, captions and scripts."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = ["# Gallery\n\nShort scripts drew these pictures of an invented city. Each runs in a few seconds.\n"]
    for script in SCRIPTS:
        draw_picture(script, folder / f"{script.stem}.png")
        title, caption = read_caption(script)
        parts.append(
            f'## {title}\n\n![{title}]({script.stem}.png){{ width="520" }}\n\n{caption}\n\n'
            f'<details markdown="1"><summary>{script.name}</summary>\n\n'
            f"```python\n{script.read_text(encoding='utf-8')}```\n\n</details>\n"
        )
    (folder / "gallery.md").write_text("\n".join(parts), encoding="utf-8")


def draw_picture(script: Path, picture: Path) -> None:
    """Run a script, and reduce its picture to 256 colours, to save space."""
    matplotlib.use("Agg")
    with mock.patch.object(sys, "argv", [str(script), str(picture)]), matplotlib.rc_context():
        runpy.run_path(str(script))
    plt.close("all")
    image = Image.open(picture).convert("RGB")
    image.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(picture, optimize=True)


def read_caption(script: Path) -> tuple[str, str]:
    """Return the title and the caption from a script's docstring."""
    text = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    title, _, caption = text.partition("\n\n")
    return title, caption


if __name__ == "__main__":
    draw_gallery(Path(sys.argv[1]))
