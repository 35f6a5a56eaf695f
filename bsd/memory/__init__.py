"""Facts that agents keep, and that decay (seed 002, SPEC §10)."""

# Silences the log in a program that uses this as a library.
from bsd.core import logs as _logs  # noqa: F401
