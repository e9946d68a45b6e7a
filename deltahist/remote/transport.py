"""Requests to a service and what comes of them: untrusted, bounded, and in words where there is no answer."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from time import monotonic, sleep
from typing import Any
from urllib.parse import urlsplit

from deltahist import __version__
from deltahist._files import first_line
from deltahist.errors import InputError

#: Bytes of an answer, and of the text of an error, that are read.
_MOST_ANSWER, _MOST_WORDS = 64 << 20, 1 << 16
#: Seconds without a byte, and seconds that a busy service is waited for.
PATIENCE = 300


class TooLarge(InputError):  # noqa: N818
    """A service takes no request as large as this one."""


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows the service to another path, or to TLS on its host: a question's body goes nowhere else."""

    def redirect_request(self, request: Any, answer: Any, code: int, words: str, headers: Any, url: str) -> Any:
        old, new = urlsplit(request.full_url), urlsplit(url)
        safer = (old.scheme, new.scheme) == ("http", "https") and old.hostname == new.hostname
        if request.data or not (safer or old[:2] == new[:2]):
            return None
        return super().redirect_request(request, answer, code, words, headers, url)


#: Files and FTP are not read, to which a service could lead as well.
_OPENER = urllib.request.OpenerDirector()
for _handler in (
    urllib.request.ProxyHandler, urllib.request.HTTPHandler, urllib.request.HTTPSHandler, _SameHost,
    urllib.request.UnknownHandler, urllib.request.HTTPDefaultErrorHandler, urllib.request.HTTPErrorProcessor,
):  # fmt: skip
    _OPENER.add_handler(_handler())


def send(
    url: str, accept: str, body: bytes | None = None, media: str = "", most: int = _MOST_ANSWER
) -> tuple[bytes, str]:
    """Return the content at an address, and the address to which the service led.

    The content has the type that is accepted, and at most `most` bytes. A busy service (503) is waited for. Raises
    InputError on every problem, with the service's words if it has any; `TooLarge` if the body is too large for it.
    """
    headers = {"Accept": accept, "User-Agent": f"deltahist/{__version__}"}
    request = urllib.request.Request(url, body, headers | ({} if body is None else {"Content-Type": media}))
    url, end = url.partition("?")[0], monotonic() + PATIENCE
    while True:
        try:
            with _OPENER.open(request, timeout=PATIENCE) as answer:
                content, found = answer.read(most + 1), answer.headers.get_content_type()
                if answer.length and len(content) <= most:
                    raise http.client.IncompleteRead(content, answer.length)
                url = answer.url
            break
        except urllib.error.HTTPError as problem:
            with problem:
                pause = _pause(problem) if problem.code == 503 else None
                if pause is None or monotonic() + pause > end:
                    raise _refusal(url, problem) from None
            sleep(pause)
        except (OSError, http.client.HTTPException) as problem:
            raise InputError(f"url is {url!r}: {_explain(problem)}") from None
    if len(content) > most:
        raise InputError(f"url is {url!r}: it answered with more than {most:,} bytes, which are not read")
    if found != accept:
        raise InputError(
            f"url is {url!r}: it answered with {printable(found)}, not with {accept}: is that a release at a service "
            "of `deltahist serve`?"
        )
    return content, url


def _pause(problem: urllib.error.HTTPError) -> float:
    """Return the seconds that a busy service asks for; one where it does not say so in seconds."""
    said = problem.headers.get("Retry-After", "")
    return float(said) if re.fullmatch(r"[1-9]\d{0,4}", said) else 1.0


def _refusal(url: str, problem: urllib.error.HTTPError) -> InputError:
    """Return the error for a service's refusal, in its own words if they are a problem document (RFC 9457)."""
    said = f"{url} answered {problem.code}"
    try:
        content = problem.read(_MOST_WORDS)
        if problem.headers.get_content_type() == "application/problem+json":
            said = f"{printable(str(as_json(content)['detail']))} ({said})"
        else:
            said = f"url is {url!r}: it answered {problem.code} {printable(problem.reason)}: is that a release at a "
            said += "service of `deltahist serve`?"
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        pass
    return TooLarge(said) if problem.code == 413 else InputError(said)


def _explain(problem: Exception) -> str:
    """Return why no answer came, in words."""
    reason = getattr(problem, "reason", problem)
    if isinstance(reason, TimeoutError):
        return f"there was no answer within {PATIENCE} seconds"
    if isinstance(reason, ConnectionRefusedError):
        return "nothing listens there (does `deltahist serve` run, at this port?)"
    if isinstance(reason, socket.gaierror):
        return "there is no such host, or no network"
    if isinstance(reason, ssl.SSLError):
        said = getattr(reason, "verify_message", reason.reason)
        return f"there is no safe connection: {said} (is its certificate valid? is it https at all?)"
    if isinstance(reason, ConnectionError | http.client.HTTPException):
        return f"the connection broke off ({type(reason).__name__}): is it a service of HTTP, and is it up?"
    return str(reason)


@contextlib.contextmanager
def understanding(url: str) -> Iterator[None]:
    """Raise InputError if what came from an address cannot be understood."""
    from pyarrow import ArrowException

    try:
        yield
    except (
        ArrowException, ValueError, KeyError, TypeError, AttributeError, LookupError, RecursionError, StopIteration,
        OverflowError, struct.error,
    ) as problem:  # fmt: skip
        said = f"{type(problem).__name__}: {printable(first_line(problem))}"
        raise InputError(f"url is {url!r}: the answer cannot be understood ({said})") from None


def as_json(content: bytes) -> dict[str, Any]:
    """Return the members of a JSON object; ValueError, TypeError or RecursionError if it is none."""
    return dict(json.loads(content))


def printable(text: str) -> str:
    """Return a text of a service as a line for a message: nothing in it steers a terminal."""
    return "".join(each if each.isprintable() else " " for each in text[:1_000])
