"""How much a change must save, so that few bytes are written for each byte that is saved.

Changes that save tokens only, in files that keep their length, have no bytes to pay for the
writing. They are made at most once in `LONGEST_WAIT_SECONDS` for each session.
"""

from __future__ import annotations

LONGEST_WAIT_SECONDS = 3600.0  # a small saving waits at most so long for further savings
_SHARE = 32  # a commit saves at least 1/32 of the bytes that it has to write


def is_worth_writing(saved: int, after: int, waited: float) -> bool:
    """Return True if a change is to be committed now. Even for a small one, all is written.

    Args:
        saved: bytes by which the session gets smaller.
        after: bytes of the session afterwards.
        waited: seconds for which the oldest saving has waited.
    """
    return waited >= LONGEST_WAIT_SECONDS or saved * _SHARE >= after
