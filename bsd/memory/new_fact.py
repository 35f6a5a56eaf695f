"""What is to be stored: decay classes and which one a fact has by its words, its row, checkpoints.

The order of the rules is in SPEC §10. Words in keys are looked for anywhere, as the plugin does:
`username` holds `name`. Phrases in texts must stand there as whole words, with single spaces:
`undecided` is not `decided`.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bsd.core.definition import argument
from bsd.core.errors import FieldError, Invalid
from bsd.core.formatting import LIFETIMES, REFRESHED, iso_utc, meant
from bsd.memory.database import Database, Row, normalized_hash, storable
from bsd.memory.decay import BASE
from bsd.memory.fact import SHOWN, Fact, text_of, whole_number
from bsd.memory.schema import MILLISECONDS

DEFAULT_CLASS = "stable"
# A fact that is a saved checkpoint: its class is not a guess.
CHECKPOINT_ENTITY, CHECKPOINT_KEY = "system", "checkpoint:"
IS_CHECKPOINT = f"entity = '{CHECKPOINT_ENTITY}' AND key LIKE '{CHECKPOINT_KEY}%'"
_BATCH = 2000


@dataclass(frozen=True, slots=True)
class Classes:
    """The seed's classes and the user's; lifetimes in seconds, None for ever."""

    lifetimes: Mapping[str, int | None] = field(default_factory=lambda: dict(LIFETIMES))
    refreshed: frozenset[str] = frozenset(REFRESHED)

    def check(self, name: str) -> str:
        """Return `name` if there is such a class; raises Invalid."""
        if name not in self.lifetimes:
            raise Invalid(
                f"there is no decay class {name!r}{meant(name, self.lifetimes)}",
                hint=f"one of {', '.join(self.lifetimes)}; [memory.ttl] in bsd.toml adds others",
            )
        return name

    def expiry(self, name: str, moment: int) -> int | None:
        """When a fact of this class that was confirmed at `moment` expires (epoch seconds)."""
        lifetime = self.lifetimes[name]
        return None if lifetime is None else moment + lifetime

    def renewed(self, fact: Fact, moment: int) -> int | None:
        """When a fact expires that is confirmed at `moment` (epoch seconds).

        One of a class that is no longer known lives as long again as it did.
        """
        if fact.decay_class in self.lifetimes:
            return self.expiry(fact.decay_class, moment)
        if fact.expires_at is None or fact.last_confirmed_at is None:
            return fact.expires_at
        lifetime = fact.expires_at - fact.last_confirmed_at
        return moment + lifetime if 0 < lifetime < MILLISECONDS else fact.expires_at

    def living_on(self) -> dict[str, int | None]:
        """Lifetimes of the classes that a recall refreshes."""
        return {name: self.lifetimes[name] for name in self.lifetimes if name in self.refreshed}


# --- by its words (seed 002) ---

# Of the user's own: keys, texts and entities.
WordLists = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A fact belongs to the class if any of this is true of it; all but entities in lower case."""

    decay_class: str
    keys: tuple[str, ...] = ()  # the key holds one of them
    texts: tuple[str, ...] = ()  # one of them stands in the text
    entities: tuple[str, ...] = ()  # the entity is one of them, upper and lower case as here
    entity_as_key: bool = False  # the entity holds one of `keys`
    mentions: tuple[str, ...] = ()  # the text holds one of them, be it within a word


# The first that fits decides; `stable`, if none does.
RULES = (
    Rule(
        "permanent",
        keys=(
            *("name", "email", "api_key", "api_endpoint", "architecture", "decision"),
            *("birthday", "born", "phone", "language", "location"),
        ),
        texts=("decided", "architecture", "always use", "never use"),
        entities=("decision", "convention"),
        entity_as_key=True,
    ),
    Rule(
        "session",
        keys=("current_file", "temp", "debug", "working_on_right_now"),
        texts=("currently debugging", "right now", "this session"),
    ),
    Rule(
        "active",
        keys=("task", "todo", "wip", "branch", "sprint", "blocker"),
        texts=("working on", "need to", "todo", "blocker", "sprint"),
    ),
    Rule(
        "checkpoint",
        keys=("checkpoint", "preflight"),
        mentions=("checkpoint", "preflight"),
    ),
)

