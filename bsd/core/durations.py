"""Durations in words for people. Imports no other module, so that `bsd status` starts quickly.

Durations in settings and in input of users are handled in `formatting`.
"""

from __future__ import annotations


def spell_seconds(seconds: float) -> str:
    """Write a duration with its two largest units: `2 d 4 h`, `5 min`, `12 s`."""
    rest = round(seconds)
    parts = []
    for name, length in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        number, rest = divmod(rest, length)
        if number:
            parts.append((name, number))
        elif parts:
            break
    # At most two successive units: seconds appear only beside minutes or alone.
    return " ".join(f"{number} {name}" for name, number in parts[:2]) or "0 s"
