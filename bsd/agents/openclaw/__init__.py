"""OpenClaw: what it writes, how it locks, what it lists.

`dialect` reads its entries, `home` its directories and its list of conversations, which
`registry_edit` changes; `lock` takes its lock of a session, `lock_file` says who holds it.
"""
