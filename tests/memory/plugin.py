"""The plugin's side of a facts database: its schema, version by version, and its own statements.

Written from known facts: columns, pragmas, triggers and formulae. None of the plugin's code is
here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TEXTS = ("text", "category", "entity", "key", "value")
_NEW = ", ".join(f"new.{name}" for name in TEXTS)
_OLD = ", ".join(f"old.{name}" for name in TEXTS)
_LEARN = f"INSERT INTO facts_fts(rowid, {', '.join(TEXTS)}) VALUES (new.rowid, {_NEW});"
_FORGET = (
    f"INSERT INTO facts_fts(facts_fts, rowid, {', '.join(TEXTS)})"
    f" VALUES ('delete', old.rowid, {_OLD});"
)
_FIRST = f"""
CREATE TABLE IF NOT EXISTS facts (
  id TEXT PRIMARY KEY, text TEXT NOT NULL, category TEXT NOT NULL DEFAULT 'other',
  importance REAL NOT NULL DEFAULT 0.7, entity TEXT, key TEXT, value TEXT,
  source TEXT NOT NULL DEFAULT 'conversation', created_at INTEGER NOT NULL);
CREATE VIRTUAL TABLE IF NOT EXISTS facts_fts USING fts5({", ".join(TEXTS)},
  content=facts, content_rowid=rowid, tokenize='porter unicode61');
CREATE TRIGGER IF NOT EXISTS facts_ai AFTER INSERT ON facts BEGIN {_LEARN} END;
CREATE TRIGGER IF NOT EXISTS facts_ad AFTER DELETE ON facts BEGIN {_FORGET} END;
CREATE TRIGGER IF NOT EXISTS facts_au AFTER UPDATE ON facts BEGIN {_FORGET} {_LEARN} END;
CREATE INDEX IF NOT EXISTS idx_facts_category ON facts(category);
CREATE INDEX IF NOT EXISTS idx_facts_entity ON facts(entity);
CREATE INDEX IF NOT EXISTS idx_facts_created ON facts(created_at);
"""
# Additions of each later version.
MIGRATIONS: dict[str, tuple[str, ...]] = {
    "decay": (
        "ALTER TABLE facts ADD COLUMN decay_class TEXT NOT NULL DEFAULT 'stable'",
        "ALTER TABLE facts ADD COLUMN expires_at INTEGER",
        "ALTER TABLE facts ADD COLUMN last_confirmed_at INTEGER",
        "ALTER TABLE facts ADD COLUMN confidence REAL NOT NULL DEFAULT 1.0",
        "UPDATE facts SET last_confirmed_at = created_at WHERE last_confirmed_at IS NULL",
        "CREATE INDEX idx_facts_expires ON facts(expires_at) WHERE expires_at IS NOT NULL",
        "CREATE INDEX idx_facts_decay ON facts(decay_class)",
    ),
    "summary": ("ALTER TABLE facts ADD COLUMN summary TEXT",),
    "hash": ("ALTER TABLE facts ADD COLUMN normalized_hash TEXT",),
    "source_date": ("ALTER TABLE facts ADD COLUMN source_date INTEGER",),
    "tags": ("ALTER TABLE facts ADD COLUMN tags TEXT",),
    "access": (
        "ALTER TABLE facts ADD COLUMN recall_count INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE facts ADD COLUMN last_accessed INTEGER",
    ),
    "supersession": (
        "ALTER TABLE facts ADD COLUMN superseded_at INTEGER",
        "ALTER TABLE facts ADD COLUMN superseded_by TEXT",
    ),
    "bitemporal": (
        "ALTER TABLE facts ADD COLUMN valid_from INTEGER",
        "ALTER TABLE facts ADD COLUMN valid_until INTEGER",
        "ALTER TABLE facts ADD COLUMN supersedes_id TEXT",
        "UPDATE facts SET valid_from = COALESCE(source_date, created_at)",
    ),
    "links": (
        """CREATE TABLE memory_links (id TEXT PRIMARY KEY, source_fact_id TEXT, target_fact_id TEXT,
        link_type TEXT, strength REAL DEFAULT 1.0, created_at INTEGER,
        FOREIGN KEY (source_fact_id) REFERENCES facts(id) ON DELETE CASCADE,
        FOREIGN KEY (target_fact_id) REFERENCES facts(id) ON DELETE CASCADE)""",
    ),
    # an unknown later version, apart from the column that protects a fact
    "unknown": (
        "ALTER TABLE facts ADD COLUMN decay_freeze_until INTEGER DEFAULT NULL",
        "ALTER TABLE facts ADD COLUMN pinned_at INTEGER",
        "ALTER TABLE facts ADD COLUMN tier TEXT DEFAULT 'warm'",
        "ALTER TABLE facts ADD COLUMN scope TEXT NOT NULL DEFAULT 'global'",
        "CREATE TABLE verified_facts (id TEXT PRIMARY KEY, fact_id TEXT NOT NULL)",
    ),
}
VERSIONS = ("first", *MIGRATIONS)


@contextmanager
def plugin(path: Path) -> Iterator[sqlite3.Connection]:
    """The gateway's connection, as it configures it."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        for pragma in ("journal_mode=WAL", "busy_timeout=5000", "synchronous=NORMAL"):
            db.execute(f"PRAGMA {pragma}")
        db.execute("PRAGMA foreign_keys=ON")
        yield db
    finally:
        db.close()


