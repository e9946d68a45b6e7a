"""Settings of the service of personal budgets: people, ledger, clients and their keys, and how answers leave."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import stat
import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from deltahist.accounts.rules import check_text
from deltahist.errors import InputError

_Text = Annotated[str, Meta(min_length=1)]
_Number = Annotated[int, Meta(ge=1)]
_HASH = re.compile(r"sha256\$[0-9a-f]{32}\$[0-9a-f]{64}")
#: The part of a step in which questions are worked on; the rest is for charges, commits, and what comes in between.
_WORKED = 0.8
#: Characters of a client's name: it stands before its keys of requests.
_LONGEST = 60


class AskedAccount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An account of people whom clients may ask: table and columns of their records (`People`)."""

    table: _Text
    owner: _Text
    place: tuple[str, ...] | None = None
    crs: str | None = None


class Client(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whoever may ask: hashes of keys, accounts, and requests in any minute."""

    keys: Annotated[tuple[str, ...], Meta(min_length=1)]
    accounts: Annotated[tuple[str, ...], Meta(min_length=1)]
    per_minute: _Number = 60


class PrivateSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Choices of an operator.

    Parameters
    ----------
    database, ledger : where they are, as `People` takes them.
    accounts : by their names in the ledger. clients : by name.
    host, port : where to listen. tls_in_front : whether a proxy encrypts what goes to other machines.
    metrics_port : where programs of this machine read metrics.
    step : seconds; every answer leaves when they have passed.
    max_bytes : of a question. max_seconds : until an answer must be there, with the question's own way.
    max_waiting : questions in any step; more are put off. All of them share its time alike.
    """

    database: _Text
    ledger: _Text
    accounts: Annotated[dict[str, AskedAccount], Meta(min_length=1)]
    clients: Annotated[dict[str, Client], Meta(min_length=1)]
    host: _Text = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8001
    metrics_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    tls_in_front: bool = False
    step: Annotated[float, Meta(gt=0, le=60)] = 10.0
    max_bytes: _Number = 64 << 10
    max_seconds: _Number = 120
    max_waiting: _Number = 16

    @classmethod
    def read(cls, path: Path) -> PrivateSettings:
        """Read the settings in a TOML file.

        Raises InputError if it cannot be read, is another user's, others may read or write it, or a setting is
        missing, unknown or wrong.
        """
        said = f"--config {str(path)!r}"
        try:
            with path.open(encoding="utf-8-sig") as file:
                # Of the open file: the path may lead to another one a moment later.
                _check_own(os.fstat(file.fileno()), said)
                found = tomllib.loads(file.read())
        except InputError:
            raise
        except (OSError, ValueError) as problem:
            raise InputError(f"{said} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
        try:
            settings = msgspec.convert(found, cls)
            settings.check()
        except (msgspec.ValidationError, InputError) as problem:
            raise InputError(f"{said} is refused: {problem}") from None
        return settings

    def check(self) -> None:
        """Raise InputError unless the settings go together."""
        if not self.tls_in_front and not _is_loopback(self.host):
            raise InputError(
                f"host is {self.host!r}: other machines would send keys and get answers in the clear; put a proxy with "
                "TLS in front and say tls_in_front = true, or listen at 127.0.0.1"
            )
        if self.step >= self.max_seconds:
            raise InputError(
                f"step is {self.step:g} and max_seconds {self.max_seconds}: no answer would be in time; it must be more"
            )
        seen: set[str] = set()
        for name, client in self.clients.items():
            if len(check_text(client=name)) > _LONGEST or ":" in name:
                raise InputError(f"client is {name!r}: a name has at most {_LONGEST} characters, and no colon")
            for account in client.accounts:
                if account not in self.accounts:
                    raise InputError(
                        f"clients.{name}.accounts has {account!r}: the accounts are {', '.join(self.accounts)}"
                    )
            for hashed in client.keys:
                if not _HASH.fullmatch(hashed) or hashed in seen:
                    raise InputError(
                        f"clients.{name}.keys has {hashed[:12]!r}…: each must be a line of its own from `deltahist "
                        "serve-private --new-key`, which begins with 'sha256$'; never the key itself"
                    )
                seen.add(hashed)

    @property
    def share(self) -> float:
        """Seconds in which a question has the records: all that come in a step end within most of it.

        A question of few records takes 10 ms; where a machine has other work, as one that runs tests, 0.4 s are safe.
        """
        return _WORKED * self.step / self.max_waiting

    def find_client(self, key: str) -> str | None:
        """Return the name of the client that a key belongs to; None if there is none.

        It compares with all keys, each in constant time.
        """
        found = [name for name, client in self.clients.items() for each in client.keys if fits(key, each)]
        return found[0] if found else None


def _check_own(found: os.stat_result, said: str) -> None:
    """Raise InputError unless a file is this user's, and nobody else's to read or write."""
    if os.name != "posix":
        return
    if found.st_uid != os.geteuid():
        raise InputError(
            f"{said} belongs to user {found.st_uid}, and this program runs as {os.geteuid()}: whoever owns it lets "
            "anybody in; `chown` it to the user of the service"
        )
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(
            f"{said} is open to others (mode {stat.S_IMODE(found.st_mode):o}): whoever writes it lets anybody in, and "
            "it may hold a password; `chmod 600` it"
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def make_key() -> tuple[str, str]:
    """Return a new key of 256 random bits, and the salted hash by which it is known."""
    key, salt = f"dhk_{secrets.token_urlsafe(32)}", secrets.token_hex(16)
    return key, f"sha256${salt}${_digest(key, salt)}"


def fits(key: str, hashed: str) -> bool:
    """Return whether a key is the one of a hash; in constant time."""
    _, salt, digest = hashed.split("$")
    return hmac.compare_digest(_digest(key, salt), digest)


def _digest(key: str, salt: str) -> str:
    return hashlib.sha256(bytes.fromhex(salt) + key.encode()).hexdigest()
