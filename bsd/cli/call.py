"""One call of bsd: what was asked for globally, the parts it needs, and how it is stopped."""

from __future__ import annotations

import os
import re
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from inspect import cleandoc
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from bsd.actions.parameters import NONE, Complete, Items, parameters
from bsd.cli.commands import COMMANDS
from bsd.cli.output import note, print_json
from bsd.cli.privileges import FileOwner, become, owner_for_root
from bsd.core.definition import LibraryVerb
from bsd.core.errors import BsdError, ConfigError, Conflict, Forbidden, Invalid, os_problem
from bsd.core.files import make_private_dir
from bsd.core.layout import Layout
from bsd.core.locations import (
    find_root,
    named_root,
    read_settings_file,
    settings_file,
    usual_roots,
)
from bsd.core.logs import configure_logs, get_logger
from bsd.core.pruning_config import ConfigService

# What follows is loaded where it is used: all commands, their help and the tab key wait for what
# stands above, and few need all of it. Settings bring in pydantic, a surgeon all planners.
if TYPE_CHECKING:
    from bsd.core.settings import Settings
    from bsd.core.settings_apart import SettingsReading
    from bsd.sessions.session import Queries
    from bsd.sessions.surgeon import Surgeon

_H = TypeVar("_H")
_R = TypeVar("_R")

_VARIABLES = ("BRAINSURGEON_", "AUTO_REFRESH_MS")
_WORTH_A_WORD_SECONDS = 1.0
_IN_FLIGHT_SECONDS = 60.0  # for so long the displaced version of a session stays, at least
LONGEST_WAIT = 30.0  # seconds that a call waits for busy sessions, all together (SPEC §2.6)


class NoRoot(ConfigError):
    """The root is not there, or is no directory."""


