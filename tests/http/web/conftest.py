"""A single browser for all tests of the page that a worker runs one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.http.web.browser import chromium


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium; each test opens pages in a context of its own (`watched`)."""
    with chromium() as browser:
        yield browser
