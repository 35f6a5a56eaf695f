"""The file `<root>/.brainsurgeon/config.json`: creation, upgrade, validation, reload on change."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import structlog

from bsd.core import exclude
from bsd.core.audit import AuditLog
from bsd.core.config import (
    NOTED,
    SETTINGS,
    PruningConfig,
    canonical,
    summary,
    unknown_field,
)
from bsd.core.errors import (
    BsdError,
    ConfigError,
    FieldError,
    Forbidden,
    Invalid,
    NotFound,
    os_problem,
)
from bsd.core.file_lock import file_locked
from bsd.core.files import LARGEST_NOTE, read_plain, write_private
from bsd.core.formatting import iso_utc
from bsd.core.layout import inside

log = structlog.stdlib.get_logger(module="config")


_Stamp = tuple[int, int, int]  # inode, size, mtime in ns
# The state of a ConfigService for another process: settings, stamp of the file, its problem.
Known = tuple[PruningConfig, _Stamp | None, ConfigError | None]
_NOT_READ: _Stamp = (-1, -1, -1)  # differs from every file's stamp, so the next access reads


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of the file: known fields as written, and unknown keys."""

    fields: Mapping[str, object]
    others: Mapping[str, object]

    @property
    def missing(self) -> list[str]:
        return [name for name in SETTINGS if name not in self.fields]


