"""One call of bsd: the global options, the objects made from them, and the classes of commands."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import structlog

from bsd.cli.output import note, print_json
from bsd.cli.privileges import FileOwner, become, owner_for_root
from bsd.cli.progress import Progress
from bsd.cli.stopping import StopRequest, stop_request
from bsd.core.errors import BsdError, ConfigError, Conflict, Forbidden, Invalid, os_problem
from bsd.core.files import make_private_dir
from bsd.core.layout import Layout, SessionName
from bsd.core.locations import (
    find_root,
    named_root,
    read_settings_file,
    settings_file,
    usual_roots,
)
from bsd.core.logs import BoundLogger, configure_logs

# Help and the tab key wait for the imports above. Most of bsd is imported where it is used.
if TYPE_CHECKING:
    from bsd.actions.context import ActionContext, ProgressCallback
    from bsd.core.config_file import ConfigService
    from bsd.core.settings import Settings

_log: BoundLogger = structlog.get_logger(module="cli")

_R = TypeVar("_R")

_WORTH_A_WORD_SECONDS = 1.0
LONGEST_WAIT = 30.0  # seconds that a call waits for busy sessions, in total (SPEC §2.6)


class NoRoot(ConfigError):
    """The root does not exist, or is not a directory."""


class Call:
    """The global options of one call, and the objects made from them."""

    def __init__(self) -> None:
        self.root: str | None = None
        self.config: str | None = None
        self.json = False
        self.command = "bsd"  # with its subcommands, as in `bsd config set`
        self.log_file: Path | None = None  # None: this call writes no log
        self.stop: StopRequest | None = None  # of the latest context
        self._begun = self._writes = False  # the log is open; it is open for a change

    @cached_property
    def settings(self) -> Settings:
        """The settings fixed at start. Raises ConfigError."""
        return self.load_settings()

    def load_settings(self) -> Settings:
        """Read the settings again; raises ConfigError."""
        from bsd.core.settings import load_settings

        config, root = self.config, self.root
        return load_settings(
            None if config is None else Path(config), None if root is None else Path(root)
        )

    @property
    def settings_file(self) -> Path:
        """The settings file of this call, which need not exist."""
        return settings_file(os.environ) if self.config is None else Path(self.config)

    @cached_property
    def layout(self) -> Layout:
        """The paths below the root.

        The root exists, unless sources are set: then the first call that writes creates it.

        Raises:
            ConfigError: the root does not exist (NoRoot), or the settings are broken.
            Forbidden: the root may not be entered.
        """
        from bsd.transcripts.agents.programs import layout_of

        root, sources = self.settings.root, self.settings.sources
        try:
            is_directory = stat.S_ISDIR(os.stat(root).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            if self.root is not None or not sources or os.path.lexists(root):
                raise self._no_root(root) from None
        except OSError as error:
            raise os_problem(error, f"looking at {root}") from error
        else:
            if not is_directory:
                raise NoRoot(f"{root} is not a directory", hint=self._name_another())
        layout = layout_of(root, sources, self.settings.exclude)
        layout.refuse_planted()
        return layout

    def _no_root(self, root: Path) -> NoRoot:
        from bsd.transcripts.agents.installed import nothing_configured

        in_file = read_settings_file(self.settings_file, required=False)
        named = named_root(self.root, os.environ, in_file.get("root"))
        if named is not None or os.path.lexists(root):
            return NoRoot(f"there is no directory {root}", hint=self._name_another())
        openclaw, _ = usual_roots(os.environ)
        file = self.settings_file
        why = f"there is no OpenClaw in {openclaw}, and {file} names no [[sources]]"
        problem = nothing_configured(root, why, os.environ, file)
        return NoRoot(problem.message, hint=problem.hint)

    def _name_another(self) -> str:
        return f"name the root with --root DIR, OPENCLAW_ROOT, or `root` in {self.settings_file}"

    def make_root(self) -> None:
        """Create the root if sources are set and it is missing: not every user has OpenClaw.

        A root that is named with --root is not created, since it may be mistyped.
        """
        settings = self.settings
        if self.root is None and settings.sources and not settings.readonly:
            try:
                if not os.path.lexists(settings.root):
                    make_private_dir(settings.root)
            except OSError as error:
                raise os_problem(error, f"making {settings.root}") from error

    @cached_property
    def pruning(self) -> ConfigService:
        """The settings in config.json; only a change creates the file."""
        return self._config(create=False)

    def _config(self, *, create: bool) -> ConfigService:
        from bsd.core.config_file import ConfigService

        if create:
            self.make_root()
        return ConfigService(self.layout.config_file, create=create)

    def log(self, *, writes: bool) -> None:
        """Open the log file.

        Args:
            writes: the call changes something. A call that only reads neither creates nor needs the
                file.

        Raises:
            Forbidden: the call writes, and the settings allow only reading.
        """
        if writes:
            self.refuse_if_readonly()
            self.make_root()
        self.log_file = self.layout.log_file
        if not writes and not os.access(self.log_file, os.W_OK):
            self.log_file = None
        # A terminal shows answers, not log lines; only errors appear in both.
        place = self.layout if self.log_file else None
        settings = self.settings
        configure_logs(place, settings.log_level, settings.log_format, stderr_level="error")
        _log.trace(self.command)

    def answer(self, answer: _R, tell: Callable[[_R], object]) -> None:
        """Print an answer: as a JSON document with `--json`, else with the function `tell`."""
        from bsd.core.answers import as_json

        if self.json:
            print_json(as_json(answer))
        else:
            tell(answer)

    def refuse_if_readonly(self) -> None:
        """Raise Forbidden if the settings allow only reading."""
        if self.settings.readonly:
            hint = "unset BRAINSURGEON_READONLY, and `readonly` in bsd.toml"
            raise Forbidden("bsd only reads here: its settings forbid changes", hint=hint)

    def finish_due(self) -> None:
        """Remove replaced versions of sessions that earlier calls left in flight and that are due.

        Every command calls this first. Otherwise such a version could stay for hours, until a later
        command changes a session.
        """
        from bsd.sessions.commit.inflight import InFlight
        from bsd.sessions.commit.recovery import retire

        if not self.settings.readonly and os.access(self.layout.own, os.W_OK):
            retire(InFlight(self.layout))

    @contextmanager
    def context(
        self,
        *,
        changes: bool,
        session: SessionName | None = None,
        actor: str = "cli",
        wait: float = LONGEST_WAIT,
        ends_early: bool = False,
        progress: ProgressCallback | None = None,
    ) -> Iterator[ActionContext]:
        """Make the context for an action, and turn signals into `self.stop` while the block runs.

        A call that changes something first finishes or undoes operations that an earlier call left
        in flight.

        Args:
            changes: the action changes something; False for a dry run.
            session: the session to read; if another root serves it, a note says so.
            actor: the name in log and audit.
            wait: the longest wait for sessions in use, in seconds, in total; a signal ends it at
                once.
            ends_early: after a signal, the action ends with its answer so far (`context.stopping`);
                by default its next progress report raises Stopped.
            progress: called with the progress of the action, instead of the usual line on a
                terminal.

        Raises:
            ConfigError: the root does not exist, or the settings are broken.
            Forbidden: `changes`, and the settings allow only reading.
        """
        from bsd.actions.context import ActionContext
        from bsd.cli.names import say_whose
        from bsd.sessions.idle import RetryBudget

        if changes:
            self.refuse_if_readonly()
        if session is not None:
            say_whose(self.layout, session.agent)
        with _signals(wanted=changes or ends_early) as request, Progress() as line:
            self.stop = request
            budget = RetryBudget(
                wait if changes else 0.0,
                quiet=self.settings.quiet_seconds,
                sleep=_sleep_and_say_so(request.sleep),
            )

            def progressed(done: int, of: int | None = None) -> None:
                if not ends_early:
                    request.check()
                (progress or line)(done, of)

            context = ActionContext(
                layout=self.layout,
                config=self._config(create=changes),
                actor=actor,
                fleet=self.settings.fleet,
                prices=self.settings.price_sources,
                budget=budget,
                progress=progressed,
                stopping=lambda: request.number is not None,
            )
            self._begin(context, changes=changes)
            yield context

    def _begin(self, context: ActionContext, *, changes: bool) -> None:
        """Open the log, and finish or undo operations in flight of earlier calls, once per call."""
        if self._begun and (self._writes or not changes):
            return
        self.log(writes=changes)
        self._begun, self._writes = True, changes
        if changes:
            from bsd.core.clock import note_first_use

            note_first_use(self.layout)  # `bsd retention` compares the clocks with these
            if self.layout.has_moves():  # rare, and it imports all of maintenance
                from bsd.maintenance.interrupted import recover
                from bsd.sessions.commit.inflight import InFlight

                inflight = InFlight(self.layout)
                recover(self.layout, inflight, context.now, context.actor)
            else:
                context.recover()

    @property
    def stop_code(self) -> int:
        """128 + n if signal n asked the call to stop and its work was still finished; else 0."""
        return self.stop.exit_code if self.stop else 0

    def forget_settings(self) -> None:
        """Drop the settings, so that the next use reads them again.

        Called after the user, the environment or bsd.toml has changed.
        """
        for name in ("settings", "layout", "pruning"):
            vars(self).pop(name, None)


@contextmanager
def _signals(*, wanted: bool) -> Iterator[StopRequest]:
    """Turn signals into a stop request. If not `wanted`, signals keep their usual effect."""
    if wanted:
        with stop_request() as request:
            yield request
    else:
        yield StopRequest()


def _sleep_and_say_so(sleep: Callable[[float], None] = time.sleep) -> Callable[[float], None]:
    """Wrap `sleep` so that the first long wait is announced on a terminal."""
    told = not sys.stderr.isatty()

    def wait(seconds: float) -> None:
        nonlocal told
        if not told and seconds >= _WORTH_A_WORD_SECONDS:
            note("(waiting until the session has been quiet for a moment; Ctrl-C ends it)")
            told = True
        sleep(seconds)

    return wait


# --- commands ---


def global_option(name: str, **how: Any) -> click.Option:
    """Make an option of every call, which may stand before or after the command's name.

    The option is eager: names of sessions are looked up in the root, so the root must be known
    first.
    """

    def remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value not in (None, False):
            setattr(context.ensure_object(Call), str(parameter.name), value)

    return click.Option([name], expose_value=False, callback=remember, is_eager=True, **how)


class BsdCommand(click.Command):
    """A command that also takes the global options after its name.

    If root calls it on another user's root, it runs as that user.
    """

    finishes_due = True  # call `Call.finish_due` first

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            global_option("--root", metavar="DIR", hidden=True),
            global_option("--config", metavar="FILE", hidden=True),
            global_option("--json", is_flag=True, help="Print one JSON document."),
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and note the command's name for messages."""
        ctx.ensure_object(Call).command = ctx.command_path
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command with the rights of the root's owner."""
        if ctx.invoked_subcommand is None:  # else the subcommand does this
            call = ctx.ensure_object(Call)
            become_owner(call, self.first_as_root(ctx))
            if self.finishes_due:
                with suppress(BsdError, OSError):  # a command that needs the root reports it
                    call.finish_due()
        return super().invoke(ctx)

    def first_as_root(self, _ctx: click.Context) -> Callable[[Path, FileOwner], None] | None:
        """Return the work that root does before it becomes the owner; None for most commands."""
        return None


