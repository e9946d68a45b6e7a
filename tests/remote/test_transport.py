"""remote/transport.py: services that are busy, gone, foreign or hostile. Every problem is an InputError in words."""

import contextlib
import datetime
import http.server
import json
import socket
import ssl
import threading
import urllib.request

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import deltahist as dh
from deltahist.remote import transport

CITY = "/releases/city"


class Fake(http.server.BaseHTTPRequestHandler):
    """Answers as its server's `say` does, from the method and the path: status, headers and body."""

    def do_GET(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.asked.append(f"{self.command} {self.path}")
        status, headers, body = self.server.say(self)
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_):
        pass


@pytest.fixture
def fake():
    """Start a service that says what a function of the request returns; return its address and what it was asked."""
    with contextlib.ExitStack() as ends:

        def start(say, tls=None):
            server = ends.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Fake))
            if tls is not None:
                server.socket = tls.wrap_socket(server.socket, server_side=True)
                server.handle_error = lambda *_: None  # a client that hangs up
            server.say, server.asked = say, []
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            ends.callback(thread.join)
            ends.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}", server.asked

        yield start


def document(status, **members):
    return status, {"Content-Type": "application/problem+json"}, json.dumps(members).encode()


def plain(body, media="application/json", **headers):
    return 200, {"Content-Type": media} | headers, body


@pytest.fixture(scope="module")
def described(service):
    with urllib.request.urlopen(service + CITY, timeout=60) as answer:
        return answer.read()


#: What is said, and what of it a person is told.
FOREIGN = {
    "a page": (plain(b"<html>", "text/html"), "it answered with text/html, not with application/json: is that"),
    "no JSON": (plain(b"{"), "the answer cannot be understood (JSONDecodeError"),
    "a list": (plain(b"[1]"), "the answer cannot be understood (TypeError"),
    "deep JSON": (plain(b"[" * 100_000), "the answer cannot be understood (RecursionError"),
    "no statement": (plain(b"{}"), "the answer cannot be understood (KeyError: 'statement')"),
    "no map": (plain(b'{"statement": {"digest": "", "domain": {"bounds": [1, 0], "shape": [4]}}}'), "bounds are (1.0"),
    "a part": (plain(b"{", **{"Content-Length": "9"}), "the connection broke off (IncompleteRead)"),
    "a refusal": (document(400, detail="crs is 'x'\x1b[2J"), "crs is 'x' [2J (http://127"),
    "a page of a refusal": ((404, {"Content-Type": "text/html"}, b"<html>"), "it answered 404 Not Found: is that"),
    "a refusal without words": (document(500), "answered 500"),
    "a file": ((302, {"Location": "file:///etc/passwd"}, b""), "answered 302"),
    "FTP": ((302, {"Location": "ftp://127.0.0.1/"}, b""), "answered 302"),
    "nothing new": ((304, {}, b""), "it answered 304"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_no_service_is_told(fake, name):
    answer, said = FOREIGN[name]
    address, _ = fake(lambda _: answer)
    with pytest.raises(dh.InputError) as problem:
        dh.connect(address + CITY)
    assert said in str(problem.value)
    assert str(problem.value).isprintable()


def test_an_address_where_nothing_answers(service):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(dh.InputError, match=r"nothing listens there \(does `deltahist serve` run"):
        dh.connect(f"http://127.0.0.1:{port}{CITY}")
    with pytest.raises(dh.InputError, match="there is no such host, or no network"):
        dh.connect(f"http://nowhere.invalid{CITY}")
    with pytest.raises(dh.InputError, match="there is no safe connection"):
        dh.connect(service.replace("http:", "https:") + CITY)


def test_certificates_are_checked(fake, described, tmp_path):
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name.from_rfc4514_string("CN=127.0.0.1")
    start, end = (datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (2020, 2100))
    made = x509.CertificateBuilder(name, name, key.public_key(), 7, start, end).sign(key, hashes.SHA256())
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "own.pem").write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "own.pem")
    address, asked = fake(lambda _: plain(described), tls)
    with pytest.raises(dh.InputError, match=r"there is no safe connection: self.signed certificate \(is its"):
        dh.connect(address.replace("http:", "https:") + CITY)
    assert not asked


def test_a_service_that_says_nothing_is_left(fake, monkeypatch):
    monkeypatch.setattr(transport, "PATIENCE", 0.2)
    left = threading.Event()

    def say(_):
        left.wait(60)
        return plain(b"")

    address, _ = fake(say)
    try:
        with pytest.raises(dh.InputError, match=r"there was no answer within 0\.2 seconds"):
            dh.connect(address + CITY)
    finally:
        left.set()


def test_a_busy_service_is_waited_for(fake, described, monkeypatch):
    slept = []

    def sleep(seconds):
        assert len(slept) < 9
        slept.append(seconds)

    monkeypatch.setattr(transport, "sleep", sleep)
    monkeypatch.setattr(transport, "monotonic", lambda: float(sum(slept)))
    waits = iter([{"Retry-After": "7"}, {}, {"Retry-After": "Fri, 31 Dec 2027 23:59:59 GMT"}])

    def say(_):
        pause = next(waits, None)
        return plain(described) if pause is None else (503, pause, b"")

    assert dh.connect(fake(say)[0] + CITY).domain.shape == (16, 16)
    assert slept == [7, 1, 1]

    slept.clear()
    words = {"Content-Type": "application/problem+json", "Retry-After": "100"}
    address, asked = fake(lambda _: (503, words, b'{"detail": "more is asked than can be answered"}'))
    with pytest.raises(dh.InputError, match=r"^more is asked than can be answered \(.* answered 503\)"):
        dh.connect(address + CITY)
    assert slept == [100] * 3
    assert len(asked) == 4


def test_another_address_is_followed_and_kept(fake, described):
    """What answers at another path is asked there, no other host is; a question that is sent on would lose its body."""
    there, asked = fake(lambda ask: plain(described) if ask.path != "/releases/old" else (301, {"Location": CITY}, b""))
    remote = dh.connect(there + "/releases/old")
    assert remote.url == there + CITY
    with pytest.raises(dh.InputError, match="it answered with application/json, not with"):
        remote.answer([[580000, 4500000, 588000, 4508000]])
    assert asked == ["GET /releases/old", f"GET {CITY}", f"POST {CITY}/answers"]
    asked.clear()
    here, _ = fake(lambda _: (301, {"Location": there + CITY}, b""))
    with pytest.raises(dh.InputError, match="it answered 301"):
        dh.connect(here + CITY)
    assert asked == []
    moved, _ = fake(lambda ask: plain(described) if ask.command == "GET" else (302, {"Location": there}, b""))
    with pytest.raises(dh.InputError, match="it answered 302"):
        dh.connect(moved + CITY).answer([[580000, 4500000, 588000, 4508000]])


@pytest.mark.parametrize(
    ("status", "said"), [(200, "more than 1,000 bytes, which are not read"), (400, "it answered 400 .* a release")]
)
def test_answers_without_end_are_not_read(fake, status, said):
    """Whoever would read on finds that the service has broken off, and says so."""
    headers = {"Content-Type": "application/json", "Content-Length": "9" * 9}
    address, _ = fake(lambda _: (status, headers, b" " * 70_000))
    with pytest.raises(dh.InputError, match=said):
        transport.send(address, "application/json", most=1_000)


def test_names_are_quoted(fake, described):
    address, asked = fake(lambda _: plain(described))
    dh.connect(f"{address}/geo/releases/Zürich 2026/")
    assert asked == ["GET /geo/releases/Z%C3%BCrich%202026"]
