"""Notices of withdrawal: small public files next to releases. Every reader of a release checks for one.

`city.withdrawn.json` withdraws `city.parquet`. It is untrusted input. A damaged notice, or one about another file, is
an error, because nobody can tell whether the release is still in force.
"""

from __future__ import annotations

import datetime
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from deltahist._files import (
    UnseenObject,
    check_format,
    first_line,
    is_stored_file,
    open_regular,
    read_object,
    write_whole,
)
from deltahist.errors import DamagedFile, InputError
from deltahist.preprocessing import check_digits, check_line

FORMAT, VERSION = "deltahist-withdrawal", 2
#: Size limit of a notice in bytes.
_MOST = 1 << 16


@dataclass(frozen=True)
class Notice:
    """When and why a release was withdrawn.

    Parameters
    ----------
    digest : SHA-256 of the release. reason : one line. date : YYYY-MM-DD.

    >>> str(Notice("0" * 64, "wrong column", "2026-11-25"))
    'on 2026-11-25: wrong column'
    """

    digest: str
    reason: str
    date: str

    def __post_init__(self) -> None:
        check_digits(digest=self.digest)
        check_line(reason=self.reason)
        datetime.date.fromisoformat(self.date)  # raises ValueError on anything but a day

    def __str__(self) -> str:
        """Say when and why."""
        return f"on {self.date}: {self.reason}"

    def save(self, path: Path) -> None:
        """Write the notice next to the file of its release."""
        readme = f"{path.name} (SHA-256 {self.digest}) was withdrawn {self}. Do not use it."
        text = json.dumps({"format": FORMAT, "version": VERSION, **asdict(self), "readme": readme}, indent=2) + "\n"
        write_whole(Path(notice_path(path)), lambda part: part.write_text(text, encoding="utf-8"))


def notice_path(path: str | Path) -> str:
    """Return the path or URL of the notice that would withdraw a release.

    >>> notice_path("maps/city.parquet"), notice_path("median.json")
    ('maps/city.withdrawn.json', 'median.json.withdrawn.json')
    """
    return str(path).removesuffix(".parquet") + ".withdrawn.json"


def find_notice(path: str | Path, digest: str | None = None) -> Notice | None:
    """Return the notice next to a release's file, or next to the target of a link; None if there is none.

    Raises DamagedFile if it cannot be read, or is about a release with another digest.
    """
    stored = is_stored_file(path)
    places = [str(path)] if stored else dict.fromkeys([str(path), str(Path(path).resolve())])
    for place in map(notice_path, places):
        try:
            if (content := _read_stored(place) if stored else _read_local(Path(place))) is None:
                continue
            found = json.loads(content)
            check_format(found, place, (FORMAT,), VERSION)
            notice = Notice(found["digest"], found["reason"], found["date"])
            if digest not in (None, notice.digest):
                raise InputError(f"it is about another release, with the SHA-256 {notice.digest[:16]}...")
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError, OSError) as problem:
            raise DamagedFile(
                f"release file {str(path)!r} may be withdrawn, but the notice {place!r} cannot be read "
                f"({first_line(problem)}): get both files again from the publisher"
            ) from None
        return notice
    return None


def _read_local(place: Path) -> bytes | None:
    """Return the start of a notice; None if there is none. A longer one is cut short, which is not valid JSON."""
    if not os.path.lexists(place):
        return None
    with open_regular(place, "notice") as file:
        return file.read(_MOST)


def _read_stored(place: str) -> bytes | None:
    try:
        return read_object(place, "notice", _MOST)
    except UnseenObject:
        return None
