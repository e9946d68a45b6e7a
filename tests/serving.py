"""A real service for tests: `deltahist serve` in a process of its own."""

import contextlib
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request


@contextlib.contextmanager
def serving(log, *options):
    """Run the service; yield its address and process. What it says goes to the file `log`."""
    line = [sys.executable, "-m", "deltahist", "serve", "--port", "0", *map(str, options)]
    with log.open("w") as said, subprocess.Popen(line, stderr=said) as process:
        try:
            wait_for(lambda: re.search(r"http://\S+(?=/releases/\S+\n)", log.read_text()), process)
            address = re.search(r"http://[^/]+", log.read_text())[0]
            wait_for(lambda: answers(address), process)
            yield address, process
        finally:
            process.terminate()
            try:
                process.wait(60)
            finally:
                process.kill()


def wait_for(condition, process=None, seconds=60):
    """Return what is true at last; AssertionError when time is up, or the process has ended."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come about"
        assert process is None or process.poll() is None, "the process has ended"
        time.sleep(0.02)
    return found


def answers(address):
    try:
        return get(f"{address}/healthz")["status"] == "ok"
    except urllib.error.URLError:
        return False


def get(url, body=None):
    """Return a JSON answer."""
    with urllib.request.urlopen(url, body, timeout=60) as answer:
        return json.load(answer)
