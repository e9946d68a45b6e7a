"""The browser of all tests of pages."""

import shutil

import pytest
from playwright.sync_api import sync_playwright


@pytest.fixture(scope="module")
def browser():
    path = shutil.which("chromium")
    if path is None:
        pytest.fail("pages are tested in Chromium, which is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        # The sandbox of Chromium cannot be had as root.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()