def create(db: sqlite3.Connection, version: str = VERSIONS[-1]) -> None:
    """Create the schema of a version; on a database that has it, change nothing."""
    db.executescript(_FIRST)
    known = {row[1] for row in db.execute("PRAGMA table_info(facts)")}
    for name in VERSIONS[1 : VERSIONS.index(version) + 1]:
        for statement in MIGRATIONS[name]:
            if statement.startswith("ALTER"):
                if statement.split()[5] not in known:
                    db.execute(statement)
            elif statement.startswith("CREATE"):
                db.execute(
                    statement.replace("TABLE ", "TABLE IF NOT EXISTS ").replace(
                        "INDEX ", "INDEX IF NOT EXISTS "
                    )
                )
            else:
                db.execute(statement)


def insert(db: sqlite3.Connection, **columns: Any) -> None:
    """Store a fact."""
    marks = ", ".join("?" * len(columns))
    db.execute(
        f"INSERT INTO facts ({', '.join(columns)}) VALUES ({marks})", tuple(columns.values())
    )


PRUNE_EXPIRED = "DELETE FROM facts WHERE expires_at IS NOT NULL AND expires_at < :now"
FADES = (
    "expires_at IS NOT NULL AND expires_at > :now AND last_confirmed_at IS NOT NULL"
    " AND (:now - last_confirmed_at) > (expires_at - last_confirmed_at) * 0.75 AND confidence > 0.1"
)
DECAY = f"UPDATE facts SET confidence = confidence * 0.5 WHERE {FADES}"
DELETE_FAINT = "DELETE FROM facts WHERE confidence < 0.1"
COUNT_EXPIRED = "SELECT COUNT(*) FROM facts WHERE expires_at IS NOT NULL AND expires_at < :now"
SEARCH = (
    "SELECT facts.*, bm25(facts_fts) AS rank FROM facts JOIN facts_fts ON"
    " facts.rowid = facts_fts.rowid WHERE facts_fts MATCH :words AND"
    " (facts.expires_at IS NULL OR facts.expires_at > :now) AND facts.superseded_at IS NULL"
    " ORDER BY rank LIMIT :most"
)
LOOKUP = (
    "SELECT * FROM facts WHERE lower(entity) = lower(:entity)"
    " AND (expires_at IS NULL OR expires_at > :now) AND superseded_at IS NULL"
    " ORDER BY confidence DESC, COALESCE(source_date, created_at) DESC"
)
REFRESH = (
    "UPDATE facts SET last_confirmed_at = :now, expires_at = :now + 7776000,"
    " recall_count = recall_count + 1, last_accessed = :now WHERE id = :id"
)
CONFIRM = (
    "UPDATE facts SET confidence = 1.0, last_confirmed_at = :now, expires_at = :expires"
    " WHERE id = :id"
)
