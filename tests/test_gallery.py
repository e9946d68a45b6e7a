"""Every script of the gallery draws a picture and is short enough to read."""

import numpy as np
import pytest
from PIL import Image

from tools import gallery


@pytest.mark.experiment
@pytest.mark.parametrize("script", gallery.SCRIPTS, ids=lambda script: script.stem)
def test_a_script_draws_a_picture(script, tmp_path):
    gallery.draw_picture(script, tmp_path / "picture.png")
    pixels = np.asarray(Image.open(tmp_path / "picture.png").convert("L"))
    assert pixels.shape[1] == 780
    assert (pixels < 200).mean() > 0.01  # neither blank nor almost blank
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 60
    assert 0 < len(gallery.read_caption(script)[1].split()) <= 40


def test_the_page_shows_every_picture(monkeypatch, tmp_path):
    monkeypatch.setattr(gallery, "draw_picture", lambda script, picture: None)
    gallery.draw_gallery(tmp_path)
    page = (tmp_path / "gallery.md").read_text(encoding="utf-8")
    assert page.count(".png)") == page.count("</details>") == len(gallery.SCRIPTS) == 20
