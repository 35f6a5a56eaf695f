"""export_session: write a session into one file, as HTML or Markdown for reading, or as JSON lines.

The file contains the extracted values in their places. The sessions of sub-agents follow. With
`redact`, each secret that the rules find is replaced everywhere in the file. An export changes no
session and no file of bsd.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.actions.export_entries import ExportedEntry, ExportedPart
from bsd.actions.export_html import html_pieces
from bsd.actions.export_markdown import markdown_pieces
from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.errors import BsdError, Conflict, LeftAlone, NotFound, os_problem
from bsd.core.files import create_private
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog
from bsd.maintenance.deleted_sessions import (
    deleted_parts,
    find_deleted,
    open_or_snapshot,
    parent_of,
)
from bsd.maintenance.lineage import OpenBeginning, open_beginnings
from bsd.maintenance.secret_patterns import Secret, secrets_in
from bsd.maintenance.titles import ends_in
from bsd.planning.redact_text import SecretText
from bsd.planning.restore import restored_lines
from bsd.sessions.session import format_of
from bsd.store.originals import SessionStore
from bsd.store.snapshot_parts import SnapshotReader
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.reader import InBlocks, parse_entry
from bsd.transcripts.spans import SpliceError
from bsd.transcripts.splice import edit, encode_string

_OTHER_FILE = "name another file: -o FILE"


class ExportFormat(StrEnum):
    """The format of an exported file; the value is also the file name's extension."""

    HTML = "html"
    MARKDOWN = "md"
    JSONL = "jsonl"


@dataclass(frozen=True, slots=True)
class RedactedText:
    """A secret in the exported sessions. The answer does not contain the secret itself."""

    hash: str
    rule: str
    masked: str
    count: Annotated[int, Field(description="Number of lines that contain it")]


@dataclass(frozen=True, slots=True)
class Exported:
    """The exported file; with `dry_run`, the file that an export would write."""

    session: str
    format: ExportFormat
    file: Annotated[str | None, Field(description="Path of the file; null with `dry_run`")]
    sessions: Annotated[
        tuple[str, ...], Field(description="The session and those of its sub-agents")
    ]
    entries: int
    bytes: Annotated[int, Field(description="Size of the file; 0 with `dry_run`")]
    redact: bool
    secrets: Annotated[
        tuple[RedactedText, ...],
        Field(description="Secrets in the sessions; the file contains them unless `redact` is set"),
    ]
    unavailable: Annotated[
        int, Field(description="Number of extracted values that cannot be restored any more")
    ]
    problems: Annotated[
        tuple[str, ...],
        Field(description="Sessions of sub-agents, or in which it begins, that cannot be read"),
        OMIT_EMPTY,
    ] = ()
    problem: Internal[BsdError | None] = None


def export_session(
    context: ActionContext,
    session: SessionName,
    format: ExportFormat,
    file: Path | None = None,
    *,
    redact: bool = False,
    dry_run: bool = False,
) -> Exported:
    """Write a session and those of its sub-agents into one file.

    The session may be in its place, or deleted by its program.

    Args:
        session: the name of the session; for a deleted session also its id in the archive.
        file: a path that must not exist; only its owner may read the file. None: a `dry_run`.
        redact: replace each secret by `[redacted-RULE]`.
        dry_run: return the answer, with the secrets in the sessions, and write no file.

    Raises:
        NotFound: there is no such session.
        LeftAlone: the session is excluded, or bsd does not know the format of its lines.
        Conflict: the file exists.
    """
    layout = context.layout
    layout.refuse_excluded(session)
    if file is not None and os.path.lexists(file) and not dry_run:
        raise Conflict(f"{file} exists already", hint=_OTHER_FILE)
    export = _Export(context, format)
    with ExitStack() as opened:
        export.open(session, opened)
        for part in _parts_of(layout, session):
            try:
                export.open(part, opened)
            except (BsdError, OSError) as error:
                why = os_problem(error, f"reading {part}").message
                export.problems.append(f"{part}: {why}")
        writes = file is not None and not dry_run
        export.passes = 2 if writes else 1
        export.find_secrets()
        written = export.write(file, redact=redact) if file is not None and writes else 0
        return export.answer(session, None if dry_run else file, written, redact=redact)


def _parts_of(layout: Layout, name: SessionName) -> Iterator[SessionName]:
    """Yield the sessions that are parts of a session, or that it started."""
    with suppress(BsdError):
        yield from (member.name for member in catalog.family(layout, name)[1:])
    with suppress(BsdError):
        yield from (copy.name for copy in deleted_parts(layout, name))
    for agent in catalog.all_agents(layout):
        is_near = agent.startswith(name.agent) and agent != name.agent
        if is_near and parent_of(layout, program_of(layout, agent)) == str(name):
            yield from sorted(catalog.names(layout, agent))


def _opened(layout: Layout, name: SessionName) -> tuple[SessionName, InBlocks]:
    """Open a session, or its copy in the archive; return its name and the open source."""
    try:
        return name, open_or_snapshot(layout, name)
    except NotFound:
        with suppress(NotFound):
            copy = find_deleted(layout, str(name))
            return copy.name, SnapshotReader(copy)
        raise


