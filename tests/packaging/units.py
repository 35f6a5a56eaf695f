"""Unit files, parsed as systemd parses them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parents[2]
USER_UNIT = TOP / "packaging" / "systemd" / "bsd.service"
TEMPLATE = TOP / "packaging" / "systemd" / "bsd@.service"


@dataclass(frozen=True)
class Unit:
    """Section → key → all values, in their order."""

    sections: dict[str, dict[str, list[str]]]

    @classmethod
    def parse(cls, text: str) -> Unit:
        sections: dict[str, dict[str, list[str]]] = {}
        current: dict[str, list[str]] = {}
        for line in map(str.strip, text.splitlines()):
            if not line or line[0] in "#;":
                continue
            if line.startswith("["):
                current = sections.setdefault(line.strip("[]"), {})
                continue
            key, _, value = line.partition("=")
            current.setdefault(key.strip(), []).append(value.strip())
        return cls(sections)

    @classmethod
    def read(cls, path: Path) -> Unit:
        return cls.parse(path.read_text(encoding="utf-8"))

    def all(self, key: str, section: str = "Service") -> list[str]:
        return self.sections[section].get(key, [])

    def one(self, key: str, section: str = "Service") -> str:
        [value] = self.all(key, section)
        return value
