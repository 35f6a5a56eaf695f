"""The site of the documents: its navigation, and the check of its links."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import DOCS, TOP

_CHECK = TOP / "packaging" / "check_site.py"


def _named(items: list[Any]) -> Iterator[str]:
    for item in items:
        match item:
            case dict():
                for below in item.values():
                    yield from _named([below] if isinstance(below, str) else below)
            case str():
                yield item


def test_the_navigation_names_every_page_once() -> None:
    settings = tomllib.loads((TOP / ".zensical.toml").read_text(encoding="utf-8"))
    pages = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")]
    assert sorted(_named(settings["project"]["nav"])) == sorted(pages)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('<a href="other.html#here">', None),
        ('<a href="https://example.com/">', None),
        ('<a href="#there">', "index.html: there is no #there"),
        ('<a href="other.html#there">', "index.html: there is no other.html#there"),
        ('<a href="lost.html">', "index.html: there is no lost.html"),
        ('<img src="lost.png">', "index.html: there is no lost.png"),
        ('<script src="//example.com/a.js">', "index.html: loads //example.com/a.js"),
        ('<link href="https://example.com/a.css">', "index.html: loads https://example.com/a.css"),
    ],
)
def test_faults_of_a_site_are_named(text: str, fault: str | None, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(text)
    (tmp_path / "other.html").write_text('<h1 id="here">')
    done = subprocess.run(
        [sys.executable, str(_CHECK), str(tmp_path)], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == ((1, f"{fault}\n") if fault else (0, ""))
