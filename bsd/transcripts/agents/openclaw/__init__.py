"""OpenClaw: what it writes, how it locks, what it lists.

`format` reads its entries, `home` its directories; `registry` its list of conversations, from
which it takes some, and `lock` its lock of a session.
"""
