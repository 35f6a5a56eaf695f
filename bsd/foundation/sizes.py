"""Amounts of bytes as people read them."""

from __future__ import annotations

_UNITS = ("KB", "MB", "GB", "TB", "PB")


def format_size(count: int) -> str:
    """Write a number of bytes: `999 B`, `1.2 MB` (1 KB is 1024 bytes)."""
    if abs(count) < 1024:
        return f"{count} B"
    amount = float(count)
    for unit in _UNITS:
        amount /= 1024
        if abs(amount) < 1023.95 or unit == _UNITS[-1]:
            break
    return f"{amount:.1f} {unit}"
