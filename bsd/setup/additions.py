"""An addition to the content of a file: check for it, add it, remove it.

The content is a text, or None if the file does not exist. `switch` reads and writes the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bsd.core.errors import Conflict, NotFound
from bsd.core.layout import Layout
from bsd.core.locations import expand, home
from bsd.setup import json_text, toml_text
from bsd.setup.json_text import AddedJson, NotEditable
from bsd.setup.record import Added, AddedFile
from bsd.setup.toml_text import AddedToml
from bsd.transcripts.agents.setup_files import (
    Addition,
    AgentSetup,
    JsonElement,
    JsonMember,
    SetupCommands,
    SetupPart,
    TomlKey,
    TomlTable,
    WholeFile,
)

_Value = JsonMember | JsonElement | TomlTable | TomlKey

_SKILLS = Path(__file__).with_name("skills")
_THERE = "it already exists"
_CHANGED = "it was changed since bsd added it"


@dataclass(frozen=True, slots=True)
class SetupContext:
    """The environment and the commands for the set-up of agents' programs.

    Attributes:
        layout: the layout of the root, which may not exist yet.
        settings_file: bsd.toml, which may not exist yet.
    """

    layout: Layout
    settings_file: Path
    environ: Mapping[str, str]
    commands: SetupCommands


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of `put`.

    Attributes:
        content: the new content of the file.
        added: bsd's addition, new or from before; None if bsd has added no content.
        kept: the reason if the content was left unchanged.
    """

    content: str | None
    added: Added | None
    kept: str | None = None


def source_addition(context: SetupContext, agent: str, setup: AgentSetup) -> TomlTable:
    """Return the `[[sources]]` table of an agent; raises NotFound if it has no sessions here."""
    directory = setup.directory(context.environ)
    if not directory.is_dir():
        raise NotFound(
            f"{setup.title} has no sessions here: there is no directory {directory}",
            hint=f"run {setup.title} once; if it uses another directory, set the same environment"
            " variable as for the program itself",
        )
    value = {"kind": agent, "path": _with_tilde(directory, context.environ)}
    return TomlTable(SetupPart.SOURCE, context.settings_file, ("sources",), value, in_array=True)


def root_addition(context: SetupContext) -> TomlKey:
    """Return the key `root` of bsd.toml."""
    root = _with_tilde(context.layout.root, context.environ)
    return TomlKey(SetupPart.ROOT, context.settings_file, ("root",), root, after="# root = ")


def sources_in(content: str | None, kind: str) -> list[dict[str, Any]]:
    """Return the `[[sources]]` of a kind in a settings file; raises NotEditable."""
    found = toml_text.parse(content or "").get("sources", [])
    tables = (each for each in found if isinstance(each, dict)) if isinstance(found, list) else ()
    return [each for each in tables if each.get("kind") == kind]


def _with_tilde(path: Path, environ: Mapping[str, str]) -> str:
    """Write a path with `~` for the home directory."""
    own = home(environ)
    return f"~/{path.relative_to(own)}" if path.is_relative_to(own) else str(path)


def put(
    content: str | None, addition: Addition, earlier: Added | None, environ: Mapping[str, str]
) -> Outcome:
    """Make an addition to a file, unless it exists.

    Args:
        earlier: bsd's earlier addition in this place; replaced if it is outdated and still exactly
            as bsd wrote it.

    Raises:
        NotEditable: the file cannot be edited safely.
    """
    match addition:
        case WholeFile():
            return _put_file(content, addition, earlier)
        case TomlTable(in_array=True):
            return _put_source(content, addition, earlier, environ)
        case _:
            return _put_value(content, addition, earlier)


def _put_file(content: str | None, addition: WholeFile, earlier: Added | None) -> Outcome:
    wanted = skill_text(addition)
    is_ours = isinstance(earlier, AddedFile) and content is not None
    is_ours = is_ours and earlier == AddedFile(digest_of(content or ""))
    if content is None or is_ours:
        return Outcome(wanted, AddedFile(digest_of(wanted)))
    if earlier is not None:
        return Outcome(content, earlier, _CHANGED)
    return Outcome(content, None, _THERE)


