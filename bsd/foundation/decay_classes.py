"""The decay classes of seed 002 and their lifetimes, known without loading the settings."""

from __future__ import annotations

HOUR, DAY = 3600, 86_400

# Seconds; None: never expires.
LIFETIMES: dict[str, int | None] = {
    "permanent": None,
    "stable": 90 * DAY,
    "active": 14 * DAY,
    "session": 24 * HOUR,
    "checkpoint": 4 * HOUR,
}
# Facts of these live on when they are recalled.
REFRESHED = ("stable", "active")
# Beside English, which always counts.
LANGUAGES = ("de", "fr")
