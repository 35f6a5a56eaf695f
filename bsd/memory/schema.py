"""The schema of a facts database: the plugin's tables, upgrades of older ones, bsd's additions.

The plugin and bsd share the database. Therefore unknown columns stay, everything that the plugin
needs is created, and the names of bsd's own tables, columns and indexes begin with `bsd_`.
"""

import re

from bsd.core.errors import Conflict
from bsd.memory.database import Database, nothing_there

# In the plugin's order, beginning with the columns of its first version.
COLUMNS = {
    "id": "TEXT PRIMARY KEY",
    "text": "TEXT NOT NULL",
    "category": "TEXT NOT NULL DEFAULT 'other'",
    "importance": "REAL NOT NULL DEFAULT 0.7",
    "entity": "TEXT",
    "key": "TEXT",
    "value": "TEXT",
    "source": "TEXT NOT NULL DEFAULT 'conversation'",
    "created_at": "INTEGER NOT NULL",
    "decay_class": "TEXT NOT NULL DEFAULT 'stable'",
    "expires_at": "INTEGER",
    "last_confirmed_at": "INTEGER",
    "confidence": "REAL NOT NULL DEFAULT 1.0",
    "summary": "TEXT",
    "normalized_hash": "TEXT",
    "source_date": "INTEGER",
    "tags": "TEXT",
    "recall_count": "INTEGER NOT NULL DEFAULT 0",
    "last_accessed": "INTEGER",
    "superseded_at": "INTEGER",
    "superseded_by": "TEXT",
    "valid_from": "INTEGER",
    "valid_until": "INTEGER",
    "supersedes_id": "TEXT",
}
# The confidence before the fact began to fade; NULL if it has not begun.
OWN_COLUMNS = {"bsd_base_confidence": "REAL"}
_BEGIN = ("id", "text", "created_at")  # a table with these columns holds facts

_TIMES = (
    *("created_at", "expires_at", "last_confirmed_at", "source_date", "last_accessed"),
    *("superseded_at", "valid_from", "valid_until"),
)
_BATCH = 5000
MILLISECONDS = 10_000_000_000  # a time beyond this was written in milliseconds
LARGEST = "9e99"  # excludes texts, which SQLite sorts after all numbers

# The values that older rows get in new columns.
_FIRST_VALUES = {
    "last_confirmed_at": "created_at",
    "valid_from": "COALESCE(source_date, created_at)",
}

_INDEXES = {
    # The plugin's indexes. The plugin creates those that are missing.
    "idx_facts_category": "facts (category)",
    "idx_facts_entity": "facts (entity)",
    "idx_facts_created": "facts (created_at)",
    "idx_facts_expires": "facts (expires_at) WHERE expires_at IS NOT NULL",
    "idx_facts_decay": "facts (decay_class)",
    "idx_facts_tags": "facts (tags) WHERE tags IS NOT NULL",
    "idx_facts_last_accessed": "facts (last_accessed) WHERE last_accessed IS NOT NULL",
    "idx_facts_superseded": "facts (superseded_at) WHERE superseded_at IS NOT NULL",
    "idx_facts_valid": "facts (valid_from, valid_until)",
    # Indexes of bsd, for the queries that need others (see decay.py).
    "bsd_facts_fading": ("facts (last_confirmed_at + 3 * expires_at) WHERE expires_at IS NOT NULL"),
    "bsd_facts_faint": "facts (confidence) WHERE confidence < 0.1",
    "bsd_facts_hash": "facts (normalized_hash)",
    "bsd_facts_entity_key": "facts (entity COLLATE NOCASE, key COLLATE NOCASE)",
    "bsd_links_source": "memory_links (source_fact_id)",
    "bsd_links_target": "memory_links (target_fact_id)",
}

# The plugin's indexes that bsd's queries need, whatever the version of the database.
_NEEDED = ("idx_facts_created", "idx_facts_expires", "idx_facts_decay")

_TABLES = {
    "memory_links": """CREATE TABLE memory_links (
        id TEXT PRIMARY KEY,
        source_fact_id TEXT NOT NULL REFERENCES facts (id) ON DELETE CASCADE,
        target_fact_id TEXT NOT NULL REFERENCES facts (id) ON DELETE CASCADE,
        link_type TEXT NOT NULL, strength REAL DEFAULT 1.0, created_at INTEGER)""",
    # Ids of deleted facts whose vectors are still to be deleted (see vectors.py).
    "bsd_vectors_due": "CREATE TABLE bsd_vectors_due (fact_id TEXT PRIMARY KEY) WITHOUT ROWID",
    "bsd_memory": "CREATE TABLE bsd_memory (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
}

