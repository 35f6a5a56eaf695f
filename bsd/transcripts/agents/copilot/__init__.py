"""GitHub Copilot CLI.

`format` reads the events of a session, `program` knows the directories, locks and processes of the
program.
"""