def _put_source(
    content: str | None, addition: TomlTable, earlier: Added | None, environ: Mapping[str, str]
) -> Outcome:
    text = content or ""
    directory = expand(addition.value["path"], environ)
    for source in sources_in(text, addition.value["kind"]):
        path = source.get("path")
        if isinstance(path, str) and expand(path, environ) == directory:
            return Outcome(content, earlier, None if earlier else _THERE)
        if source.get("name") is None:
            raise Conflict(
                f"bsd.toml already has a source of this kind with another directory: {path}",
                hint="give that source a `name` in bsd.toml, or remove it there",
            )
    text, added = toml_text.add(text, addition.path, addition.value, in_array=True)
    return Outcome(text, added)


def _put_value(content: str | None, addition: _Value, earlier: Added | None) -> Outcome:
    text = content or ""
    now = _present(text, addition)
    if now is not json_text.ABSENT:
        if not isinstance(earlier, AddedJson | AddedToml):
            return Outcome(content, None, _THERE)
        if now != earlier.value:
            return Outcome(content, earlier, _CHANGED)
        if now == addition.value:
            return Outcome(content, earlier)
        text = take_away(text, earlier) or ""
    match addition:
        case TomlTable():
            return Outcome(*toml_text.add(text, addition.path, addition.value))
        case TomlKey():
            path, value = addition.path, addition.value
            return Outcome(*toml_text.add(text, path, value, after=addition.after))
        case JsonMember(why_not=why_not) if why_not is not None:
            if (why := why_not(json_text.parse(text))) is not None:
                raise NotEditable(why)
    is_element = isinstance(addition, JsonElement)
    text, added = json_text.add(text, addition.path, addition.value, is_element=is_element)
    if isinstance(earlier, AddedJson) and earlier.made > added.made:
        # Objects made for the earlier addition still exist because of another addition.
        added = replace(added, made=earlier.made, inner=earlier.inner)
    return Outcome(text, replace(added, mark=getattr(addition, "mark", "")))


def _present(text: str, addition: _Value) -> Any:
    """Return the present value in the place of an addition, else `json_text.ABSENT`."""
    if isinstance(addition, TomlTable | TomlKey):
        return json_text.member(toml_text.parse(text), addition.path)
    document = json_text.parse(text)
    if isinstance(addition, JsonMember):
        return json_text.member(document, addition.path)
    found = json_text.elements(document, addition.path)
    marked = (one for one in found if json_text.has_mark(one, addition.mark))
    return next(marked, json_text.ABSENT)


def is_there(content: str | None, addition: Addition) -> bool:
    """Return True if the file has the addition, by bsd or by hand; raises NotEditable."""
    if content is None:
        return False
    if isinstance(addition, WholeFile):
        return True
    if isinstance(addition, TomlTable) and addition.in_array:
        return bool(sources_in(content, addition.value["kind"]))
    return _present(content, addition) is not json_text.ABSENT


def take_away(content: str | None, added: Added, *, force: bool = False) -> str | None:
    """Return the content without an addition; None if the file is to be deleted or is missing.

    If the addition no longer exists, the content is returned unchanged.

    Args:
        force: also remove an addition that was changed since.

    Raises:
        NotEditable: the file cannot be edited safely, or the addition was changed since.
    """
    if content is None:
        return None
    match added:
        case AddedFile():
            if not force and digest_of(content) != added.digest:
                raise NotEditable(_CHANGED, hint=json_text.CHANGED_HINT)
            return None
        case AddedToml():
            text = toml_text.take_away(content, added, force=force)
        case AddedJson():
            text = json_text.take_away(content, added, force=force)
    return content if text is None else text


def is_blank(content: str, added: Added) -> bool:
    """Return True if a file is empty after the removal of an addition."""
    if isinstance(added, AddedToml):
        return not content.strip()
    return isinstance(added, AddedJson) and json_text.parse(content) == {}


def digest_of(content: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def skill_text(addition: WholeFile) -> str:
    """Return the content of a file that bsd adds."""
    return (_SKILLS / addition.content).read_bytes().decode()
