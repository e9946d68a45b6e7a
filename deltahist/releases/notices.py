"""Notices of withdrawal: a small public file beside a release, which every reader of the release heeds.

`city.parquet` is withdrawn by `city.withdrawn.json`: format, version, digest of the release, reason, date, and digest
and file name of a replacement or null. Who can put it there could as well have changed the release. Like a release it
is untrusted input: one that is damaged, or about another file, is an error, since nobody can tell then whether the
release is in force.
"""

from __future__ import annotations

import datetime
import errno
import json
import re
import stat
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltahist._files import check_format, first_line, notice_of, write_whole
from deltahist._objects import HiddenObject, UnseenObject, find_object, is_stored_file
from deltahist.errors import DamagedFile, DeltaHistWarning, InputError
from deltahist.preprocessing import check_digits, check_reason
from deltahist.statement import explain_withdrawal

if TYPE_CHECKING:
    from deltahist.releases.base import BaseRelease

FORMAT, VERSION = "deltahist-withdrawal", 1
#: Bytes of a notice that are read: reason and readme are a line each.
_MOST = 1 << 16


@dataclass(frozen=True)
class Replacement:
    """The release to use instead: its SHA-256, and the name of its file, without a folder."""

    digest: str
    file: str

    def __post_init__(self) -> None:
        check_digits(digest=self.digest)
        name = self.file if isinstance(self.file, str) else ""
        if not re.fullmatch(r"[^/\\]{1,255}", name) or not name.isprintable():
            raise InputError(f"file is {str(self.file)[:80]!r}: it must be the name of a file, without a folder")


@dataclass(frozen=True)
class Notice:
    """When and why a release was withdrawn, and by which it is replaced.

    Parameters
    ----------
    digest : of the release, its SHA-256. reason : one line. date : YYYY-MM-DD.
    replacement : the release to use instead; None if there is none so far.

    >>> Notice("0" * 64, "wrong column", "2026-11-25").words
    'on 2026-11-25: wrong column; nothing replaces it so far'
    """

    digest: str
    reason: str
    date: str
    replacement: Replacement | None = None

    def __post_init__(self) -> None:
        check_digits(digest=self.digest)
        object.__setattr__(self, "reason", check_reason(self.reason))
        if not isinstance(self.date, str) or datetime.date.fromisoformat(self.date).isoformat() != self.date:
            raise InputError(f"date is {self.date!r}: it must be a day, such as '2026-11-25'")

    @classmethod
    def of(cls, data: dict[str, Any]) -> Notice:
        """Return a notice as data hold it; whatever Python raises where they do not."""
        instead = None if data["replacement"] is None else Replacement(**data["replacement"])
        return cls(data["digest"], data["reason"], data["date"], instead)

    @property
    def words(self) -> str:
        """When, why, and by which release it is replaced."""
        return explain_withdrawal(asdict(self))

    def save(self, path: Path) -> None:
        """Write the notice beside the file of its release; it appears whole or not at all."""
        readme = (
            f"{path.name}, the release of map data with the SHA-256 {self.digest}, was withdrawn {self.words}. Do not "
            "use it any more, nor answers, tables and pictures that were made of it. This notice belongs beside the "
            "release, wherever that is kept: deltahist heeds it."
        )
        content = {"format": FORMAT, "version": VERSION, **asdict(self), "readme": readme}
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        write_whole(Path(notice_of(path)), lambda part: part.write_text(text, encoding="utf-8"))


def find_notice(release: BaseRelease, path: str | Path) -> Notice | None:
    """Return the notice beside a release's file; None if there is none.

    In object storage a notice that may not be read is as good as none, with a warning: storages that do not list their
    objects tell no difference.

    Raises
    ------
    DamagedFile
        If it cannot be understood, or is about another release.
    """
    if is_stored_file(path):
        return _read_notice(release, path, notice_of(path))
    found = (_read_notice(release, path, str(place)) for place in places_of(Path(path)))
    return next((notice for notice in found if notice is not None), None)


def places_of(path: Path) -> list[Path]:
    """Return the places of notices that would withdraw a release: beside its file, and where it is if that is a link.

    >>> places_of(Path("maps/city.parquet"))
    [PosixPath('maps/city.withdrawn.json')]
    """
    files = [path, path.resolve()] if path.is_symlink() else [path]
    return [Path(notice_of(file)) for file in files]


def _read_notice(release: BaseRelease, path: str | Path, place: str) -> Notice | None:
    try:
        content = _read_stored(place, path) if is_stored_file(path) else _read_local(Path(place))
        if content is None:
            return None
        if len(content) > _MOST:
            raise InputError(f"it has more than {_MOST:,} bytes")
        found = json.loads(content)
        check_format(found, place, form=FORMAT, version=VERSION)
        notice = Notice.of(found)
        if notice.digest != release.digest:
            raise InputError(f"it is about another release, with the SHA-256 {notice.digest[:16]}...")
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as problem:
        raise DamagedFile(
            f"release file {str(path)!r} may be withdrawn: beside it is the notice {place!r}, which cannot be taken "
            f"for its own: {first_line(problem)}; get both again from who published them (was the release replaced "
            "under its old name?)"
        ) from None
    return notice


def _read_local(place: Path) -> bytes | None:
    """Return the first bytes of a notice; None if there is none. InputError if there is, and it cannot be read."""
    try:
        if not stat.S_ISREG(place.stat().st_mode):  # reading a pipe would wait for ever
            raise InputError("it is no file")
        with place.open("rb") as file:
            return file.read(_MOST + 1)
    except FileNotFoundError:
        if place.is_symlink():
            raise InputError("it is a link to nothing") from None
        return None
    except OSError as problem:
        if problem.errno == errno.ENAMETOOLONG:  # no notice can have such a name
            return None
        raise InputError(f"it cannot be read: {problem.strerror}") from None


def _read_stored(place: str, path: str | Path) -> bytes | None:
    try:
        stored = find_object(place, "notice")
    except UnseenObject as unseen:
        if isinstance(unseen, HiddenObject):
            warnings.warn(f"whether {path} is withdrawn is not known: {unseen}", DeltaHistWarning, stacklevel=2)
        return None
    return stored.bytes_of(0, min(stored.size, _MOST + 1))


def refusal(release: BaseRelease, path: str | Path) -> InputError:
    """Return the error for whoever wants to use a release that was withdrawn."""
    assert release.withdrawn is not None
    return InputError(
        f"{path} was withdrawn {release.withdrawn.words}; what it promised is told by `deltahist statement` "
        "alone"
    )