# The same words in other languages, for `[memory] languages`.
TRANSLATIONS: dict[str, tuple[Rule, ...]] = {
    "de": (
        Rule(
            "permanent",
            keys=(
                *("vorname", "nachname", "e-mail", "architektur", "entscheidung"),
                *("geburtstag", "geburtsdatum", "geboren", "telefon", "sprache", "standort"),
            ),
            texts=("entschieden", "architektur", "immer verwenden", "nie verwenden"),
            entities=("entscheidung", "konvention"),
        ),
        Rule(
            "session",
            keys=("aktuelle_datei", "vorläufig"),
            texts=("gerade jetzt", "in dieser sitzung", "debugge gerade"),
        ),
        Rule(
            "active",
            keys=("aufgabe", "zweig", "blockade"),
            texts=("arbeite an", "muss noch", "aufgabe", "blockiert"),
        ),
        Rule("checkpoint", keys=("kontrollpunkt",), mentions=("kontrollpunkt",)),
    ),
    "fr": (
        Rule(
            "permanent",
            keys=(
                *("prénom", "courriel", "décision", "anniversaire", "naissance"),
                *("téléphone", "langue", "lieu"),
            ),
            texts=("décidé", "toujours utiliser", "ne jamais utiliser"),
            entities=("décision", "convention"),
        ),
        Rule(
            "session",
            keys=("fichier_actuel", "temporaire"),
            texts=("en ce moment", "cette session", "en train de déboguer"),
        ),
        Rule(
            "active",
            keys=("tâche", "branche", "blocage"),
            texts=("travaille sur", "il faut", "tâche", "blocage"),
        ),
        Rule("checkpoint", keys=("point_de_contrôle",), mentions=("point de contrôle",)),
    ),
}


class Classifier:
    """The rules, ready to be used."""

    def __init__(self, rules: Sequence[Rule] = RULES) -> None:
        self._rules = [(rule, _phrases(rule.texts)) for rule in rules]

    def classify(self, entity: str | None, key: str | None, text: str) -> str:
        """The class of a fact; its value says nothing."""
        key, text = (key or "").lower(), text.lower()
        for rule, phrases in self._rules:
            if (
                _holds(key, rule.keys)
                or (phrases and phrases.search(text))
                or entity in rule.entities
                or (rule.entity_as_key and entity and _holds(entity.lower(), rule.keys))
                or _holds(text, rule.mentions)
            ):
                return rule.decay_class
        return DEFAULT_CLASS


def rules_for(
    languages: Iterable[str] = (), words: Mapping[str, WordLists] | None = None
) -> tuple[Rule, ...]:
    """The rules with these languages and words; `words`: keys, texts and entities, by class.

    Classes that the rules do not know are the user's own, and `stable`, for which nothing speaks
    but what a user says: these are looked at first.
    """
    rules = {rule.decay_class: rule for rule in RULES}
    added = [rule for language in languages for rule in TRANSLATIONS[language]]
    users = [Rule(name, *lists) for name, lists in (words or {}).items()]
    for rule in [*added, *users]:
        if rule.decay_class in rules:
            rules[rule.decay_class] = _joined(rules[rule.decay_class], rule)
    return (*(rule for rule in users if rule.decay_class not in rules), *rules.values())


def _joined(one: Rule, other: Rule) -> Rule:
    return Rule(
        one.decay_class,
        keys=one.keys + other.keys,
        texts=one.texts + other.texts,
        entities=one.entities + other.entities,
        entity_as_key=one.entity_as_key,
        mentions=one.mentions + other.mentions,
    )


def _holds(text: str, words: Iterable[str]) -> bool:
    return any(word in text for word in words)


def _phrases(texts: Sequence[str]) -> re.Pattern[str] | None:
    if not texts:
        return None
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, texts))})(?!\w)")


# --- a fact, checked, classified and put into a row ---

MOMENT = {"least": 0, "most": MILLISECONDS}  # beyond, somebody forgot to divide


