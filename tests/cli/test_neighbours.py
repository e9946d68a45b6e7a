"""What leaves a run besides the noisy numbers is the same whoever is there, and be it nobody.

Each command runs on two tables that differ in their rows alone. Lines on stdout, exit status, charges, names of files
and all that releases say besides their values must be the same; only what goes to the publisher (stderr) may differ.
"""

import re

import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.cli import main

#: Many people, some outside, some without a place or a name, and nobody.
MANY = "id,t,x,y\n" + "".join(f"u{n % 40},{n % 3},{n % 90 / 10},{n % 70 / 10}\n" for n in range(300))
MANY += "u1,0,99,99\nu2,1,55,55\nu3,1,here,1\nu4,2,,1\n,0,1,1\n"
NOBODY = "id,t,x,y\n"
PLACE = ["--bounds", "0,0,10,10", "--cell", "2", "--delta", "2", "--strategy", "identity", "--sources", "boundary"]
PAID = ["--ledger", "l.ledger", "--account", "all", "--account-limit", "9"]
#: With these a run is stopped only where all rows are bad, which docs/publishing.md says.
ALL_SAID = ["--outside", "clamp", "--drop-bad-rows", "--user", "id", "--max-per-user", "2"]
STEPS = ["--start", "0", "--until", "2", "--window", "3", "--epsilon", "3", "--state", "s.ledger", "--out", "steps"]
MAP = ["publish", "v.csv", "--x", "x", "--y", "y", *PLACE, *ALL_SAID, *PAID, "--epsilon", "1", "--out", "r.parquet"]
STREAM = ["--x", "x", "--y", "y", *PLACE, *ALL_SAID, *STEPS]
RUNS = {
    "a map": [MAP],
    "a chain": [
        [*MAP, "--state", "r.state"],
        ["refine", "--state", "r.state", "--epsilon", "2", *PAID[:4], "--out", "f.parquet"],
        ["tighten", "f.parquet", "--epsilon", "0.5", "--out", "t.parquet"],
    ],
    "a map with points outside dropped": [["drop" if word == "clamp" else word for word in MAP]],
    "steps of a table": [["stream", "v.csv", "--time", "t", *STREAM]],
    "steps of a folder": [["stream", "daily", *STREAM]],
}


def _run(lines, folder, table, monkeypatch, capsys):
    """Exit status, stdout, accounts, files and what releases say, of some command lines on a table."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "v.csv").write_text(table)
    (folder / "daily").mkdir()
    head, *rows = table.splitlines(keepends=True)
    for step in range(3):
        due = [row for row in rows if row.split(",")[1] == str(step)]
        (folder / "daily" / f"{step}.csv").write_text(head + "".join(due))
    ends = [main(line) for line in lines]
    for ledger in folder.glob("*.ledger"):
        ends.append(main(["ledger", "show", ledger.name, "--json"]))
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    releases = [dh.load(name) for name in files if name.endswith(".parquet")]
    public = [capsys.readouterr().out, *(f"{each.describe()} {len(each.values)}" for each in releases)]
    return ends, [re.sub(r"[0-9a-f]{16,}", "CHAIN", text) for text in public], files


@pytest.mark.parametrize("name", RUNS)
def test_a_run_tells_nothing_of_who_is_there(tmp_path, monkeypatch, capsys, name):
    table = MANY if "--drop-bad-rows" in RUNS[name][0] else "".join(MANY.splitlines(keepends=True)[:303])
    many = _run(RUNS[name], tmp_path / "many", table, monkeypatch, capsys)
    nobody = _run(RUNS[name], tmp_path / "nobody", NOBODY, monkeypatch, capsys)
    assert many == nobody
    assert not any(many[0])
    assert any(path.endswith(".parquet") for path in many[2])


@pytest.mark.parametrize("method", ["inverse", "smooth"])
def test_a_quantile_tells_nothing_but_its_value(tmp_path, monkeypatch, capsys, method):
    """All at one end, all at one place and spread ones, some beyond the ends; their number is public."""
    line = ["quantile", "v.csv", "--x", "x", "--q", "0.5", "--bounds", "0,10", "--delta", "1", "--outside", "clamp"]
    line += ["--epsilon", "1", "--method", method, *PAID, "--out", "q.json"]
    spread = np.linspace(-1, 11, 50)
    found = []
    for number, values in enumerate((np.zeros(50), np.full(50, 5.0), np.full(50, 99.0), spread)):
        table = pd.DataFrame({"id": 0, "t": 0, "x": values}).to_csv(index=False)
        ends, said, files = _run([line], tmp_path / str(number), table, monkeypatch, capsys)
        found.append((ends, said[0].split(maxsplit=1)[1], files))
    assert found[0][0] == [0, 0]
    assert all(each == found[0] for each in found)


SHARED = {"value": ["--value", "a", "--alpha", "5"], "bit": ["--bit", "a"]}
SHARED["places"] = ["--x", "a", "--y", "b", "--alpha", "5", "--crs", "none"]


@pytest.mark.parametrize("form", SHARED)
def test_answers_of_a_network_tell_nothing_of_data_but_their_values(tmp_path, monkeypatch, capsys, form):
    """The same users with other data: who they are is public, and so are edges and distances."""
    rng = np.random.default_rng(2)
    alike = np.ones(30, dtype=int) if form == "bit" else np.full(30, 71717.25)
    spread = rng.integers(0, 2, 30) if form == "bit" else rng.uniform(0, 900, 30)
    line = ["share", "d.csv", "--id", "user", "--edges", "e.txt", "--epsilon", "1:3,9:1", "--all", *SHARED[form]]
    line += ["--state", "k.key", "--out", "o.csv"]
    found = []
    for number, data in enumerate((alike, spread)):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        pd.DataFrame({"user": range(30), "a": data, "b": data}).to_csv("d.csv", index=False)
        (folder / "e.txt").write_text("".join(f"{user} {user + 1}\n" for user in range(29)))
        assert main(line) == 0
        public = pd.read_csv("o.csv").drop(columns=["value", "bit", "x", "y", "a", "b"], errors="ignore")
        found.append((capsys.readouterr().out, public.to_csv(), sorted(path.name for path in folder.iterdir())))
    assert found[0] == found[1]
