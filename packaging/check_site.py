"""Checks the built documents: each link and anchor exists, and no file comes from the network.

python packaging/check_site.py DIRECTORY   names each fault; exit code 1 if there is any
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Attributes by which a page loads a file. A link in a sentence may lead to the network.
_LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src")}
_LOADED_BY_STYLE = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")


@dataclass
class _Page(HTMLParser):
    """One page: its anchors, its links, and the files that it loads."""

    path: Path
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the anchors and the addresses of a tag."""
        for name, given in attrs:
            if given is None:
                continue
            if name in {"id", "name"}:
                self.anchors.add(given)
            elif (tag, name) in _LOADS:
                self.loads.append(given)
            elif (tag, name) == ("a", "href"):
                self.links.append(given)


def faults(site: Path) -> list[str]:
    """Return the faults of a site, each as a line for people."""
    pages = {path: _Page(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name}: loads {url}" for url in page.loads if urlsplit(url).netloc]
        for url in [*page.links, *page.loads]:
            if not _is_there(url, path, site, pages):
                found.append(f"{name}: there is no {url}")
    for path in sorted(site.rglob("*.css")):
        for url in _LOADED_BY_STYLE.findall(path.read_text(encoding="utf-8")):
            found.append(f"{path.relative_to(site)}: loads {url}")
    return found


def _is_there(url: str, path: Path, site: Path, pages: dict[Path, _Page]) -> bool:
    """Return False if an address within the site names no file or no anchor."""
    parts = urlsplit(url)
    if parts.scheme or parts.netloc:
        return True
    place = unquote(parts.path)
    if place.startswith("/"):  # in 404.html, which a server sends for any address
        target = site / place[1:]
    else:
        target = (path.parent / place).resolve() if place else path
    if target.is_dir():
        target /= "index.html"
    if target not in pages:
        return target.exists()
    return parts.fragment in {"", *pages[target].anchors}


def main() -> int:
    """Print the faults of the site that the command line names."""
    found = faults(Path(sys.argv[1]).resolve())
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
