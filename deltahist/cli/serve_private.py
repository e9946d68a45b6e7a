"""`deltahist serve-private`: a service that answers questions of people's records, for clients with keys."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from deltahist.cli import console
from deltahist.cli.options import flag, option
from deltahist.errors import InputError


def serve_private(
    settings: Path | None = option(
        "FILE.toml", "Database, ledger, accounts and clients (docs/service-private.md).", names="--config"
    ),
    new_key: str | None = option("NAME", "Make a key for a client: print it, and the hash for the file; then end."),
    check: bool = flag("Read the settings, open the database and the ledger, and end."),
) -> None:
    """Answer questions over HTTP that are paid for by those whose records they use; private data are read.

    It starts only with keys of clients in its settings, and listens on this machine unless TLS is in front of it.

    \b
    Examples:
      deltahist serve-private --new-key ann
      deltahist serve-private --config night.toml
      curl http://127.0.0.1:8001/ask -H "Authorization: Bearer $KEY" -H "Idempotency-Key: report-7" -d @night.json
    """
    try:
        import uvicorn
        from starlette.types import ASGIApp

        from deltahist._http import at_port
        from deltahist.personal.metrics import RequestCounts
        from deltahist.personal.service import create_app, open_people
        from deltahist.personal.settings import PrivateSettings, make_key
        from deltahist.server.logs import write_logs
        from deltahist.server.running import configure
    except ImportError:
        raise InputError(
            "a private service needs packages that are not installed: pip install 'deltahist[serve-private]'"
        ) from None
    if new_key is not None:
        key, hashed = make_key()
        console.note(f"the key of {new_key}, which is shown once and kept nowhere; for the file:")
        console.note(f'[clients.{new_key}]\nkeys = ["{hashed}"]')
        console.put(key)
        return
    if settings is None:
        raise InputError("--config is missing: name the file with the settings, such as night.toml")
    read = PrivateSettings.read(settings)
    people = open_people(read)
    host = f"[{read.host}]" if ":" in read.host else read.host
    family = socket.AF_INET6 if ":" in read.host else socket.AF_INET
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server((read.host, read.port), family=family))]
        console.note(f"http://{host}:{sockets[0].getsockname()[1]}/ask")
        metrics = RequestCounts()
        app: ASGIApp = create_app(read, people, metrics)
        if read.metrics_port is not None:
            sockets.append(held.enter_context(socket.create_server(("127.0.0.1", read.metrics_port))))
            port = sockets[1].getsockname()[1]
            console.note(f"http://127.0.0.1:{port}/metrics")
            app = at_port(port, metrics.page, app)
        if check:
            return
        write_logs()
        uvicorn.Server(configure(app, read.max_seconds)).run(sockets)
