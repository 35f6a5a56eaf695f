"""Accessibility of a view, by axe, and whether it fits a small screen."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page

_AXE = Axe()
_AXE_AGAIN = Axe("0")  # in a document that has it, which saves half a megabyte of script

_TOO_WIDE = """() => {
  const shown = [document.documentElement, ...document.querySelectorAll("#main, dialog[open]")];
  const wide = shown.filter((one) => one.scrollWidth > one.clientWidth);
  return wide.map((one) => `${one.tagName}: ${one.scrollWidth} in ${one.clientWidth}`);
}"""


def findings(page: Page, scheme: str = "light") -> list[str]:
    """Return the violations that axe finds, each with its elements.

    Checks the open dialog, or the whole view if none is open. In the dark theme, where only
    colours differ, checks only the contrast.
    """
    dialog = "dialog[open]" if page.locator("dialog[open]").count() else None
    options: dict[str, list[str]] = {"resultTypes": ["violations"]}  # of the others one node
    if scheme == "dark":
        options["runOnly"] = ["color-contrast"]
    axe = _AXE_AGAIN if page.evaluate("'axe' in window") else _AXE
    response = axe.run(page, dialog, options).response
    assert response["passes"], "axe has looked at nothing"
    return [
        f"{violation['id']}: {node['html'][:120]} ({node['failureSummary']})"
        for violation in response["violations"]
        for node in violation["nodes"]
    ]


def too_wide(page: Page) -> list[str]:
    """Return the elements that would have to be scrolled sideways."""
    return list(page.evaluate(_TOO_WIDE))
