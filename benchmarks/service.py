"""The service over HTTP, measured with wrk: single boxes, batches, map blocks, start and memory."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

import deltahist as dh

#: A part of EPSG:32618 around New York, in metres and in degrees.
BOUNDS, DEGREES = (560_000, 4_480_000, 610_000, 4_530_000), (-74.25, 40.5, -73.75, 40.85)
#: A wrk script that asks for a new box each time, with sides of 1% to 10% of the map's.
WRK = """
request = function()
  local w, h = %(width)f, %(height)f
  local a, b = w * (0.01 + 0.09 * math.random()), h * (0.01 + 0.09 * math.random())
  local x, y = %(west)f + (w - a) * math.random(), %(south)f + (h - b) * math.random()
  return wrk.format("GET", string.format("/releases/city/answer?bbox=%%.6f,%%.6f,%%.6f,%%.6f%(crs)s", x, y, x+a, y+b))
end
"""


def publish(folder: Path, cells: int) -> Path:
    """Write a release of cells × cells counts with the default strategy, and return its file."""
    near = dh.Neighbourhood(dh.Domain(BOUNDS, (cells, cells), "EPSG:32618"), delta=500)
    path = folder / f"{cells}" / "city.parquet"
    path.parent.mkdir()
    dh.publish(np.random.default_rng(1).poisson(2, (cells, cells)), near, epsilon=1).save(path)
    return path


@contextlib.contextmanager
def serving(path: Path, workers: int) -> Iterator[tuple[str, psutil.Process, float]]:
    """Run the service; yield its address, its process, and the seconds until its first answer."""
    begin = time.perf_counter()
    line = [sys.executable, "-m", "deltahist", "serve", str(path), "--port", "0", "--workers", str(workers)]
    with tempfile.NamedTemporaryFile("r") as log, subprocess.Popen(line, stderr=open(log.name, "w")) as process:
        try:
            while not (found := re.search(r"(http://\S+)/releases/\S+\n", Path(log.name).read_text())):
                time.sleep(0.01)
            while True:
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{found[1]}/healthz"):
                    break
            yield found[1], psutil.Process(process.pid), time.perf_counter() - begin
        finally:
            process.terminate()


def load(address: str, degrees: bool, seconds: int) -> str:
    """Return wrk's figures for single boxes over 32 connections: requests per second, latencies, errors."""
    west, south, east, north = DEGREES if degrees else BOUNDS
    crs = "" if degrees else "&crs=EPSG:32618"
    script = WRK % {"west": west, "south": south, "width": east - west, "height": north - south, "crs": crs}
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        line = ["wrk", "-t1", "-c32", f"-d{seconds}s", "--latency", "-s", file.name, address]
        said = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    lines = [" ".join(each.split()) for each in said.splitlines()]
    return ", ".join(each for each in lines if re.match(r"50%|99%|Requests/sec|Non-2xx|Socket", each))


def least(address: str, body: bytes | None = None, accept: str = "*/*") -> float:
    """Return the minimum time of five requests, in seconds."""
    took = []
    for _ in range(5):
        begin = time.perf_counter()
        with urllib.request.urlopen(urllib.request.Request(address, body, {"Accept": accept})) as answer:
            answer.read()
        took.append(time.perf_counter() - begin)
    return min(took)


def batch(number: int, degrees: bool) -> bytes:
    """Return a request body with boxes."""
    west, south, east, north = DEGREES if degrees else BOUNDS
    rng = np.random.default_rng(3)
    sides = rng.uniform(0.01, 0.1, (number, 2)) * (east - west, north - south)
    low = np.array([west, south]) + rng.random((number, 2)) * ((east - west, north - south) - sides)
    return json.dumps({"boxes": np.hstack([low, low + sides]).tolist()}).encode()


def main() -> None:
    """Print all figures. Run nothing else on the machine."""
    if shutil.which("wrk") is None:
        sys.exit("wrk is missing: apt-get install wrk")
    print(f"load average {psutil.getloadavg()[0]:.1f} before it begins, on {psutil.cpu_count()} processors")
    with tempfile.TemporaryDirectory() as folder:
        for cells in (1000, 4096):
            path = publish(Path(folder), cells)
            for workers in (1, 2):
                with serving(path, workers) as (address, process, start):
                    print(f"\n{cells} × {cells} cells, {workers} workers: up after {start:.1f} s", flush=True)
                    city = f"{address}/releases/city"
                    for degrees in (True, False):
                        where = "in degrees" if degrees else "in the map's metres"
                        print(f"  boxes {where}, 32 connections: {load(address, degrees, 10)}", flush=True)
                        many = f"{city}/answers" + ("" if degrees else "?crs=EPSG:32618")
                        print(f"  10,000 in one body {where}: {least(many, batch(10_000, degrees)):.3f} s")
                    arrow = least(many, batch(100_000, False), "application/vnd.apache.arrow.stream")
                    print(f"  100,000 as Arrow in metres: {arrow:.3f} s")
                    print(f"  the blocks of the whole map: {least(f'{city}/cells?width=8'):.3f} s", flush=True)
                    used = sum(each.memory_full_info().pss for each in (process, *process.children()))
                    print(f"  memory: {used / 2**20:.0f} MiB (PSS)", flush=True)
