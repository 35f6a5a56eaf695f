"""Lengths of time as people read them; it loads nothing, since `bsd status` starts quickly.

Durations that users type and settings hold are read and written in `formatting`.
"""

from __future__ import annotations


def spell_seconds(seconds: float) -> str:
    """Write a length of time by its two greatest units: `2 d 4 h`, `5 min`, `12 s`."""
    rest = round(seconds)
    parts = []
    for name, length in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        number, rest = divmod(rest, length)
        if number:
            parts.append((name, number))
        elif parts:
            break
    # Seconds matter only while there is nothing greater than minutes.
    return " ".join(f"{number} {name}" for name, number in parts[:2]) or "0 s"