class Call:
    """The global options of one call, and what follows from them."""

    def __init__(self) -> None:
        self.root: str | None = None
        self.config: str | None = None
        self.json = False
        self.log_file: Path | None = None  # where this call logs, if it does
        self._begun = self._writes = False  # to do something, and to change something

    @cached_property
    def settings(self) -> Settings | None:
        """The settings fixed at start; None if nobody has set any. Raises ConfigError.

        Most calls find nothing set, and need not wait for the library that reads settings.
        """
        variables = any(name.startswith(_VARIABLES) for name in os.environ)
        file = settings_file(os.environ)
        if not self.config and not variables and not read_settings_file(file, required=False):
            return None
        from bsd.core.settings_reader import load_settings

        return load_settings(*self._named())

    def begin_to_read_settings(self) -> SettingsReading:
        """Have another process read the settings, for one that lives long; raises Unavailable."""
        from bsd.core.settings_apart import SettingsReading

        return SettingsReading(*self._named())

    def _named(self) -> tuple[Path | None, Path | None]:
        """`--config` and `--root`."""
        config, root = self.config, self.root
        return (
            Path(config) if config is not None else None,
            Path(root) if root is not None else None,
        )

    @cached_property
    def layout(self) -> Layout:
        """The paths under the root, which may be entered.

        It is there, unless sources are set: then the first call that writes makes it.
        """
        root = self.settings.root if self.settings else find_root(self.root, os.environ)
        sources = self.settings.sources if self.settings else ()
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
        Layout(root).refuse_planted()
        if not sources:
            return Layout(root)
        from bsd.transcripts.agents.programs import layout_of

        return layout_of(root, sources)

    def _no_root(self, root: Path) -> ConfigError:
        """What to say where the root is not there."""
        if self._named_root() is not None or os.path.lexists(root):
            return NoRoot(f"there is no directory {root}", hint=self._name_another())
        from bsd.transcripts.agents.installed import nothing_configured

        openclaw, _ = usual_roots(os.environ)
        file = self.settings_file
        why = f"there is no OpenClaw in {openclaw}, and {file} names no [[sources]]"
        problem = nothing_configured(root, why, os.environ, file)
        return NoRoot(problem.message, hint=problem.hint)

    def _named_root(self) -> Path | None:
        in_file = read_settings_file(self.settings_file, required=False)
        return named_root(self.root, os.environ, in_file.get("root"))

    def _name_another(self) -> str:
        return f"name the root with --root DIR, OPENCLAW_ROOT, or `root` in {self.settings_file}"

    @property
    def settings_file(self) -> Path:
        """The settings file of this call, which need not be there."""
        return settings_file(os.environ) if self.config is None else Path(self.config)

    def make_root(self) -> None:
        """Make the root where sources are set and it is not there: not everybody has OpenClaw.

        But none that is named with --root, since that may be a slip.
        """
        settings = self.settings
        if self.root is None and settings and settings.sources and not settings.readonly:
            try:
                if not os.path.lexists(settings.root):
                    make_private_dir(settings.root)
            except OSError as error:
                raise os_problem(error, f"making {settings.root}") from error

    @cached_property
    def pruning(self) -> ConfigService:
        """The settings in config.json; only changing them creates the file."""
        return self._config(create=False)

    def _config(self, *, create: bool) -> ConfigService:
        if create:
            self.make_root()
        return ConfigService(self.layout.config_file, create=create)

    def log(self, *, writes: bool) -> None:
        """Begin to log: to the file; a call that only reads neither creates nor needs it.

        Raises Forbidden for one that writes where the settings allow reading only.
        """
        if writes:
            self.refuse_if_readonly()
            self.make_root()
        self.log_file = self.layout.log_file
        if not writes and not os.access(self.log_file, os.W_OK):
            self.log_file = None
        # People at a terminal get answers, not log lines; what is broken they see twice.
        place = self.layout if self.log_file else None
        how = (self.settings.log_level, self.settings.log_format) if self.settings else ()
        configure_logs(place, *how, stderr_level="error")
        context = click.get_current_context(silent=True)
        get_logger("cli").trace(context.command_path if context else "bsd")

    def answer(self, answer: _R, tell: Callable[[_R], object]) -> None:
        """Print an answer: for programs as JSON, for people as `tell` says it."""
        if self.json:
            from bsd.actions.answers import as_json

            print_json(as_json(answer))
        else:
            tell(answer)

    def refuse_if_readonly(self) -> None:
        """Raise Forbidden if the settings say that nothing is to be changed."""
        if self.settings and self.settings.readonly:
            hint = "unset BRAINSURGEON_READONLY, and `readonly` in bsd.toml, to change something"
            raise Forbidden("bsd only reads here, its settings say", hint=hint)

    def finish_due(self) -> None:
        """Let what earlier calls have left in flight go, if it is due and this user may.

        For whoever destroys or reports: replaced versions of sessions shall not lie there because
        nobody changes a session any more.
        """
        if (self.settings and self.settings.readonly) or not os.access(self.layout.own, os.W_OK):
            return
        from bsd.sessions.commit import inflight, recovery

        recovery.retire(inflight.InFlight(self.layout))

    def finish_due_if_any(self) -> None:
        """The same, if a look at one directory says that something is due; a problem stops nobody.

        Every command begins with it: a replaced version shall not lie there for hours because
        commands that look at something else come after the one that left it.
        """
        with suppress(BsdError, OSError):  # a command that needs the root says what is wrong
            root, _ = root_that_is_meant(self)
            now = time.time()
            with os.scandir(Layout(root).inflight) as found:
                is_due = any(_is_old(item, now) for item in found)
            if is_due:
                self.finish_due()

    def queries(self) -> Queries:
        """Whoever only looks."""
        from bsd.sessions.session import Queries

        if not self._begun:
            self._begun = True
            self.log(writes=False)
        return Queries(self.layout, self.pruning)

    def surgeon(
        self,
        *,
        writes: bool = True,
        actor: str = "cli",
        wait: float = LONGEST_WAIT,
        sleep: Callable[[float], None] | None = None,
    ) -> Surgeon:
        """Whoever does the work; `wait` seconds at most for a session that is in use.

        One that writes begins by finishing or undoing what an earlier call left in flight.
        """
        from bsd.sessions import idle, surgeon

        config = self._config(create=writes)
        budget = idle.RetryBudget(wait, sleep=sleep or _sleep_and_say_so())
        if self.settings:
            budget = replace(budget, quiet=self.settings.quiet_seconds)
        hired = surgeon.Surgeon(self.layout, config, actor=actor, budget=budget)
        if not self._begun or (writes and not self._writes):
            self.log(writes=writes)
            self._begun, self._writes = True, writes
            if writes:  # `bsd retention` compares the clocks with what they showed now
                from bsd.core.clock import look

                look(self.layout)
            if writes and self.layout.has_moves():
                from bsd.maintenance.interrupted import (
                    recover,  # seldom is anything of it half done
                )

                recover(hired)
            elif writes:
                hired.operator.recover()
        return hired


