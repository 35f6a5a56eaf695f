"""Set-up: bsd's additions to the configuration of agents' programs, made and taken away."""