_SEARCHED = ("text", "category", "entity", "key", "value")
_WORDS = f"""CREATE VIRTUAL TABLE facts_fts USING fts5 ({", ".join(_SEARCHED)},
    content=facts, content_rowid=rowid, tokenize='porter unicode61')"""
_OLD = "VALUES ('delete', OLD.rowid, " + ", ".join(f"OLD.{name}" for name in _SEARCHED) + ")"
_NEW = "VALUES (NEW.rowid, " + ", ".join(f"NEW.{name}" for name in _SEARCHED) + ")"
_FORGET = f"INSERT INTO facts_fts (facts_fts, rowid, {', '.join(_SEARCHED)}) {_OLD};"
_LEARN = f"INSERT INTO facts_fts (rowid, {', '.join(_SEARCHED)}) {_NEW};"
_TRIGGERS = {
    "facts_ai": f"CREATE TRIGGER facts_ai AFTER INSERT ON facts BEGIN {_LEARN} END",
    "facts_ad": f"CREATE TRIGGER facts_ad AFTER DELETE ON facts BEGIN {_FORGET} END",
    "facts_au": (
        f"CREATE TRIGGER facts_au AFTER UPDATE OF {', '.join(_SEARCHED)} ON facts"
        f" BEGIN {_FORGET} {_LEARN} END"
    ),
}
_ANY_UPDATE = re.compile(r"\bUPDATE\s+ON\s+[\"'`\[]?facts\b[\"'`\]]?", re.IGNORECASE)

CREATED_BY = "created_by"


def prepare(db: Database) -> None:
    """Create the schema, or update an older one; raises Conflict for a foreign database.

    Steps that take long on a large database have transactions of their own, so that the gateway
    does not wait too long, and so that the next call can continue after a crash.
    """
    if _lacking(db):
        with db.change():  # the journal mode stays: the plugin chooses write-ahead logging
            new = not _objects(db)
            for statement in _lacking(db):
                db.run(statement)
            if new:
                note(db, CREATED_BY, "bsd")
    for name, statement in _lacking_indexes(db).items():
        with db.change():
            if name not in _objects(db):  # another process may have created it
                db.run(statement)
    _fill_hashes(db)


def note(db: Database, name: str, value: str | int) -> None:
    """Store a note in the database."""
    db.run("INSERT OR REPLACE INTO bsd_memory (name, value) VALUES (?, ?)", (name, value))


def noted(db: Database, name: str) -> str | int | None:
    """Return the note of this name; None if there is no such note."""
    if "bsd_memory" not in _objects(db):
        return None
    found: str | int | None = db.value("SELECT value FROM bsd_memory WHERE name = ?", (name,))
    return found


def pretend(db: Database) -> None:
    """Seal a database against changes, and present an older schema as the current schema.

    A temporary view hides the table, so that queries find all columns and all times are seconds.
    Raises Conflict for a foreign database.
    """
    known = _columns(db)
    if not known:
        raise _something_else(db) if _objects(db) else nothing_there(db.path)
    lacking = [name for name in (*COLUMNS, *OWN_COLUMNS) if name not in known]
    if lacking or _in_milliseconds(db, known):
        shown = [_as_seconds(name) if name in _TIMES else name for name in known]
        shown += [f"{_assumed(name)} AS {name}" for name in lacking]
        db.run(f"CREATE TEMP VIEW facts AS SELECT rowid, {', '.join(shown)} FROM main.facts")  # noqa: S608
    db.seal()


def _lacking(db: Database) -> list[str]:
    """Return the statements that create or update the schema, in their order."""
    objects = _objects(db)
    if not objects:
        tables = [_create_facts(), *_TABLES.values(), _WORDS, *_TRIGGERS.values()]
        return [*tables, *(f"CREATE INDEX {name} ON {place}" for name, place in _INDEXES.items())]
    known = _columns(db)
    if not set(_BEGIN) <= set(known):
        raise _something_else(db)
    # Triggers first: the updates below must not write the index of words.
    statements = [*_lacking_words(db, objects)]
    new = [name for name in (*COLUMNS, *OWN_COLUMNS) if name not in known]
    for name in new:
        kind = (COLUMNS | OWN_COLUMNS)[name]
        statements.append(f"ALTER TABLE facts ADD COLUMN {name} {kind}")
    statements += [sql for name, sql in _TABLES.items() if name not in objects]
    if _in_milliseconds(db, known):
        for name in (name for name in _TIMES if name in known):
            statements.append(
                f"UPDATE facts SET {name} = {name} / 1000 WHERE {_too_late(name)}"  # noqa: S608
            )
    statements += [
        f"UPDATE facts SET {name} = {value} WHERE {name} IS NULL"  # noqa: S608 - our own words
        for name, value in _FIRST_VALUES.items()
        if name in new
    ]
    return statements


