"""Set-up: adding bsd to the configuration of agents' programs, and removing it."""