@dataclass(frozen=True, slots=True)
class NewFact:
    """What somebody wants to be remembered; without a class its words tell it."""

    text: str = field(
        metadata=argument("The fact, as one sentence.", metavar="TEXT", positional=True)
    )
    entity: str | None = field(
        default=None, metadata=argument("Who or what it is about.", metavar="NAME")
    )
    key: str | None = field(
        default=None, metadata=argument("Which property of the entity.", metavar="KEY")
    )
    value: str | None = field(
        default=None, metadata=argument("The value of that property.", metavar="VALUE")
    )
    category: str = field(
        default="other",
        metadata=argument("For instance preference, fact, decision, entity.", metavar="NAME"),
    )
    source: str = field(
        default="conversation", metadata=argument("Where it comes from.", metavar="NAME")
    )
    summary: str | None = field(
        default=None, metadata=argument("The same in short.", metavar="TEXT")
    )
    tags: tuple[str, ...] | None = field(
        default=None, metadata=argument("Words to find it by later.", metavar="A,B")
    )
    decay_class: str | None = field(
        default=None,
        metadata=argument(
            "How long it lives; leave it out, and its words tell it.",
            metavar="CLASS",
            names={"cli": "class"},
        ),
    )
    confidence: float = field(default=1.0, metadata=argument("0 to 1.", least=0, most=1))
    importance: float = field(default=0.7, metadata=argument("0 to 1.", least=0, most=1))
    source_date: int | None = field(
        default=None,
        metadata=argument(
            "When it was said, if not now (epoch seconds).", metavar="SECONDS", **MOMENT
        ),
    )
    expires_at: int | None = field(
        default=None,
        metadata=argument(
            "When it expires, whatever its class (epoch seconds).", metavar="SECONDS", **MOMENT
        ),
    )
    supersedes: str | None = field(
        default=None,
        metadata=argument("Id of the fact whose place this one takes.", metavar="ID", least=1),
    )

    def check(self) -> None:
        """Raise Invalid that names every bad field."""
        errors = []
        if not self.text.strip():
            errors.append(FieldError("text", "a fact without any text says nothing"))
        for name, share in (("confidence", self.confidence), ("importance", self.importance)):
            if not 0 <= share <= 1:  # NaN neither
                errors.append(FieldError(name, f"{name} must be a number between 0 and 1"))
        for name, moment in (("expires_at", self.expires_at), ("source_date", self.source_date)):
            if moment is not None and moment > MILLISECONDS:
                errors.append(FieldError(name, f"{name} is too large for seconds since 1970"))
        if errors:
            raise Invalid(
                "; ".join(one.message for one in errors),
                hint='say what is to be remembered, as in "Ada likes tea", and how sure that is',
                errors=tuple(errors),
            )

    def row(self, classes: Classes, classifier: Classifier, now: int) -> dict[str, Any]:
        """The columns of its row; raises Invalid."""
        self.check()
        texts = ("text", "entity", "key", "value", "category", "source", "summary")
        row: dict[str, Any] = {}
        for name in texts:
            said = getattr(self, name)
            row[name] = None if said is None else storable(said)
        name = self.decay_class or classifier.classify(row["entity"], row["key"], row["text"])
        expiry = classes.expiry(classes.check(name), now)
        return {
            **row,
            "id": str(uuid.uuid4()),
            "tags": _tags(self.tags or ()),
            "decay_class": name,
            "confidence": float(self.confidence),
            "importance": float(self.importance),
            "created_at": now,
            "last_confirmed_at": now,
            "expires_at": expiry if self.expires_at is None else self.expires_at,
            "source_date": self.source_date,
            "valid_from": now if self.source_date is None else self.source_date,
            "supersedes_id": self.supersedes,
            "normalized_hash": normalized_hash(row["text"]),
        }


def _tags(tags: tuple[str, ...]) -> str | None:
    listed = [storable(tag).strip().lower() for tag in tags]
    return ",".join(dict.fromkeys(tag for tag in listed if tag)) or None


# --- checkpoints ---

_CHECKPOINT_IMPORTANCE = 0.9
_VALUE_LENGTH = 100  # characters of its intent, which is the value of the fact


