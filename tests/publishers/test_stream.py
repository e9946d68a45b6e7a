"""Streams in Python: what is promised is what is read; nothing is charged for what cannot be published."""

from dataclasses import replace
from fractions import Fraction

import pandas as pd
import pytest

import deltahist as dh
from deltahist.accounts import Account, Window
from deltahist.accounts.ledger import Ledger
from deltahist.preprocessing import Clock, Preprocessing
from deltahist.publishers import publication, publish_mechanism
from deltahist.publishers.stream import Stream

LINE = dh.Domain((0, 8), (8,))


@pytest.fixture
def folder(tmp_path):
    """Days 0 and 2; nobody was there on day 1."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("x,u\n")
    for day in (0, 2):
        rows = {"x": [1, 2, 3, 7, 6, 5], "u": [1, 1, 1, 1, 2, 2]}
        pd.DataFrame(rows).to_csv(tmp_path / "in" / f"{day}.csv", index=False)
    return tmp_path


def stream(folder, counting=None, sources="left", strategy="identity", user=None):
    near = dh.Neighbourhood(LINE, 1, sources)
    clock = Clock.of("0", None)
    return Stream(near, dh.Budget(1), 2, clock, folder / "s.ledger", strategy, counting or Preprocessing(), user)


def run(plan, folder, **reading):
    return plan.publish(folder / "in", folder / "out", 3, x="x", **reading)


def test_days_without_rows_have_the_same_noise_and_only_new_days_are_published(folder):
    plan = stream(folder, Preprocessing(3, user=True), user="u")
    assert run(plan, folder, max_per_user=3) == {"published": 3, "lost": 0, "skipped": 0}
    before = {file.name: file.read_bytes() for file in (folder / "out").iterdir()}
    assert run(plan, folder, max_per_user=3) == {"published": 0, "lost": 0, "skipped": 0}
    (folder / "in" / "3.csv").write_text("x,u\n1,1\n")
    assert plan.publish(folder / "in", folder / "out", 4, x="x", max_per_user=3)["published"] == 1
    after = {file.name: file.read_bytes() for file in (folder / "out").iterdir()}
    assert after.items() >= before.items()
    assert list(Ledger(folder / "s.ledger").list_charges("stream")) == [0, 1, 2, 3]
    releases = [dh.load(folder / "out" / f"{day}.parquet") for day in range(3)]
    assert {r.laws[0].parameter for r in releases} == {12}
    assert {r.counting.contributions for r in releases} == {3}
    assert {r.total for r in releases} == {None}


@pytest.mark.parametrize(
    ("counting", "user", "reading"),
    [
        (Preprocessing(), "u", {"max_per_user": 3}),
        (Preprocessing(5, user=True), "u", {"max_per_user": 3}),
        (Preprocessing(5), None, {}),
        (Preprocessing(), None, {"drop_bad_rows": True}),
        (Preprocessing(dropped=("bad rows",)), None, {}),
    ],
)
def test_rows_are_read_as_the_stream_says(folder, counting, user, reading):
    with pytest.raises(dh.InputError, match="not counted as the stream states"):
        run(stream(folder, counting, user=user), folder, **reading)
    assert Ledger(folder / "s.ledger").list_accounts() == {}
    assert not (folder / "out").exists()


def test_every_day_is_published_with_its_own_amount(folder):
    """Unequal amounts within the window: noise and guarantee are those of the day's; a day of none is skipped."""
    plan, amounts = stream(folder), [Fraction(3, 4), Fraction(0), Fraction(1, 8)]
    assert run(plan, folder, amounts=amounts) == {"published": 2, "lost": 0, "skipped": 1}
    found = {day: dh.load(folder / "out" / f"{day}.parquet") for day in (0, 2)}
    assert {day: r.guarantee.epsilon for day, r in found.items()} == {0: amounts[0], 2: amounts[2]}
    assert [found[day].laws[0].parameter for day in (0, 2)] == [2 / amounts[0], 2 / amounts[2]]
    assert Ledger(folder / "s.ledger").list_charges("stream") == {0: 750_000_000, 2: 125_000_000}


@pytest.mark.parametrize("amounts", [[Fraction(3, 4), Fraction(1, 2), Fraction(1, 4)], [Fraction(5, 4), 0, 0]])
def test_more_than_the_window_has_left_is_refused_before_anything_is_drawn(folder, amounts, monkeypatch):
    within = 1 if amounts[0] <= 1 else 0
    drawn, right = [], publication.sample_law
    monkeypatch.setattr(publication, "sample_law", lambda law, size, rng: drawn.append(law) or right(law, size, rng))
    with pytest.raises(dh.InputError):
        run(stream(folder), folder, amounts=amounts)
    assert len(drawn) == within
    assert [file.name for file in (folder / "out").glob("*")] == ["0.parquet"] * within
    assert Ledger(folder / "s.ledger").list_charges("stream") == ({0: 750_000_000} if within else {})


