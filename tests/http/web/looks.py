"""What a page looks like to those who see little, use no mouse, or have a small screen."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

# Text whose contrast with what is behind it is too low (WCAG AA), disabled controls left out.
_LOW_CONTRAST = """() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, below) => ({
    r: top.r * top.a + below.r * (1 - top.a),
    g: top.g * top.a + below.g * (1 - top.a),
    b: top.b * top.a + below.b * (1 - top.a),
    a: 1,
  });
  const light = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((one) => {
      const part = one / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      layers.push(parse(getComputedStyle(at).backgroundColor));
    }
    const white = { r: 255, g: 255, b: 255, a: 1 };
    return layers.reverse().reduce((below, top) => over(top, below), white);
  };
  const found = [];
  let looked = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const style = getComputedStyle(element);
    const words = walker.currentNode.data.trim();
    if (!words || !element.checkVisibility({ visibilityProperty: true })) continue;
    if (parseFloat(style.fontSize) === 0) continue;
    if (element.closest(":disabled, .offscreen, .skip, noscript")) continue;
    looked += 1;
    const back = behind(element);
    const own = element instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(over(parse(own), back)), light(back)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)}: ${words.slice(0, 40)}`);
  }
  return { looked, found };
}"""

_NAMELESS = """() => [...document.querySelectorAll(
    "a, button, input, select, textarea, dialog, table, svg[role]"
  )]
  .filter((one) => one.checkVisibility())
  .filter((one) => {
    const by = one.getAttribute("aria-labelledby");
    const names = [
      one.getAttribute("aria-label"),
      by && document.getElementById(by)?.textContent,
      one.labels?.length && one.labels[0].textContent,
      one.matches("a, button") && one.textContent,
    ];
    return !names.some((name) => typeof name === "string" && name.trim());
  })
  .map((one) => one.outerHTML.slice(0, 120))"""

_TOO_WIDE = """() => {
  const main = document.getElementById("main");
  const wide = [document.documentElement, main].filter((one) => one.scrollWidth > one.clientWidth);
  return wide.map((one) => `${one.tagName}: ${one.scrollWidth} in ${one.clientWidth}`);
}"""


def low_contrast(page: Page) -> list[str]:
    """Texts that are hard to read, with their contrast."""
    told: dict[str, Any] = page.evaluate(_LOW_CONTRAST)
    assert told["looked"] > 5, "there was nothing to look at"
    return list(told["found"])


def nameless(page: Page) -> list[str]:
    """Things to operate of which nobody who does not see them knows what they are."""
    return list(page.evaluate(_NAMELESS))


def too_wide(page: Page) -> list[str]:
    """What would have to be scrolled sideways."""
    return list(page.evaluate(_TOO_WIDE))
