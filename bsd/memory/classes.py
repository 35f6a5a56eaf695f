"""Decay classes: their lifetimes, and the rules that find a fact's class from its words.

SPEC §10 defines the order of the rules. As in the plugin, words match anywhere in a key: `username`
contains `name`. Phrases match only whole words in a text, with single spaces: `undecided` does not
match `decided`.
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
    """The classes of the seed and the settings. Lifetimes are seconds; None means for ever.

    Attributes:
        lifetimes: the lifetime of each class.
        refreshed: the classes whose facts a recall renews.
    """

    lifetimes: Mapping[str, int | None] = field(default_factory=lambda: dict(LIFETIMES))
    refreshed: frozenset[str] = frozenset(REFRESHED)

    def check(self, name: str) -> str:
        """Return `name` if that is a class; raises Invalid."""
        if name not in self.lifetimes:
            raise Invalid(
                f"there is no decay class {name!r}{meant(name, self.lifetimes)}",
                hint=f"one of {', '.join(self.lifetimes)}; [memory.ttl] in bsd.toml adds others",
            )
        return name

    def expiry(self, name: str, moment: int) -> int | None:
        """Return when a fact of this class expires if it is confirmed at `moment`.

        Both times are epoch seconds; None: never.
        """
        lifetime = self.lifetimes[name]
        return None if lifetime is None else moment + lifetime

    def renewed(self, fact: Fact, moment: int) -> int | None:
        """Return when an existing fact expires if it is confirmed at `moment` (epoch seconds).

        A fact whose class is no longer known gets its former lifetime again.
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


# Words in the user's settings: keys, texts and entities.
WordLists = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A fact belongs to the class if any condition matches.

    All words except `entities` are in lower case and match any case.

    Attributes:
        keys: words; the fact's key contains any of them.
        texts: phrases; the text contains any of them as whole words.
        entities: names; the entity equals any of them, case-sensitive.
        entity_as_key: the entity contains any of `keys`.
        mentions: words; the text contains any of them, even inside a word.
    """

    decay_class: str
    keys: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    entity_as_key: bool = False
    mentions: tuple[str, ...] = ()


# The first matching rule decides. If no rule matches, the class is `stable`.
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
    """Finds the class of a fact by ordered rules."""

    def __init__(self, rules: Sequence[Rule] = RULES) -> None:
        self._rules = [(rule, _phrases(rule.texts)) for rule in rules]

    def classify(self, entity: str | None, key: str | None, text: str) -> str:
        """Return the class of the first rule that matches, or the default class."""
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
    """Return the rules, extended with the words of these languages and of the user.

    The user's rules for classes outside of `RULES` come first.

    Args:
        languages: keys of `TRANSLATIONS`.
        words: the user's words by class.
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
