"""What anybody does with a release in Python: open, look, turn into frames, ask."""

import numpy as np
import pytest

import deltahist as dh

CRS = "EPSG:32618"
DOMAIN = dh.Domain.from_cell((583_000, 4_505_000, 587_000, 4_508_000), "500m", CRS)
NEAR = dh.Neighbourhood(DOMAIN, "1km")
COUNTS = np.arange(DOMAIN.size).reshape(DOMAIN.shape) % 7
RELEASE = dh.publish(COUNTS, NEAR, "identity", epsilon=1, rng=np.random.default_rng(2))
LINE = dh.Neighbourhood(dh.Domain((0, 100), (20,)), 5)
SORTED = dh.publish_sorted(np.arange(100), LINE, 1.0)
MEDIAN = dh.publish_quantile(np.arange(99), 0.5, LINE, 1.0)


def test_frames_of_pandas_and_geopandas():
    frame = RELEASE.to_pandas()
    assert len(frame) == DOMAIN.size
    assert np.allclose(frame["estimate"], RELEASE.cells().ravel())
    geo = RELEASE.to_geopandas()
    assert geo.crs == CRS
    assert np.allclose(geo.geometry.area, np.prod(DOMAIN.cell))
    assert (RELEASE.to_pandas(nonnegative=True)["estimate"] >= 0).all()
    line = SORTED.to_pandas()
    assert line["estimate"].sum() == pytest.approx(100)
    with pytest.raises(dh.InputError, match="dimensions is 1"):
        SORTED.to_geopandas()
    for ask in (MEDIAN.to_pandas, lambda: dh.answer(MEDIAN, [[0, 1]])):
        with pytest.raises(dh.InputError):
            ask()
    assert RELEASE._repr_html_().startswith('<img alt="published map" src="data:image/png;base64,iVBOR')
    assert MEDIAN._repr_html_().startswith("<pre>")


def test_xarray_is_right_side_up():
    found = RELEASE.to_xarray()
    assert found["estimate"].dims == ("y", "x")
    assert found["estimate"].shape == DOMAIN.shape[::-1]
    x, y = DOMAIN.centres(0)[2], DOMAIN.centres(1)[4]
    assert float(found["estimate"].sel(x=x, y=y)) == RELEASE.cells()[2, 4]
    assert found.attrs["crs"] == CRS
    assert found["std_error"].attrs["units"] == "points"
    assert found["estimate"].attrs["long_name"] == "points per cell, unbiased"
    assert SORTED.to_xarray()["estimate"].dims == ("x",)
