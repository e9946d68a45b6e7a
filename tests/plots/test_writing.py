"""Lines of a measured width, and fonts that have the signs of a text."""

import warnings

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from hypothesis import example, given, strategies as st
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.textpath import text_to_path

from deltahist.plots import writing
from deltahist.plots.ground import own_axes


def width(line, size):
    return text_to_path.get_text_width_height_descent(line, FontProperties(size=size), ismath=False)[0] / 72


@given(st.text("ab ceimwWMÅß.,", max_size=80), st.floats(0.6, 4), st.integers(1, 3))
@example("W" * 200, 1.0, 2)
@example("", 1.0, 1)
def test_lines_fit_and_keep_the_words(text, inches, most):
    lines = writing.wrap(text, inches, 9)
    assert all(width(line, 9) <= inches for line in lines)
    assert "".join(lines).replace(" ", "") == "".join(text.split())
    short = writing.wrap(text, inches, 9, most)
    if len(lines) <= most:
        assert short == lines
    else:
        assert len(short) == most
        assert width(short[-1], 9) <= inches
        assert short[-1].endswith("…")
        assert short[:-1] == lines[: most - 1]


def make_font(path, letters):
    """Write a font in which every one of some letters is a square."""
    pen = TTGlyphPen(None)
    pen.moveTo((100, 0))
    for point in ((900, 0), (900, 800), (100, 800)):
        pen.lineTo(point)
    pen.closePath()
    square = pen.glyph()
    names = [f"g{ord(letter)}" for letter in letters]
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder([".notdef", *names])
    font.setupCharacterMap({ord(letter): name for letter, name in zip(letters, names, strict=True)})
    font.setupGlyf(dict.fromkeys((".notdef", *names), square))
    font.setupHorizontalMetrics(dict.fromkeys((".notdef", *names), (1000, 100)))
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": "Squares", "styleName": "Regular"})
    font.setupOS2(sTypoAscender=800, usWeightClass=400)
    font.setupPost()
    font.save(path)


@pytest.fixture
def squares(tmp_path, few_fonts):
    """A font of the machine that has two Chinese signs."""
    make_font(tmp_path / "squares.ttf", "中東")
    fontManager.addfont(tmp_path / "squares.ttf")
    writing._cover.cache_clear()
    return "Squares"


def test_signs_come_from_whichever_font_of_the_machine_has_them(squares):
    assert writing.missing_signs("東 West") == ""
    assert writing.choose_fonts("東 West")[-1] == squares
    assert squares not in writing.choose_fonts("West")  # where the usual font has all, it is the only one
    assert writing.missing_signs("東한") == "한"
    ax = own_axes(None)
    ax.text(0.5, 0.5, "東 West", fontfamily=writing.choose_fonts("東 West"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ax.figure.draw_without_rendering()


@pytest.mark.usefixtures("few_fonts")
def test_signs_that_no_font_has_are_told():
    assert writing.missing_signs("Žižkov 한강\n") == "강한"  # the end of a line is no sign