def _lacking_words(db: Database, objects: dict[str, str]) -> list[str]:
    statements = [sql for name, sql in _TRIGGERS.items() if name not in objects]
    if "facts_fts" not in objects:
        statements.insert(0, _WORDS)
    if statements:  # the index may have missed changes
        statements.append("INSERT INTO facts_fts (facts_fts) VALUES ('rebuild')")
    old = objects.get("facts_au", "")
    if "facts_fts" in objects and _ANY_UPDATE.search(old):
        # The plugin's trigger, limited to changes of text: fading and recall do not change text.
        columns = ", ".join(row["name"] for row in db.all("PRAGMA table_info(facts_fts)"))
        better = _ANY_UPDATE.sub(f"UPDATE OF {columns} ON facts", old, count=1)
        statements += ["DROP TRIGGER facts_au", better]
    return statements


def _create_facts() -> str:
    columns = ", ".join(f"{name} {kind}" for name, kind in (COLUMNS | OWN_COLUMNS).items())
    return f"CREATE TABLE facts ({columns})"


def _lacking_indexes(db: Database) -> dict[str, str]:
    """Return the missing indexes by name, with the statements that create them."""
    objects = _objects(db)
    columns = {
        row[0]
        for row in db.all(
            "SELECT first.name FROM pragma_index_list('facts') AS list,"
            " pragma_index_info(list.name) AS first WHERE first.seqno = 0"
        )
    }
    lacking = {}
    for name, place in _INDEXES.items():
        column = place.partition("(")[2].partition(")")[0].partition(",")[0]
        needed = name.startswith("bsd_") or (name in _NEEDED and column not in columns)
        if needed and name not in objects:
            lacking[name] = f"CREATE INDEX {name} ON {place}"
    return lacking


def _fill_hashes(db: Database) -> None:
    """Fill in the hashes of texts that the plugin stored without a hash."""
    missing = "SELECT rowid FROM facts WHERE normalized_hash IS NULL AND text IS NOT NULL"
    while db.one(f"{missing} LIMIT 1"):
        with db.change():
            db.run(
                "UPDATE facts SET normalized_hash = bsd_normalized(text)"  # noqa: S608 - our words
                f" WHERE rowid IN ({missing} LIMIT {_BATCH})"
            )


def _objects(db: Database) -> dict[str, str]:
    """Return all objects of the database by name, with the statements that created them."""
    return {row["name"]: row["sql"] or "" for row in db.all("SELECT name, sql FROM sqlite_master")}


def _columns(db: Database) -> list[str]:
    return [row["name"] for row in db.all("PRAGMA table_info(facts)")]


def _in_milliseconds(db: Database, known: list[str]) -> bool:
    """Return True if the newest or the longest-lived fact has times in milliseconds."""
    return any(
        db.one(f"SELECT 1 FROM main.facts WHERE {_too_late(name)} LIMIT 1")  # noqa: S608 - as above
        for name in ("created_at", "expires_at")
        if name in known
    )


def _as_seconds(name: str) -> str:
    return f"CASE WHEN {_too_late(name)} THEN {name} / 1000 ELSE {name} END AS {name}"


def _too_late(name: str) -> str:
    return f"{name} > {MILLISECONDS} AND {name} < {LARGEST}"


def _assumed(name: str) -> str:
    """Return the SQL expression that stands for a missing column."""
    if name == "last_confirmed_at":
        return _as_seconds("created_at").removesuffix(" AS created_at")
    if name in {"valid_from", "normalized_hash"}:
        return "NULL"  # only writing calls read these columns
    return (COLUMNS | OWN_COLUMNS)[name].partition(" DEFAULT ")[2] or "NULL"


def _something_else(db: Database) -> Conflict:
    return Conflict(
        f"{db.path} belongs to another program: it has no table of facts",
        hint="name the right one as `database` in [memory] of bsd.toml",
    )