class BsdGroup(click.Group, BsdCommand):
    """A group whose commands are `BsdCommand`s."""

    command_class = BsdCommand


def confirm(question: str, refusal: str) -> bool:
    """Ask on the terminal, and return the answer.

    Raises:
        Invalid: there is no terminal; `refusal` is its hint.
    """
    if not sys.stdin.isatty():
        raise Invalid("this command asks first, but there is no terminal", hint=refusal)
    return click.confirm(question, err=True)


def ask_first(question: str, unasked: str, what: str = "changed") -> None:
    """Ask on the terminal.

    Args:
        unasked: the command that does not ask, for the hint.
        what: the participle of the refused action, as in `nothing was changed`.

    Raises:
        Conflict: the answer is no.
        Invalid: there is no terminal.
    """
    if not confirm(question, unasked):
        raise Conflict(f"nothing was {what}", hint=f"{unasked} does not ask")


def become_owner(call: Call, first: Callable[[Path, FileOwner], None] | None = None) -> None:
    """If root calls bsd on another user's root, become that user before any file is opened.

    Args:
        first: work that only root can do; it is done before the change of user.

    Raises:
        Forbidden: root cannot become that user, or the call has used root's own settings file.
    """
    if os.geteuid() != 0:
        return
    root, file = root_that_is_meant(call)
    owner = owner_for_root(root)
    if owner is None:
        return
    if first is not None:
        first(root, owner)
    become(owner, root, os.environ)
    if file is not None and call.config is None and file != settings_file(os.environ):
        raise Forbidden(
            f"{root} belongs to {owner}, and {file} are root's settings",
            hint=f"copy them for {owner} to {settings_file(os.environ)}, or name them in --config",
        )
    call.forget_settings()
    if root_that_is_meant(call)[0] != root:
        call.root = os.path.realpath(root)
    note(f"(running as {owner}, who owns {root})")


def root_that_is_meant(call: Call) -> tuple[Path, Path | None]:
    """Return the root of this call, and its settings file; None if that file does not exist."""
    file = Path(call.config) if call.config is not None else settings_file(os.environ)
    try:
        said = read_settings_file(file, required=False)
    except BsdError:  # a command that needs them reports the problem
        said = {}
    there = file if os.path.lexists(file) else None
    return find_root(call.root, os.environ, said.get("root")), there
