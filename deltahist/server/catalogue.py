"""The releases of a service, reread when their files change."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import deltahist.kinds  # noqa: F401  registers every kind of release
from deltahist._files import open_regular
from deltahist.errors import InputError
from deltahist.kinds import parse_release
from deltahist.releases.base import BaseRelease, attach_notice, notice_path
from deltahist.releases.histogram import CountEstimates

_LOG = logging.getLogger("deltahist.server")
#: Change time (ctime), size and inode of a file. The service rereads a file if any of them changes.
_Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class Served:
    """A release with its file, and its name in the service."""

    name: str
    path: Path
    stamp: tuple[_Stamp | None, ...]
    release: BaseRelease

    @property
    def is_current(self) -> bool:
        """Whether the file is the one that was read. The service never sends a changed file."""
        return stamp_of(self.path) == self.stamp

    @property
    def quoted(self) -> str:
        return quote(self.name, safe="")


class Catalogue:
    """Releases, each named after its file. `problems` says why files in `paths` (files or folders) are not served."""

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self._paths = [Path(path) for path in paths]
        self._stamps: dict[Path, tuple[_Stamp | None, ...]] = {}
        self._served: dict[str, Served] = {}
        self.problems = self._read_changed(list(self._files()))
        if not self._served and (self.problems or not paths):
            raise InputError("nothing can be served: " + ("; ".join(self.problems) or "name release files or folders"))

    def __iter__(self) -> Iterator[Served]:
        return iter(list(self._served.values()))

    def __len__(self) -> int:
        return len(self._served)

    def in_force(self) -> list[Served]:
        """Return the releases that have not been withdrawn."""
        return [each for each in self if each.release.withdrawn is None]

    def find(self, name: str) -> Served | None:
        return self._served.get(name)

    def find_successor(self, release: BaseRelease) -> Served | None:
        """Return the release whose description says that it replaces the given one, or None."""
        named = ((each, each.release.counting.replaces) for each in self.in_force())
        return next((each for each, old in named if old is not None and old.digest == release.digest), None)

    def folders(self) -> dict[str, list[Served]]:
        """Return the releases of each folder, by folder name. If several folders have the same name, use the first."""
        found: dict[str, list[Served]] = {}
        for path in self._paths:
            if path.is_dir():
                own = [each for each in self if each.path.parent == path]
                found.setdefault(path.resolve().name, sorted(own, key=lambda each: each.path))
        return found

    def refresh(self) -> bool:
        """Read new and changed files, forget removed ones, and return whether the served releases have changed.

        If a file has become unreadable, log the reason once and keep its previous release. If a notice of withdrawal is
        damaged, stop serving the release.
        """
        try:
            found, before = [path for path in self._files() if path.exists()], dict(self._served)
        except OSError as problem:
            _LOG.warning("a folder cannot be read: %s", problem)
            return False
        for reason in self._read_changed(found):
            _LOG.warning("not served: %s", reason)
        for served in self:
            if served.path not in found:
                del self._served[served.name]
                self._stamps = {path: at for path, at in self._stamps.items() if path.stem != served.name}
                _LOG.info("no longer serving %s", served.path)
        return self._served != before

    def _files(self) -> Iterator[Path]:
        for path in self._paths:
            if path.is_dir():
                own = (each for each in path.iterdir() if each.suffix.lower() == ".parquet")
                yield from sorted(each for each in own if not each.name.startswith("."))
            else:
                yield path

    def _read_changed(self, paths: Sequence[Path]) -> list[str]:
        """Serve the releases of new and changed files. Return the reasons why any of them cannot be served."""
        problems = []
        for path in paths:
            try:
                if self._stamps.get(path) == stamp_of(path):
                    continue
                reason = self._serve_file(path)
            except Exception as problem:  # serve the others
                reason = str(problem)
            if reason is None:
                _LOG.info("serving %s", path)
            else:
                problems.append(reason)
        return problems

    def _serve_file(self, path: Path) -> str | None:
        """Serve the release of a file, or return the reason why it cannot be served."""
        self._stamps[path] = stamp_of(path)  # before reading, so that later changes are noticed
        other = self._served.get(path.stem)
        if other is not None and other.path != path and other.path.exists():
            return f"{path} and {other.path} have the same name, {path.stem!r}: rename one of them"
        with open_regular(path, "release file") as file:
            release = parse_release(file, path)
        try:
            release = attach_notice(release, path)
        except InputError:
            self._served.pop(path.stem, None)  # the release may be withdrawn
            raise
        if not release.publishable:
            return f"{path} is not for publication: publish the data without a seed"
        if isinstance(release, CountEstimates) and release.withdrawn is None:
            release.precompute_sums()
        self._served[path.stem] = Served(path.stem, path, self._stamps[path], release)
        return None


def stamp_of(path: Path) -> tuple[_Stamp | None, ...]:
    """Return the stamps of a release file and of the notices that would withdraw it, with None for a missing file."""
    notices = (Path(notice_path(file)) for file in dict.fromkeys([path, path.resolve()]))
    return tuple(map(_file_stamp, (path, *notices)))


def _file_stamp(path: Path) -> _Stamp | None:
    try:
        about = path.stat()
    except OSError as problem:
        # A broken link does not count as missing, because its target may be a notice.
        missing = isinstance(problem, FileNotFoundError) and not path.is_symlink()
        return None if missing else (0, 0, problem.errno or 0)
    return about.st_ctime_ns, about.st_size, about.st_ino