def _is_old(item: os.DirEntry[str], now: float) -> bool:
    try:
        return now - item.stat(follow_symlinks=False).st_mtime >= _IN_FLIGHT_SECONDS
    except FileNotFoundError:  # somebody else was quicker
        return False


def _sleep_and_say_so() -> Callable[[float], None]:
    """Sleep as `time.sleep` does; somebody at a terminal learns once what is waited for."""
    told = not sys.stderr.isatty()

    def sleep(seconds: float) -> None:
        nonlocal told
        if not told and seconds >= _WORTH_A_WORD_SECONDS:
            note("(waiting until the session has been quiet for a moment; Ctrl-C ends it)")
            told = True
        time.sleep(seconds)

    return sleep


# --- what the tab key offers ---

# Whatever goes wrong, it offers nothing; only names that no shell takes for more than a name, and
# no more than somebody could look through.

SAFE = re.compile(r"[A-Za-z0-9_.#][A-Za-z0-9._:@+~/#-]*")
MOST = 500


def offering(names: Callable[[Call, click.Context], Iterable[str]]) -> Complete:
    """Offer those of the names that begin with what is typed."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> Items:
        try:
            found = dict.fromkeys(names(context.find_root().obj, context))
            fitting = (name for name in found if name.startswith(incomplete))
            safe = islice(filter(SAFE.fullmatch, fitting), MOST)
            return [CompletionItem(name) for name in safe]
        except Exception:  # noqa: BLE001 - nobody who presses a key wants to read of it
            return []

    return complete


# --- commands ---


class BsdCommand(click.Command):
    """A command that understands the global options after its name, too.

    Called by root on another user's root, it works as that user.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += global_options(hidden=True)

    finishes_due = True  # what earlier commands have left in flight, before it does anything else

    def invoke(self, ctx: click.Context) -> Any:
        """Do it, with the rights of whoever owns the root."""
        if ctx.invoked_subcommand is None:  # else that one knows all that was said
            call = ctx.ensure_object(Call)
            become_owner(call, self.first_as_root(ctx))
            if self.finishes_due:
                call.finish_due_if_any()
        return super().invoke(ctx)

    def first_as_root(self, _ctx: click.Context) -> Callable[[Path, FileOwner], None] | None:
        """What root has to do before it becomes the owner; nothing, for nearly all commands."""
        return None


def command(
    name: str, more: str, cls: type[BsdCommand] = BsdCommand
) -> Callable[[Callable[..., int | None]], click.Command]:
    """Make a function the command `name`; `more` follows its one line of help."""
    text = f"{COMMANDS[name].help}\n\n{cleandoc(more)}"
    return click.command(name, cls=cls, help=text)


class _Group(click.Group, BsdCommand):
    """A group that understands the global options before its subcommands, too."""


def group(name: str, more: str, *, usual: str | None = None) -> click.Group:
    """The group `name`; `more` follows its one line of help, `usual` is done if nothing follows."""

    @click.pass_context
    def act(context: click.Context, /) -> Any:
        if usual is not None and context.invoked_subcommand is None:
            return context.invoke(made.commands[usual])
        return 0

    text = f"{COMMANDS[name].help}\n\n{cleandoc(more)}"
    made = _Group(name, callback=act, invoke_without_command=usual is not None, help=text)
    return made


def library_command(
    verb: LibraryVerb[_H, Any, _R],
    name: str,
    opening: Callable[..., AbstractContextManager[_H]],
    tell: Callable[[_R], None],
    *,
    completed: Mapping[str, Complete] = NONE,
    own: Mapping[str, click.Parameter | None] = NONE,
    also: Sequence[click.Parameter] = (),
    said: Callable[[dict[str, Any]], dict[str, Any]] = lambda given: given,
    failed: Callable[[_R], bool] = lambda _: False,
) -> click.Command:
    """The command `name` of a verb of a library; `tell` says to people what was answered.

    `completed`, `own`: see `parameters`. `opening` gives the handle with which it is done, for a
    call, whether it may change something, and what was given for the parameters `also`. `said`
    makes arguments of what was given, `failed` knows whether the exit code tells of trouble.
    """

    def act(call: Call, /, **given: Any) -> int:
        more = {str(one.name): given.pop(str(one.name)) for one in also}
        known = {name: value for name, value in given.items() if value is not None}
        asked = verb.arguments(**said(known))
        with opening(call, verb.will_change(asked), **more) as handle:
            answer = verb.act(handle, asked)
        call.answer(answer, tell)
        return int(failed(answer))

    return BsdCommand(
        name,
        callback=click.pass_obj(act),
        params=[*also, *parameters(verb.arguments, completed=completed, own=own)],
        help=cleandoc(verb.about),
    )


