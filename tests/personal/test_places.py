"""What a radius is about: columns in an order and a CRS; maps that read them otherwise are refused."""

import pandas as pd
import pytest

import deltahist as dh
from deltahist.cli import main
from deltahist.personal.place import Place

FEET, METRES = "EPSG:2263", "EPSG:32618"


def city(folder, place, crs=None, table="visit"):
    base = dh.Database.open(folder / "city.duckdb")
    if not base.has_table(table):
        base.create_records(table, {"x": "number", "y": "number"}, owner="who")
    return opened(base, folder, place, crs, table)


def opened(base, folder, place, crs=None, table="visit"):
    return dh.People(base, table, owner="who", ledger=folder / "l", epsilon=1, place=place, crs=crs)


def visit(people, x, y):
    people.join(["Eve"], radius=250)
    people.insert(pd.DataFrame({"who": ["Eve", "Bob"], "x": [x, x], "y": [y, y]}))


def near(crs):
    """A map of about a kilometre in New York, in the units of a CRS."""
    low = {FEET: (980_000, 195_000), METRES: (583_000, 4_506_000)}[crs]
    return dh.Neighbourhood(dh.Domain.from_cell((*low, low[0] + 1000, low[1] + 1000), "100m", crs), "100m")


def map_of(people, near, x="x", y="y", crs=None):
    return people.records.publish(near, x, y, "identity", epsilon=0.1, crs=crs)


def test_feet_are_not_taken_for_metres(tmp_path):
    """The columns are in feet: Eve would pay for a move over 250 feet where she was promised 250 metres."""
    people = city(tmp_path, ("x", "y"), FEET)
    visit(people, 980_400, 195_400)
    with pytest.raises(
        dh.InputError,
        match=r"reads the places as \['x', 'y'\] in EPSG:32618, .* radii are about \['x', 'y'\] in EPSG:2263",
    ):
        map_of(people, near(METRES))
    with pytest.raises(dh.InputError, match="in EPSG:32618"):
        map_of(people, near(FEET), crs=METRES)
    planar = dh.Neighbourhood(dh.Domain((980_000, 195_000, 981_000, 196_000), (10, 10)), 100)
    with pytest.raises(dh.InputError, match=r"\['x', 'y'\] in units of the map, .* in EPSG:2263"):
        map_of(people, planar)
    assert people.spent(["Eve", "Bob"]) == [0, 0]
    map_of(people, near(FEET))
    map_of(people, near(METRES), crs=FEET)
    assert min(people.spent(["Eve", "Bob"])) > 0


def test_a_map_with_its_axes_swapped_is_refused(tmp_path):
    people = city(tmp_path, ("x", "y"))
    visit(people, 40.0, 60.0)
    square = dh.Neighbourhood(dh.Domain((0, 0, 1000, 1000), (10, 10)), 100)
    with pytest.raises(
        dh.InputError, match=r"\['y', 'x'\] in units of the map, .* about \['x', 'y'\] in units"
    ):
        map_of(people, square, "y", "x")
    assert people.spent(["Eve", "Bob"]) == [0, 0]
    map_of(people, square)
    line = dh.Neighbourhood(dh.Domain((0, 1000), (10,)), 100)
    map_of(people, line, "y", None)
    # Columns that were made of others are no places: who has a radius is not on that map, whatever it reads.
    paid = people.spent(["Eve"])
    people.records.select(x="y", y="x").publish(square, "x", "y", "identity", epsilon=0.1)
    assert people.spent(["Eve"]) == paid


def test_one_crs_has_many_names(tmp_path):
    import pyproj

    wkt = pyproj.CRS(METRES).to_wkt()
    assert Place(("x", "y"), wkt) == Place(["x", "y"], "epsg:32618") == Place(("x", "y"), METRES)
    Place(("lon", "lat"), "EPSG:4326").check(("lon", "lat"), "OGC:CRS84")
    city(tmp_path, ("x", "y"), wkt).database.close()
    people = city(tmp_path, ("x", "y"), METRES)
    visit(people, 583_400, 4_506_400)
    map_of(people, near(METRES))
    assert people.spent(["Eve"])[0] > 0


