"""bsd keeps AI-agent session files lean without ever losing a byte."""

__version__ = "0.1.0"
