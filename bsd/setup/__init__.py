"""Set-up: what bsd adds to the configuration of agents' programs, and takes away again."""
