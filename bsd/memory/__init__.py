"""Facts that agents keep, and that decay (seed 002, SPEC §10)."""
