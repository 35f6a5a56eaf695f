"""Words and numbers for people, safe for any terminal."""

from __future__ import annotations

from bsd.foundation.spelling import format_size as size

__all__ = ["counted", "one_line", "safe", "share", "size"]

# Joiners are not printable in Python's eyes, but emoji and several scripts need them.
_HARMLESS = "\u200c\u200d"


def safe(text: str, *, lines: bool = False) -> str:
    r"""Return `text` with everything escaped that could command or confuse a terminal.

    Control characters, lone surrogates, direction marks and unassigned characters appear as
    `\x1b` or `\u202e`; with `lines`, line breaks and tabs stay.
    """
    if text.isprintable():
        return text
    kept = _HARMLESS + ("\n\t" if lines else "")
    return "".join(c if c.isprintable() or c in kept else _escape(c) for c in text)


def one_line(text: str, length: int) -> str:
    """Return the beginning of `text` on one line of at most `length` characters, made safe."""
    line = safe(" ".join(text[: 8 * length].split()))
    return line if len(line) <= length else line[: length - 1] + "…"


def counted(count: int, noun: str) -> str:
    """Write a number with its noun: `1 entry`, `2 entries`, `0 sessions`."""
    if count == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{count:,} {plural}"


def share(part: int, whole: int) -> str:
    """Write what part of a whole something is, in per cent."""
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