def test_of_two_runs_at_once_one_alone_publishes_a_step(folder, monkeypatch):
    """Both have seen that nothing is charged yet; each step is charged once, and its release written once."""
    plan, other = stream(folder), stream(folder)
    pay, done = Account.pay, []

    def overtaken(self, *given, **how):
        if not done:
            done.append(True)
            other.publish(folder / "in", folder / "out", 1, x="x")
        return pay(self, *given, **how)

    monkeypatch.setattr(Account, "pay", overtaken)
    with pytest.raises(dh.InputError, match="already been charged"):
        run(plan, folder)
    assert Ledger(folder / "s.ledger").list_charges("stream") == {0: 500_000_000}
    assert [file.name for file in (folder / "out").glob("*.parquet")] == ["0.parquet"]


def test_a_later_run_counts_the_steps_that_are_due_and_tells_of_late_rows(tmp_path):
    """Membership is fixed, so that each step's number of points is published exactly."""
    plan = Stream(dh.Neighbourhood(LINE, 1), dh.Budget(1), 2, Clock.of("0", None), tmp_path / "s.ledger", "identity",
                  time="when")  # fmt: skip
    for times, steps in (([0, 0, 1], 2), ([0, 0, 0, 1, 2, 2, 2, 2, 9], 3)):
        said = []
        pd.DataFrame({"when": times, "x": 1.5}).to_csv(tmp_path / "in.csv", index=False)
        plan.publish(tmp_path / "in.csv", tmp_path / "out", steps, x="x", tell=said.append)
    assert [dh.load(tmp_path / "out" / f"{step}.parquet").total for step in range(3)] == [2, 1, 4]
    assert [text.split(":")[0] for text in said] == [
        "9 rows read, 4 points kept",
        *["4 rows left out", "1 rows left out"],
    ]


@pytest.mark.parametrize(
    ("clock", "differs"),
    [
        (("2020-03-01", "2d"), "every was 86400, is 172800"),
        (("2020-03-01", "1d", "%d/%m/%Y"), "time_format"),
        (("2020-03-02", "1d"), "start"),
        (("2020-03-01", "1d", None, "Europe/Berlin"), "tz"),
        (("2020-03-01", "month"), "every"),
    ],
)
def test_a_stream_goes_on_with_the_steps_that_it_began_with(tmp_path, clock, differs):
    """Else a row would be in two steps, of which each may be outside the other's window."""
    near, where = dh.Neighbourhood(LINE, 1, "left"), tmp_path / "s.ledger"
    plan = Stream(near, dh.Budget(1), 2, Clock.of("2020-03-01", "1d"), where, "identity", time="begun")
    plan.window().charge(0, 0.5)
    for other in (replace(plan, clock=Clock.of(*clock)), replace(plan, time="ended")):
        with pytest.raises(dh.InputError, match="time was" if other.time == "ended" else differs):
            other.window()


def test_another_ledger_does_not_draw_the_steps_of_a_folder_again(folder):
    assert run(stream(folder), folder)["published"] == 3
    for day in (1, 2):  # the first step alone is enough
        (folder / "out" / f"{day}.parquet").unlink()
    before = {file.name: file.read_bytes() for file in (folder / "out").iterdir()}
    (folder / "s.ledger").rename(folder / "old.ledger")
    with pytest.raises(dh.InputError, match="was not charged"):
        run(stream(folder), folder)
    assert Ledger(folder / "s.ledger").list_charges("stream") == {}
    assert {file.name: file.read_bytes() for file in (folder / "out").iterdir()} == before


def test_a_step_is_published_on_the_account_of_its_window_alone(folder):
    """Else its statement would speak of a window that nobody keeps."""
    plan, nobody = stream(folder), [0] * 8
    first = plan.mechanism.with_changes(step=plan.step(1))
    others = [
        Window(3, 1), Window(2, 2), Window(2, rho=1), Window(None, 1), Window(2, 1, limits=[(5, 2)]),
    ]  # fmt: skip
    accounts = [None, Account(Window(2, 1), 2), *(Account(other, 1) for other in others)]
    for account in accounts:
        with pytest.raises(dh.InputError):
            publish_mechanism(first, nobody, account=account)
        assert account is None or account.window.ledger.list_charges(account.name) == {}
    assert publish_mechanism(first, nobody, account=Account(Window(2, 1), 1)).payment.spent == Fraction(1, 2)


def test_a_folder_that_cannot_be_written_costs_nothing(folder, monkeypatch):
    def full(target):
        raise dh.InputError("no space left")

    monkeypatch.setattr("deltahist._files._make_part", full)
    with pytest.raises(dh.InputError, match="no space left"):
        run(stream(folder), folder)
    assert not Ledger(folder / "s.ledger").list_accounts()
