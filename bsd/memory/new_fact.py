"""A new fact to be stored: its fields, their checks, and its row in the database."""

import uuid
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from bsd.core.errors import FieldError, Invalid
from bsd.memory.classes import Classes, Classifier
from bsd.memory.database import normalized_hash, storable
from bsd.memory.facts import Moment, Share
from bsd.memory.schema import MILLISECONDS

_TEXTS = ("text", "entity", "key", "value", "category", "source", "summary")


@dataclass(frozen=True, slots=True)
class NewFact:
    """A fact to be stored. Without `decay_class`, its words determine the class."""

    text: Annotated[str, Field(description="The fact, as one sentence.")]
    entity: Annotated[str | None, Field(description="The person or thing it is about.")] = None
    key: Annotated[str | None, Field(description="The property of the entity.")] = None
    value: Annotated[str | None, Field(description="The value of that property.")] = None
    category: Annotated[
        str, Field(description="For example preference, fact, decision, entity.")
    ] = "other"
    source: Annotated[str, Field(description="Where it comes from.")] = "conversation"
    summary: Annotated[str | None, Field(description="A short form of the fact.")] = None
    tags: Annotated[tuple[str, ...] | None, Field(description="Words to find it by later.")] = None
    decay_class: Annotated[
        str | None, Field(description="Its lifetime; by default its words determine the class.")
    ] = None
    confidence: Share = 1.0
    importance: Share = 0.7
    source_date: Annotated[
        Moment | None, Field(description="When it was said, if not now (epoch seconds).")
    ] = None
    expires_at: Annotated[
        Moment | None, Field(description="When it expires, overriding its class (epoch seconds).")
    ] = None
    supersedes: Annotated[
        str | None, Field(description="Id of the fact that it replaces.", min_length=1)
    ] = None

    def check(self) -> None:
        """Raise Invalid with all invalid fields, if there are any."""
        errors = []
        if not self.text.strip():
            errors.append(FieldError("text", "a fact needs a text"))
        for name, share in (("confidence", self.confidence), ("importance", self.importance)):
            if not 0 <= share <= 1:  # also true for NaN
                errors.append(FieldError(name, f"{name} must be a number between 0 and 1"))
        for name, moment in (("expires_at", self.expires_at), ("source_date", self.source_date)):
            if moment is not None and moment > MILLISECONDS:
                errors.append(FieldError(name, f"{name} is too large for seconds since 1970"))
        if errors:
            raise Invalid(
                "; ".join(error.message for error in errors),
                hint='give a sentence such as "Ada likes tea", with numbers from 0 to 1',
                errors=tuple(errors),
            )

    def row(self, classes: Classes, classifier: Classifier, now: int) -> dict[str, Any]:
        """Return the columns of the fact's row; raises Invalid. `now`: epoch seconds."""
        self.check()
        texts = {name: getattr(self, name) for name in _TEXTS}
        row: dict[str, Any] = {
            name: None if text is None else storable(text) for name, text in texts.items()
        }
        name = self.decay_class or classifier.classify(row["entity"], row["key"], row["text"])
        expiry = classes.expiry(classes.check(name), now)
        tags = [storable(tag).strip().lower() for tag in self.tags or ()]
        return {
            **row,
            "id": str(uuid.uuid4()),
            "tags": ",".join(dict.fromkeys(tag for tag in tags if tag)) or None,
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
