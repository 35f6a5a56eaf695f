"""Decay classes: their lifetimes, and the rules that find a fact's class by its words.

The order of the rules is in SPEC §10. Words in keys are looked for anywhere, as the plugin does:
`username` holds `name`. Phrases in texts must stand there as whole words, with single spaces:
`undecided` is not `decided`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bsd.core.errors import Invalid
from bsd.core.formatting import LIFETIMES, REFRESHED, meant
from bsd.memory.facts import Fact
from bsd.memory.schema import MILLISECONDS

DEFAULT_CLASS = "stable"


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
        """Return when a fact of this class that was confirmed at `moment` expires."""
        lifetime = self.lifetimes[name]
        return None if lifetime is None else moment + lifetime

    def renewed(self, fact: Fact, moment: int) -> int | None:
        """Return when a fact expires that is confirmed at `moment` (epoch seconds).

        A fact of a class that is no longer known lives as long again as it did.
        """
        if fact.decay_class in self.lifetimes:
            return self.expiry(fact.decay_class, moment)
        if fact.expires_at is None or fact.last_confirmed_at is None:
            return fact.expires_at
        lifetime = fact.expires_at - fact.last_confirmed_at
        return moment + lifetime if 0 < lifetime < MILLISECONDS else fact.expires_at

    def refreshed_lifetimes(self) -> dict[str, int | None]:
        """Return the lifetimes of the classes that a recall renews."""
        return {name: self.lifetimes[name] for name in self.lifetimes if name in self.refreshed}


# Of the user's settings: keys, texts and entities.
WordLists = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A fact belongs to the class if any of this fits; all but `entities` in lower case."""

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
    """Finds the class of a fact by rules."""

    def __init__(self, rules: Sequence[Rule] = RULES) -> None:
        self._rules = [(rule, _phrases(rule.texts)) for rule in rules]

    def classify(self, entity: str | None, key: str | None, text: str) -> str:
        """Return the class of a fact; the first rule that fits decides."""
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
    """Return the rules with these languages and the user's words, by class.

    The user's rules for other classes than those of `RULES` come first.
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
