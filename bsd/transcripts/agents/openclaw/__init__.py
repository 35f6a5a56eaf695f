"""OpenClaw: its lines, its locks, and its list of conversations.

`format` reads its entries, `home` its directories; `registry` its list of conversations, from
which it takes some, and `lock` its lock of a session.
"""
