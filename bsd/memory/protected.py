"""Facts that later versions of the plugin protect: pinned, frozen and verified ones do not fade.

The gateway that marked them spares them itself; who maintains its database must, too.
"""

from __future__ import annotations

from bsd.memory.database import Database

_COLUMNS = {
    "pinned_at": "pinned_at IS NULL",
    "decay_freeze_until": "COALESCE(decay_freeze_until <= :now, TRUE)",
}
_VERIFIED = "id NOT IN (SELECT fact_id FROM verified_facts WHERE fact_id IS NOT NULL)"


def unprotected(db: Database) -> str:
    """What `AND` adds to a condition of facts to be pruned at `:now`: nothing, most of the time."""
    known = _columns(db, "facts")
    terms = [term for name, term in _COLUMNS.items() if name in known]
    if "fact_id" in _columns(db, "verified_facts"):
        terms.append(_VERIFIED)
    return "".join(f" AND {term}" for term in terms)


def _columns(db: Database, table: str) -> set[str]:
    return {row[0] for row in db.all("SELECT name FROM pragma_table_info(?)", (table,))}
