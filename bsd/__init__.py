"""bsd keeps AI-agent session files lean by moving large old values into a store."""

__version__ = "0.2.0"
