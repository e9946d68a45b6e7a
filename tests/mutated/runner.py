"""A process that runs command lines on changed files, watched for what it says, its time and its memory."""

import contextlib
import io
import json
import os
import resource
import select
import subprocess
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

#: What one command line may take: seconds of computing, and bytes beside what was taken before.
SECONDS, MEMORY = 2.0, 1 << 30
#: Seconds after which a command line that waits for something is given up.
_PATIENCE = 30.0


@dataclass(frozen=True)
class Outcome:
    """How a command line ended: exit status, what is wrong with that ("" if nothing), its last line, seconds, bytes."""

    status: int | None
    wrong: str
    said: str
    seconds: float
    memory: int


class Runner:
    """Runs command lines in a folder, one after the other, in a process that is begun anew when it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._process = folder, None

    def run(self, line: list[str]) -> Outcome:
        """The outcome of one command line."""
        if self._process is None:
            path = os.pathsep.join([*filter(None, sys.path)])
            self._process = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, cwd=self._folder, env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip
            self._process.stdout.readline()
        begun = time.perf_counter()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], _PATIENCE)
        answer = self._process.stdout.readline() if ready else b""
        if not answer:
            self.close()
            wrong = "it hangs" if not ready else "the process crashed"
            return Outcome(None, wrong, "", time.perf_counter() - begun, 0)
        status, output, said, seconds, memory = json.loads(answer)
        return Outcome(status, _wrong(status, output, said, seconds, memory), said[-1500:], seconds, memory)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait()
            self._process = None


def _wrong(status, output, said, seconds, memory):
    lines = said.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    if status is None:
        return "an exception: " + (lines[-1] if lines else "")[:200]
    if seconds > SECONDS:
        return f"it took {seconds:.1f} s"
    if memory > MEMORY:
        return f"it took {memory >> 20} MB"
    if status == 0:
        return ""
    good = status == 2 and errors == lines[-1:] and len(errors) == 1
    return "" if good else f"not one line of error, but exit status {status}: {said[:200]}"


def _serve():
    """Run the command lines that come in, and answer with what became of each."""
    from deltahist.cli import main

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answers.write("\n")
    answers.flush()
    for text in sys.stdin:
        for made in ("out.parquet", "out.csv"):
            Path(made).unlink(missing_ok=True)
        before, begun = _memory(), _seconds()
        status, output, said = None, io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(said):
                status = main(json.loads(text))
        except BaseException:
            said.write("\n" + traceback.format_exc())
        report = [status, output.getvalue()[-300:], said.getvalue(), _seconds() - begun, _memory() - before]
        answers.write(json.dumps(report) + "\n")
        answers.flush()
        _forget_peak()


def _seconds():
    """Seconds of computing so far, by this process and those that it waited for."""
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def _memory():
    """The largest memory so far in bytes, of this process since it was forgotten, or of one that it waited for."""
    lines = Path("/proc/self/status").read_text().splitlines()
    own = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
    return own + (resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)


def _forget_peak():
    Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    warnings.simplefilter("default")
    _serve()
