"""The verbs of the libraries: every door tells of each what it does, and nothing else."""

from __future__ import annotations

from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest

from bsd.actions.models import answer_model
from bsd.core.answers import as_json
from bsd.core.definition import LibraryVerb, Unsaid, told_fields
from bsd.memory import verbs as memory
from bsd.workspaces import verbs as workspaces
from bsd.workspaces.listing import Workspace
from bsd.workspaces.prune import Rules
from bsd.workspaces.record import SessionMetadata

Verb = LibraryVerb[Any, Any, Any]
VERBS: list[Verb] = [*memory.VERBS, *workspaces.VERBS]
every_verb = pytest.mark.parametrize(
    "verb", VERBS, ids=[f"{one.route.path}-{one.name}" for one in VERBS if one.route]
)


def members(kind: Any, *, may_lack: bool = False) -> dict[str, bool]:
    """What stands in an answer, and whether it always does."""
    found: dict[str, bool] = {}
    hints = get_type_hints(kind)
    for one, said in told_fields(kind):
        parts = get_args(hints[one.name]) or (hints[one.name],)
        if said.inline:
            inner = next(part for part in parts if part is not NoneType)
            within = members(inner, may_lack=may_lack or NoneType in parts)
            found |= {name: always for name, always in within.items() if name not in found}
        else:
            found[said.name or one.name] = not (said.omit or may_lack or Unsaid in parts)
    return found


@every_verb
def test_a_get_changes_nothing(verb: Verb) -> None:
    assert verb.route is not None
    assert verb.changes == (verb.route.method != "GET")


def test_who_only_says_what_would_be_done_changes_nothing() -> None:
    assert memory.PRUNE.will_change(memory.PruneFacts())
    assert not memory.PRUNE.will_change(memory.PruneFacts(dry_run=True))
    assert memory.RECALL.will_change(memory.RecallFacts("tea"))
    assert not memory.RECALL.will_change(memory.RecallFacts("tea", refresh=False))
    assert not memory.SEARCH.will_change(memory.SearchFacts("tea"))


def test_what_is_left_out_is_as_set_and_null_counts_for_nothing() -> None:
    settings = Rules(24.0, 10, 1000)
    assert workspaces.PruneWorkspaces().rules(settings) == settings
    asked = workspaces.PruneWorkspaces(older_than_hours=None, max_count=3)
    assert asked.rules(settings) == Rules(None, 3, 1000)


def test_members_of_an_answer_within_another_stand_among_its_own() -> None:
    known = SessionMetadata.new("a", 0.0)
    without = Workspace("a", None, None, "missing_metadata", "there is none")
    assert list(as_json(Workspace("a", known, 1.0))) == list(members(Workspace))
    required = answer_model(Workspace).model_json_schema()["required"]
    assert (
        list(as_json(without))
        == required
        == ["session_id", "age_hours", "reason", "detail", "bytes"]
    )
