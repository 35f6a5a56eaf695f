"""The picture of growth shows the measured figures."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.bench.growth import drawing

_HERE = Path(__file__).parent
_FOUND = {
    "machine": "a machine",
    "day": "2026-11-23",
    "sizes": [
        {"mb": 1, "seconds": 0.25, "cpu": 0.2, "peak": 31, "load": 0.1},
        {"mb": 100, "seconds": 12.5, "cpu": 9, "peak": 140, "load": 2.5},
    ],
    "numbers": [
        {"sessions": 7, "seconds": 3, "cpu": 1, "cpu_with_words": 2, "peak": 80, "rest": 60}
        | {"load": 1}
    ],
}


def test_every_figure_stands_in_the_picture() -> None:
    root = ET.fromstring(drawing(_FOUND))
    texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"0.25", "12.5", "31", "140", "100 MB", "7"} <= set(texts)
    assert "a machine, 2026-11-23, load 0.1 to 2.5" in texts


def test_more_stands_higher() -> None:
    root = ET.fromstring(drawing(_FOUND))
    line = next(root.iter("{http://www.w3.org/2000/svg}polyline")).attrib["points"]
    (left, low), (right, high) = (map(float, spot.split(",")) for spot in line.split())
    assert left < right
    assert high < low, "SVG counts from above"


def test_the_picture_in_the_repository_is_of_the_figures_beside_it() -> None:
    found = json.loads((_HERE / "growth.json").read_bytes())
    assert (_HERE / "growth.svg").read_text() == drawing(found)
