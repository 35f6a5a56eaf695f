"""The HTTP API: one more door to what the daemon and the surgeon do (SPEC §8)."""
