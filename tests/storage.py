"""A bucket of object storage on this machine."""

import contextlib
import urllib.request

import pytest

SECRET = "wJalrXUtnFEMI"


@contextlib.contextmanager
def bucket():
    """Yield obstore's store of a bucket, "city", whose server is on this machine, and the server's address."""
    from obstore.store import from_url

    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    settings = {"AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN", "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}  # fmt: skip

    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        urllib.request.urlopen(urllib.request.Request(f"{address}/city", method="PUT")).close()
        yield from_url("s3://city"), address
    server.stop()


def upload(folder, storage, at):
    """Put the files of a folder into the bucket; return their address."""
    for file in folder.rglob("*"):
        if file.is_file():
            storage.put(f"{at}/{file.relative_to(folder)}", file.read_bytes())
    return f"s3://city/{at}"
