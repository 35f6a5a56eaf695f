"""OpenClaw: its lines, its locks, and its list of conversations.

`format` reads its entries and `home` its directories. `registry` reads and edits its list of
conversations, and `lock` takes its lock of a session.
"""