class _Export:
    """One export: the sessions, open, and the secrets in them."""

    def __init__(self, context: ActionContext, format: ExportFormat) -> None:
        self._context = context
        self._format = format
        self._sources: list[tuple[SessionName, InBlocks]] = []
        # By session: the files of other sessions in which it begins.
        self._begins_in: dict[SessionName, list[tuple[SessionName, OpenBeginning]]] = {}
        self._secrets: dict[str, Secret] = {}
        self._count: Counter[str] = Counter()
        self._entries = self._unavailable = 0
        self.problems: list[str] = []
        self.passes = 1  # number of times that the sessions are read, for the progress
        self._read = 0  # bytes

    def open(self, name: SessionName, opened: ExitStack) -> None:
        """Open a session; raises NotFound, LeftAlone."""
        name, source = _opened(self._context.layout, name)
        opened.enter_context(source)
        if format_of(source, program_of(self._context.layout, name.agent)) is None:
            raise LeftAlone(
                f"{name} cannot be exported: bsd does not know the format of its lines",
                hint="copy its file instead; bsd has not changed it",
            )
        before, problem = open_beginnings(self._context.layout, name, source, opened)
        self._begins_in[name] = before
        self.problems += [problem] if problem else []
        self._sources.append((name, source))

    def _lines(self, name: SessionName, source: InBlocks) -> Iterator[tuple[bytes, int]]:
        """Yield each line with its values restored, and the number of unavailable values.

        The lines in which the session begins come first.
        """
        for begun, beginning in self._begins_in.get(name, ()):
            yield from self._lines_of(begun, beginning)
        yield from self._lines_of(name, source)

    def _lines_of(self, name: SessionName, source: InBlocks) -> Iterator[tuple[bytes, int]]:
        layout = self._context.layout
        fmt = format_of(source, program_of(layout, name.agent))
        assert fmt is not None  # noqa: S101 - `open` has checked it
        before = (each for files in self._begins_in.values() for _, each in files)
        total = self.passes * sum(
            each.size for each in (*before, *(source for _, source in self._sources))
        )
        for raw, answer in restored_lines(source, fmt, SessionStore(layout, name)):
            yield raw, len(answer.unavailable) if answer else 0
            self._read += len(raw)
            self._context.progress(min(self._read, total), total)

    def find_secrets(self) -> None:
        """Find the secrets in all lines; count the lines with each secret."""
        for name, source in self._sources:
            for raw, missing in self._lines(name, source):
                for secret in secrets_in(raw):
                    self._secrets.setdefault(secret.text, secret)
                    self._count[secret.text] += 1
                self._entries += 1
                self._unavailable += missing

    def write(self, file: Path, *, redact: bool) -> int:
        """Write the file; return its size in bytes. If writing fails, the file is deleted."""
        # The longest first: one secret may contain another.
        secrets = sorted(self._secrets.values(), key=lambda each: -len(each.text))
        texts = [SecretText(each.text, each.replacement) for each in secrets] if redact else []
        try:
            descriptor = create_private(file)
        except FileExistsError as error:  # another process has just made it
            raise Conflict(f"{file} exists already", hint=_OTHER_FILE) from error
        except OSError as error:
            raise os_problem(error, f"writing {file}") from error
        try:
            with open(descriptor, "wb") as stream:
                stream.writelines(self._pieces(texts))
                return stream.tell()
        except BaseException as error:
            file.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise os_problem(error, f"writing {file}") from error
            raise

    def _pieces(self, texts: list[SecretText]) -> Iterator[bytes]:
        if self._format is ExportFormat.JSONL:
            for name, source in self._sources:
                yield from (_without(raw, texts) for raw, _ in self._lines(name, source))
            return
        parts = (self._part(name, source, texts) for name, source in self._sources)
        pieces = html_pieces if self._format is ExportFormat.HTML else markdown_pieces
        for piece in pieces(parts, redacted=len(texts)):
            yield piece.encode("utf-8", "replace")

    def _part(self, name: SessionName, source: InBlocks, texts: list[SecretText]) -> ExportedPart:
        program = program_of(self._context.layout, name.agent)
        fmt = format_of(source, program)
        assert fmt is not None  # noqa: S101 - `open` has checked it
        # Redact before the title is shortened to one line: a shortened secret is not found.
        ends = ends_in(source, program, lambda line: _without(line, texts))
        title = ends.title or str(name)
        for text in texts:
            title = text.replaced(title)

        def entries() -> Iterator[ExportedEntry]:
            for index, (raw, _) in enumerate(self._lines(name, source)):
                if (entry := parse_entry(_without(raw, texts))) is not None:
                    yield ExportedEntry(index, entry, fmt.info(entry), fmt)

        return ExportedPart(str(name), title, entries())

    def answer(
        self, session: SessionName, file: Path | None, size: int, *, redact: bool
    ) -> Exported:
        secrets = sorted(self._secrets.values(), key=lambda each: (each.rule, each.hash))
        return Exported(
            str(session),
            self._format,
            None if file is None else str(file),
            tuple(str(name) for name, _ in self._sources),
            self._entries,
            size,
            redact,
            tuple(
                RedactedText(each.hash, each.rule, each.masked, self._count[each.text])
                for each in secrets
            ),
            self._unavailable,
            tuple(self.problems),
        )


def _without(raw: bytes, texts: list[SecretText]) -> bytes:
    """Return a line without these secrets."""
    for text in texts:
        if not text.may_be_in(raw):
            continue
        entry = parse_entry(raw)
        new = {path: encode_string(text.replaced(each)) for path, each in text.texts(entry)}
        if new:
            with suppress(SpliceError):
                raw = edit(raw, replace=new)
        # For names of members, duplicate members, and lines that are not JSON.
        raw = text.replaced(raw.decode("utf-8", "surrogateescape")).encode(
            "utf-8", "surrogateescape"
        )
    return raw