def checkpoint(
    intent: str,
    state: str,
    expected_outcome: str | None,
    working_files: Sequence[str] | None,
    moment: float,
) -> NewFact:
    """The fact that a checkpoint becomes; `moment` in epoch seconds."""
    document: dict[str, Any] = {"intent": intent, "state": state}
    if expected_outcome is not None:
        document["expectedOutcome"] = expected_outcome
    if working_files is not None:
        document["workingFiles"] = list(working_files)
    document["savedAt"] = iso_utc(moment)
    return NewFact(
        json.dumps(document, ensure_ascii=False),
        entity=CHECKPOINT_ENTITY,
        key=f"{CHECKPOINT_KEY}{int(moment * 1000)}",
        value=intent[:_VALUE_LENGTH],
        importance=_CHECKPOINT_IMPORTANCE,
        decay_class="checkpoint",
    )


def newest_checkpoint(db: Database, now: int) -> dict[str, Any] | None:
    """The last checkpoint that has not expired; of several in one second, the last one saved."""
    row = db.one(
        f"SELECT {SHOWN} FROM facts WHERE {IS_CHECKPOINT}"  # noqa: S608 - our own words
        " AND (expires_at IS NULL OR expires_at > ?)"
        " ORDER BY created_at DESC,"
        f" CAST(substr(key, {len(CHECKPOINT_KEY) + 1}) AS INTEGER) DESC, rowid DESC",
        (now,),
    )
    if row is None:
        return None
    fact = Fact.of(row)
    return {"id": fact.id, **_document(fact.text), "expires_at": fact.expires_at}


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    # Somebody else's hand may have written it: then it is shown as it is.
    return document if isinstance(document, dict) else {"text": text}


# --- finding it anew, after the rules changed or for facts that are older than decay ---

# Rows that are as they were when they were read; what began to fade begins anew by its new times.
_UPDATE = f"""UPDATE facts SET decay_class = :class, expires_at = :expires_at,
    confidence = {BASE}, bsd_base_confidence = NULL
    WHERE rowid = :rowid AND text IS :text AND superseded_at IS NULL
    AND last_confirmed_at IS :last_confirmed_at"""  # noqa: S608 - our own words


def backfill(db: Database, classifier: Classifier, classes: Classes) -> dict[str, int]:
    """Classify all facts but superseded ones and saved checkpoints.

    Expiry counts from the last confirmation, else from creation. Returns how many facts of each
    class have another class or expiry than before.
    """
    changed: Counter[str] = Counter()
    for rows in _batches(db):
        changes = [new for row in rows if (new := _judged(row, classifier, classes))]
        if changes:
            with db.change():
                for new in changes:
                    changed[str(new["class"])] += db.run(_UPDATE, new)
    return dict(sorted(item for item in changed.items() if item[1]))


def _batches(db: Database) -> Iterator[list[Row]]:
    last = -(1 << 63)
    while rows := db.all(
        "SELECT rowid, entity, key, text, created_at, decay_class,"  # noqa: S608 - our own words
        " expires_at, last_confirmed_at FROM facts WHERE rowid > ? AND superseded_at IS NULL"
        f" AND NOT COALESCE({IS_CHECKPOINT}, 0) ORDER BY rowid LIMIT {_BATCH}",
        (last,),
    ):
        yield rows
        last = rows[-1]["rowid"]


def _judged(row: Row, classifier: Classifier, classes: Classes) -> dict[str, object] | None:
    """What is to be changed about a fact, if anything is."""
    entity, key, text = (text_of(row[name]) for name in ("entity", "key", "text"))
    name = classifier.classify(entity, key, text or "")
    confirmed = row["last_confirmed_at"]
    since = whole_number(row["created_at"] if confirmed is None else confirmed)
    if since is None:
        return None  # nobody knows how old it is
    expires_at = classes.expiry(name, since)
    if (name, expires_at) == (row["decay_class"], row["expires_at"]):
        return None
    return {
        "rowid": row["rowid"],
        "text": row["text"],
        "last_confirmed_at": confirmed,
        "class": name,
        "expires_at": expires_at,
    }