def global_options(*, hidden: bool) -> list[click.Parameter]:
    """Options of every call, before the command (where `--help` shows them) or after it."""

    def remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value not in (None, False):
            setattr(context.ensure_object(Call), str(parameter.name), value)

    def option(name: str, *, shown: bool = False, **how: Any) -> click.Option:
        silent = hidden and not shown
        # Eager: names are looked for in the root, wherever on the line that is given.
        return click.Option(
            [name], expose_value=False, callback=remember, hidden=silent, is_eager=True, **how
        )

    return [
        option("--root", metavar="DIR"),
        option("--config", metavar="FILE"),
        option("--json", is_flag=True, shown=True, help="Print one JSON document."),
    ]


def confirm(question: str, refusal: str) -> bool:
    """Ask on the terminal; raises Invalid with `refusal` as what to try if nobody can answer."""
    if not sys.stdin.isatty():
        raise Invalid("this asks before it acts, and nobody is here to answer", hint=refusal)
    return click.confirm(question, err=True)


def ask_first(question: str, unasked: str, what: str = "changed") -> None:
    """The same; raises Conflict if the answer is no. `unasked` is the command that does not ask."""
    if not confirm(question, unasked):
        raise Conflict(f"nothing was {what}", hint=f"{unasked} does not ask")


def become_owner(call: Call, first: Callable[[Path, FileOwner], None] | None = None) -> None:
    """Root on somebody else's root becomes that user, before anything there is opened.

    What only root can do comes `first`. Raises Forbidden if root cannot become that user, or if
    what root has set would not be read any more.
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
            hint=f"let {owner} have them as {settings_file(os.environ)}, or name them: --config",
        )
    if root_that_is_meant(call)[0] != root:
        call.root = os.path.realpath(root)
    note(f"(root works as {owner} here, to whom {root} belongs)")


def root_that_is_meant(call: Call) -> tuple[Path, Path | None]:
    """The root of this call, and the settings file, if there is one to be read."""
    file = Path(call.config) if call.config is not None else settings_file(os.environ)
    try:
        said = read_settings_file(file, required=False)
    except BsdError:  # whoever needs them says what is wrong with them
        said = {}
    there = file if os.path.lexists(file) else None
    return find_root(call.root, os.environ, said.get("root")), there


# --- Ctrl-C and SIGTERM: taken at a safe moment, and honestly reported ---


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """The call was asked to stop and did. Like KeyboardInterrupt: no `except Exception` sees it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        return 128 + self.number


class StopRequest:
    """Whether somebody has asked to stop. Whoever works looks at it where nothing is half done.

    A second signal does not wait for such a place: it raises at once, and what was in flight is
    finished or undone by the next call, as after a crash.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.insisted = False  # a second signal has come
        self._sleeping = False

    @property
    def exit_code(self) -> int:
        """What the call ends with when all else went well."""
        return 0 if self.number is None else 128 + self.number

    def check(self) -> None:
        """Raise Stopped if a stop was asked for."""
        if self.number is not None:
            raise Stopped(self.number)

    def sleep(self, seconds: float) -> None:
        """Wait as `time.sleep` does; a signal ends the wait at once, by raising Stopped."""
        self._sleeping = True
        try:
            self.check()
            time.sleep(seconds)
        finally:
            self._sleeping = False

    def notice(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
        self.insisted = self.number is not None and not self._sleeping
        self.number = number
        if self.insisted or self._sleeping:
            raise Stopped(number)
        with suppress(OSError):  # not sys.stderr: the interrupted code may be writing to it
            os.write(2, b"\nstopping as soon as nothing is half done (once more: at once)\n")


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Turn SIGINT and SIGTERM into a request while the block runs."""
    request = StopRequest()
    before = {number: signal.signal(number, request.notice) for number in _SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