def test_what_is_a_place_is_said_until_a_question_is_asked(tmp_path):
    people = city(tmp_path, ("y", "x"))
    visit(people, 583_400, 4_506_400)
    base = people.database
    opened(base, tmp_path, None)
    for crs in (FEET, METRES):  # nothing was asked: it may be mended
        people = opened(base, tmp_path, ("x", "y"), crs)
    stale = opened(base, tmp_path, ("x", "y"), FEET)
    people = opened(base, tmp_path, ("x", "y"), METRES)
    people.records.count(epsilon=0.1)
    with pytest.raises(dh.InputError, match=r"was \['x', 'y'\] in EPSG:32618 before"):
        stale.records.count(epsilon=0.1)
    opened(base, tmp_path, None)
    opened(base, tmp_path, ["x", "y"], METRES)
    for place, crs in (
        (("y", "x"), METRES),
        (("x", "y"), FEET),
        (("x", "y"), None),
        (("x",), None),
        ((), None),
    ):
        with pytest.raises(dh.InputError, match=r"was \['x', 'y'\] in EPSG:32618 before: .* say these"):
            opened(base, tmp_path, place, crs)


@pytest.mark.parametrize(("radius", "where"), [(250, "x = 1"), (None, "x = 2")])
def test_saying_a_place_anew_tells_nobody_who_has_paid(tmp_path, radius, where):
    """A question of a billionth, and an error where it met one of Eve's records, would tell of it for nothing."""
    people = city(tmp_path, ("x", "y"))
    people.join(["Eve"], radius=radius)
    people.insert(pd.DataFrame({"who": ["Eve"], "x": [1.0], "y": [1.0]}))
    people.records.where(where).count(epsilon=1e-9)
    with pytest.raises(dh.InputError, match=r"when the first question was asked; say these"):
        opened(people.database, tmp_path, ("y", "x"))


def test_radii_are_metres_in_all_tables_or_in_none(tmp_path):
    people = city(tmp_path, ("x", "y"), METRES)
    people.database.create_records("trip", {"x": "number", "y": "number"}, owner="who")
    with pytest.raises(
        dh.InputError, match=r"\['x', 'y'\] in units of the map in 'trip', .* EPSG:32618 in 'visit'"
    ):
        opened(people.database, tmp_path, ("x", "y"), None, "trip")
    opened(people.database, tmp_path, (), None, "trip")
    opened(people.database, tmp_path, ("x", "y"), "EPSG:4326", "trip")


@pytest.mark.parametrize(
    ("place", "crs", "why"),
    [
        (("x", "y", "z"), None, r"place is \['x', 'y', 'z'\]: it must be the column of x"),
        (("x", "x"), None, r"place is \['x', 'x'\]"),
        (("x",), METRES, r"of the places \['x'\]: it needs a column of x and one of y"),
        (("x", "y"), "EPSG:0", "crs is 'EPSG:0': it must be a known CRS"),
        (None, METRES, "crs is 'EPSG:32618' without place"),
        ("z", None, "column 'z', which is not there"),
    ],
)
def test_places_that_cannot_be(tmp_path, place, crs, why):
    with pytest.raises(dh.InputError, match=why):
        city(tmp_path, place, crs)


def test_a_file_says_in_which_crs_the_places_are(tmp_path, capsys):
    people = city(tmp_path, ("x", "y"), METRES)
    visit(people, 583_400, 4_506_400)
    people.database.close()
    question = (
        'table = "visit"\nowner = "who"\nplace = ["x", "y"]\n{}\n[answer]\nkind = "map"\nepsilon = 0.1\n'
        'x = "x"\ny = "y"\ncrs = "{}"\nbounds = [583000, 4506000, 584000, 4507000]\ncell = "100m"\ndelta = "100m"\n'
    )

    def ask(said, crs=METRES):
        (tmp_path / "map.toml").write_text(question.format(said, crs))
        line = [
            "ask",
            tmp_path / "map.toml",
            "--database",
            tmp_path / "city.duckdb",
            "--ledger",
            tmp_path / "l",
        ]
        return main([str(part) for part in [*line, "--out", tmp_path / "m.parquet", "--overwrite"]])

    assert ask(f'crs = "{METRES}"') == 0
    capsys.readouterr()
    assert ask(f'crs = "{METRES}"', "EPSG:32617") == 2
    assert (
        "in EPSG:32617, and these people's radii are about ['x', 'y'] in EPSG:32618"
        in capsys.readouterr().err
    )
    assert ask("") == 2
    assert "and was ['x', 'y'] in EPSG:32618 before" in capsys.readouterr().err
    assert ask("crs = 32618") == 2
    assert "crs is 32618: it must be text" in capsys.readouterr().err
