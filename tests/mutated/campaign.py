"""Changing valid files many times, and running the command lines that read them."""

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from mutated.changes import change
from mutated.files import FORMATS, Format, write_all
from mutated.runner import Outcome, Runner


def run(
    folder: Path, number: int, formats: tuple[Format, ...] = FORMATS
) -> Iterator[tuple[Format, int, Outcome]]:
    """Outcomes of `number` changed files, the formats in turn; file n of a format is the same every time."""
    write_all(folder)
    runner = Runner(folder)
    try:
        for i in range(number):
            form, n = formats[i % len(formats)], i // len(formats)
            yield form, n, one(folder, runner, form, n)
    finally:
        runner.close()


def one(folder: Path, runner: Runner, form: Format, n: int) -> Outcome:
    """The outcome for file n of a format."""
    content = changed(folder, form, n)
    changes = folder / "changed"
    shutil.rmtree(changes, ignore_errors=True)
    if form.folder:
        shutil.copytree(folder / form.folder, changes)
    else:
        changes.mkdir()
    file = changes / form.file
    file.write_bytes(content)
    file.chmod(0o600 if form.secret or file.suffix == ".ledger" else 0o644)
    line = form.lines[n % len(form.lines)]
    outcome = runner.run([{"FILE": str(file), "FOLDER": str(changes)}.get(part, part) for part in line])
    if n == 0 and outcome.status != 0 and not outcome.wrong:
        return replace(outcome, wrong=f"as it was written it is not read: {outcome.said}")
    return outcome


def changed(folder: Path, form: Format, n: int) -> bytes:
    """File n of a format; the first is as it was written."""
    content = (folder / form.file).read_bytes()
    return content if n == 0 else change(content, random.Random(f"{form.name} {n}"))