class ConfigService:
    """The runtime settings of a root, shared by all processes that work on it.

    With `create=False`, a missing or old file is read but not written (dry runs).
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self._path = path
        self._create = create
        self._config: PruningConfig | None = None
        self._seen: _Stamp | None = _NOT_READ
        self._problem: ConfigError | None = None
        self._warned: set[str] = set()
        self._mutex = threading.RLock()

    @property
    def path(self) -> Path:
        return self._path

    @property
    def problem(self) -> ConfigError | None:
        """The reason why the file is not in force; None unless it is broken since the last read."""
        return self._problem

    @property
    def current(self) -> PruningConfig:
        """The settings in force; costs one stat if the file is unchanged.

        Raises ConfigError if the file is broken and this process has read no valid file before.
        """
        with self._mutex:
            stamp = self._stamp()
            if self._config is None or stamp != self._seen:
                self._load(stamp)
            return self._config or PruningConfig()

    def known(self) -> Known:
        """Return the settings for `adopt` in another process; raises as `current`."""
        with self._mutex:
            return self.current, self._seen, self._problem

    def adopt(self, known: Known) -> None:
        """Use the settings of another process, until the file changes."""
        with self._mutex:
            self._config, self._seen, self._problem = known
            exclude.adopt(self._path, known[1], known[0].exclude)

    def update(self, changes: Mapping[str, object], *, actor: str = "cli") -> PruningConfig:
        """Validate and write `changes` (JSON values by field); in force when this returns.

        `last_*` fields are ignored.

        Raises:
            Invalid: with a FieldError per bad field.
            ConfigError: the file is broken in a field that `changes` does not replace.
            Busy, Forbidden, Unavailable: the file cannot be locked or written.
        """
        wanted = canonical({k: v for k, v in changes.items() if k not in NOTED})
        with self._locked():
            content = self._read() or self._from_memory()
            config = self._merged(content, wanted)
            before = dict(content.fields)
            self._write(config, content.others)
        changed = [name for name in wanted if before.get(name) != config.as_json()[name]]
        if changed:
            log.info("Config changed", actor=actor, fields=changed)
            self._audit(actor, {name: config.as_json()[name] for name in changed}, before)
        return config

    def _audit(
        self, actor: str, changed: Mapping[str, object], before: Mapping[str, object]
    ) -> None:
        AuditLog(self._path.with_name("audit.jsonl")).record(
            actor=actor,
            action="config",
            changed=changed,
            before={name: before.get(name) for name in changed},
        )

    def note_run(self, field: str, when: float | datetime) -> None:
        """Write `last_run_at` or `last_retention_run_at`; the rest of the file stays the same.

        A broken file is not changed. Raises Busy, Forbidden, Unavailable.
        """
        if field not in NOTED:
            raise ValueError(f"{field} is not the time of a run")
        with self._locked():
            try:
                content = self._read() or self._from_memory()
                config = PruningConfig.from_json({**content.fields, field: iso_utc(when)})
            except (ConfigError, Invalid) as problem:
                log.warning("The run time cannot be recorded", field=field, problem=str(problem))
                return
            self._write(config, content.others)

    # --- reading --------------------------------------------------------------------------------

    def _load(self, stamp: _Stamp | None) -> None:
        """Use the content of the file; if it is broken, keep the last valid settings."""
        self._seen = stamp
        try:
            content = self._read()
            if content is None:
                self._file_is_missing()
                return
            config = self._checked(content)
        except ConfigError as problem:
            if self._config is None:
                raise
            self._keep_last_good(problem)
            return
        self._say_what_is_unknown(content.others)
        log.debug("Config is read", path=str(self._path), changed=config != self._config)
        if self._config is not None and (self._problem or config != self._config):
            log.info("Config changed", actor="file", fields=_differences(self._config, config))
        self._config, self._problem = config, None
        if content.missing and self._create:
            self._upgrade()

    def _file_is_missing(self) -> None:
        if self._config is not None:
            what = f"{self._path} was removed; the settings in force stay"
            self._keep_last_good(ConfigError(what, hint="the next change of a setting writes it"))
            return
        self._config = PruningConfig()
        if self._create:
            self._try_to_write("Config could not be created", self._create_with_defaults)

    def _create_with_defaults(self) -> None:
        with self._locked():
            if self._stamp() is None:
                self._write(PruningConfig(), {})
                log.info("Config created with defaults", path=str(self._path))
            else:  # another bsd has just created it
                self._load(self._stamp())

    def _upgrade(self) -> None:
        """Add the defaults of fields that are newer than the file."""

        def add() -> None:
            with self._locked():
                content = self._read()
                if content is None or not content.missing:
                    return
                config = self._checked(content)
                self._write(config, content.others)
            values = config.as_json()
            for name in content.missing:
                default = json.dumps(values[name])
                log.info(f"Config upgraded: added field {name} with default {default}")  # noqa: G004

        self._try_to_write("Config could not be upgraded", add)

    def _try_to_write(self, failure: str, write: Callable[[], None]) -> None:
        """Call `write` and log a failure: reading must work in a read-only root."""
        try:
            write()
        except BsdError as problem:
            log.warning(failure, path=str(self._path), problem=str(problem))

    def _keep_last_good(self, problem: ConfigError) -> None:
        self._problem = problem
        log.error("Config is broken; the last valid settings stay in force", problem=str(problem))

    def _say_what_is_unknown(self, others: Mapping[str, object]) -> None:
        for name in others:
            if name not in self._warned:
                self._warned.add(name)
                log.warning(
                    "An unknown setting has no effect",
                    path=str(self._path),
                    problem=unknown_field(name),
                )

    def _stamp(self) -> _Stamp | None:
        try:
            status = os.lstat(self._path)
        except OSError:  # missing or unreadable: _read distinguishes these
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _read(self) -> _Content | None:
        """Parse the file; None if it is missing. Raises ConfigError."""
        try:
            self._refuse_outside()
            text = read_plain(self._path, LARGEST_NOTE).decode("utf-8-sig")
            values = json.loads(text, parse_constant=_not_json)
        except FileNotFoundError:
            return None
        except OSError as error:
            problem = os_problem(error, f"reading {self._path}")
            raise ConfigError(problem.message, hint=problem.hint) from error
        except Forbidden as problem:
            raise ConfigError(problem.message, hint=problem.hint) from None
        except (ValueError, RecursionError) as error:
            raise self._broken(f"not valid JSON: {error}") from None
        if not isinstance(values, dict):
            raise self._broken("not a JSON object {…}")
        try:
            values = canonical(values)
        except Invalid as problem:
            raise self._broken(problem.message, problem.errors) from None
        return _Content(
            {name: value for name, value in values.items() if name in SETTINGS},
            {name: value for name, value in values.items() if name not in SETTINGS},
        )

    def _checked(self, content: _Content) -> PruningConfig:
        try:
            return PruningConfig.from_json(content.fields)
        except Invalid as problem:
            raise self._broken(summary(problem.errors), problem.errors) from None

    def _broken(self, what: str, errors: tuple[FieldError, ...] = ()) -> ConfigError:
        # If the user deleted the file, a `retention` of `never` would be lost silently.
        named = ", ".join(dict.fromkeys(error.field for error in errors))
        mend = f"correct {named} in the file" if named else "correct the file"
        anew = f"without the file, `retention` is {PruningConfig().retention} until you set it"
        return ConfigError(f"{self._path}: {what}", hint=f"{mend}; {anew}", errors=errors)

    def _refuse_outside(self) -> None:
        inside(self._path.parent, self._path.parent.parent)

    # --- writing --------------------------------------------------------------------------------

    def _merged(self, content: _Content, wanted: Mapping[str, object]) -> PruningConfig:
        """Validate file and changes together.

        Raises:
            Invalid: a field in `wanted` is bad.
            ConfigError: only other fields, from the file, are bad.
        """
        try:
            return PruningConfig.from_json({**content.fields, **wanted})
        except Invalid as problem:
            ours = tuple(error for error in problem.errors if error.field in wanted)
            if not ours:
                raise self._broken(summary(problem.errors), problem.errors) from None
            raise Invalid(summary(ours), errors=ours) from None

    def _from_memory(self) -> _Content:
        return _Content((self._config or PruningConfig()).as_json(), {})

    def _write(self, config: PruningConfig, others: Mapping[str, object]) -> None:
        try:
            write_private(self._path, _text({**config.as_json(), **others}).encode())
        except OSError as error:
            raise os_problem(error, f"writing {self._path}") from error
        self._config, self._problem = config, None
        self._seen = _NOT_READ  # another process may have written since: read again

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude other writers: threads with the mutex, other processes with a lock file."""
        root = self._path.parent.parent
        try:
            there = root.is_dir()
        except OSError as error:
            raise os_problem(error, f"looking at {root}") from error
        if not there:  # most likely mistyped, so it is not created
            hint = "name the OpenClaw directory with --root or OPENCLAW_ROOT"
            raise NotFound(f"there is no directory {root}", hint=hint)
        self._refuse_outside()
        with self._mutex, file_locked(self._path):
            yield


def default_text() -> str:
    """Return the content of a new config.json."""
    return _text(PruningConfig().as_json())


def _text(values: Mapping[str, object]) -> str:
    return json.dumps(values, indent=2) + "\n"


def _differences(before: PruningConfig, after: PruningConfig) -> list[str]:
    return [name for name in SETTINGS if getattr(before, name) != getattr(after, name)]


def _not_json(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")
