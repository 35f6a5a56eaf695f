"""The HTTP API: one of the interfaces to the actions (SPEC §8)."""
