"""Settings from environment and file: their precedence, and messages on bad values (SPEC §4)."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pyfakefs.fake_filesystem import FakeFilesystem

from bsd.core.errors import ConfigError, Invalid
from bsd.core.fleet_settings import FleetSettings
from bsd.core.locations import find_socket
from bsd.core.settings import RELOADABLE, VARIABLES, HttpAddress, Settings
from tests.loading import load_settings

SAMPLE = Path(__file__).parents[2] / "config" / "bsd.toml"
_TABLES = {
    "fleet",
    "memory",
    "prices",
    "sources",
    "workspace_limits",
}  # these have tests of their own
_OTHERS = {*_TABLES, "config_file"}
_KEYS = Settings.model_fields.keys() - {"config_file"}


def but_tables(settings: Settings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in Settings.model_fields if name not in _OTHERS}


HOME = "/home/ada"


@pytest.fixture
def environ(fs: FakeFilesystem) -> dict[str, str]:
    fs.create_dir(HOME)
    return {"HOME": HOME, "PATH": "/bin", "LOG_LEVEL": "not ours"}


@pytest.fixture
def file(environ: dict[str, str]) -> Path:
    path = Path(HOME, ".config", "bsd", "bsd.toml")
    path.parent.mkdir(parents=True)
    return path


def refusal(file: Path, text: str, environ: dict[str, str]) -> ConfigError:
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(environ=environ)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (4, 4), (64, 8), (None, 1)])
def test_there_is_a_worker_for_each_core_unless_somebody_says_how_many(
    monkeypatch: pytest.MonkeyPatch, cores: int | None, threads: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert load_settings(root=Path("/r"), environ={"HOME": "/h"}).threads == threads
    environ = {"HOME": "/h", "BRAINSURGEON_WORKERS": "12"}
    assert load_settings(root=Path("/r"), environ=environ).threads == 12


def test_the_defaults(environ: dict[str, str]) -> None:
    root = Path(HOME, ".local", "share", "bsd")
    assert but_tables(load_settings(environ=environ)) == {
        "root": root,
        "api_keys": (),
        "cors_origins": (),
        "exclude": (),
        "readonly": False,
        "http": None,
        "http_open": False,
        "socket": find_socket(root, environ),
        "workers": 0,
        "debounce_seconds": 2.0,
        "quiet_seconds": 2.0,
        "log_level": "info",
        "log_format": "auto",
        "auto_refresh_ms": 10_000,
        "workspace_root": None,
        "workspace_cron": "0 * * * *",
        "workspace_max_age": "24h",
        "workspace_max_count": 0,
        "workspace_max_bytes": 0,
        "prices_file": None,
    }


def test_the_sample_says_what_the_defaults_are(fs: FakeFilesystem, environ: dict[str, str]) -> None:
    fs.add_real_file(SAMPLE)
    sample = load_settings(SAMPLE, environ=environ)
    assert but_tables(sample) == but_tables(load_settings(environ=environ))
    # a commented-out setting has its default as value, or has no default to show
    text = SAMPLE.read_text()
    for key in _KEYS:
        assert any(
            f"\n{begin}" in text
            for begin in (f"{key} = ", f"# {key} = ", f"# [{key}]", f"# [[{key}]]")
        )
    shown = tomllib.loads(text.replace("\n# root", "\nroot").replace("\n# socket", "\nsocket"))
    assert shown["root"] == "~/.openclaw"
    assert shown["socket"] == "~/.openclaw/.brainsurgeon/bsd.sock"
    for variable in VARIABLES:
        assert variable in text


def test_everything_can_be_set_in_the_file(environ: dict[str, str], file: Path) -> None:
    file.write_text(
        """
root = "/r"
exclude = ["main", "~/secret"]
api_keys = ["k1", "k2"]
cors_origins = ["http://localhost:3000", "https://BS.example.com/"]
readonly = true
http = "[::1]:8000"
http_open = true
socket = "~/s.sock"
workers = 4
debounce_seconds = 0.5
quiet_seconds = 30
log_level = "WARNING"
log_format = "JSON"
auto_refresh_ms = 0
workspace_root = "~/spaces"
workspace_cron = "*/5 * * * *"
workspace_max_age = "7d"
workspace_max_count = 100
workspace_max_bytes = 1000000
prices_file = "~/prices.json"
"""
    )
    settings = load_settings(environ=environ)
    assert but_tables(settings) == {
        "root": Path("/r"),
        "exclude": ("main", "~/secret"),
        "api_keys": ("k1", "k2"),
        "cors_origins": ("http://localhost:3000", "https://bs.example.com"),
        "readonly": True,
        "http": ("::1", 8000),
        "http_open": True,
        "socket": Path(environ["HOME"]) / "s.sock",
        "workers": 4,
        "debounce_seconds": 0.5,
        "quiet_seconds": 30.0,
        "log_level": "warn",
        "log_format": "json",
        "auto_refresh_ms": 0,
        "workspace_root": Path(environ["HOME"]) / "spaces",
        "workspace_cron": "*/5 * * * *",
        "workspace_max_age": "7d",
        "workspace_max_count": 100,
        "workspace_max_bytes": 1_000_000,
        "prices_file": Path(environ["HOME"]) / "prices.json",
    }
    assert isinstance(settings.http, HttpAddress)
    assert str(settings.http) == "[::1]:8000"


def test_everything_can_be_set_in_the_environment_which_wins(
    environ: dict[str, str], file: Path
) -> None:
    file.write_text('root = "/file"\nworkers = 9\nlog_level = "error"\nsocket = "/file.sock"\n')
    environ |= {
        "OPENCLAW_ROOT": "/env",
        "BRAINSURGEON_API_KEYS": "key1, key2,,key3",
        "BRAINSURGEON_EXCLUDE": "main/x,/secret",
        "BRAINSURGEON_CORS_ORIGINS": "http://localhost:3000,https://bs.example.com",
        "BRAINSURGEON_READONLY": "true",
        "BRAINSURGEON_HTTP": "127.0.0.1:8000",
        "BRAINSURGEON_HTTP_OPEN": "true",
        "BRAINSURGEON_SOCKET": "/env.sock",
        "BRAINSURGEON_WORKERS": "4",
        "BRAINSURGEON_DEBOUNCE_SECONDS": "1.5",
        "BRAINSURGEON_QUIET_SECONDS": "5",
        "BRAINSURGEON_LOG_LEVEL": "trace",
        "BRAINSURGEON_LOG_FORMAT": "console",
        "AUTO_REFRESH_MS": "5000",
        "BRAINSURGEON_WORKSPACE_ROOT": "/env/spaces",
        "BRAINSURGEON_WORKSPACE_CRON": "0 3 * * *",
        "BRAINSURGEON_WORKSPACE_MAX_AGE": "never",
        "BRAINSURGEON_WORKSPACE_MAX_COUNT": "7",
        "BRAINSURGEON_WORKSPACE_MAX_BYTES": "8",
        "BRAINSURGEON_PRICES_FILE": "/env/prices.json",
        "BRAINSURGEON_URL": "http://of.the.client",
    }
    assert but_tables(load_settings(environ=environ)) == {
        "root": Path("/env"),
        "exclude": ("main/x", "/secret"),
        "api_keys": ("key1", "key2", "key3"),
        "cors_origins": ("http://localhost:3000", "https://bs.example.com"),
        "readonly": True,
        "http": ("127.0.0.1", 8000),
        "http_open": True,
        "socket": Path("/env.sock"),
        "workers": 4,
        "debounce_seconds": 1.5,
        "quiet_seconds": 5.0,
        "log_level": "trace",
        "log_format": "console",
        "auto_refresh_ms": 5000,
        "workspace_root": Path("/env/spaces"),
        "workspace_cron": "0 3 * * *",
        "workspace_max_age": "never",
        "workspace_max_count": 7,
        "workspace_max_bytes": 8,
        "prices_file": Path("/env/prices.json"),
    }


def test_the_command_line_wins_over_all(environ: dict[str, str], file: Path) -> None:
    file.write_text('root = "/file"\n')
    environ["OPENCLAW_ROOT"] = "/env"
    settings = load_settings(root=Path("/cli"), environ=environ)
    assert settings.root == Path("/cli")
    assert settings.socket == Path("/cli/.brainsurgeon/bsd.sock")


def test_every_key_but_tables_and_the_root_has_a_variable() -> None:
    keys = {f"BRAINSURGEON_{key.upper()}" for key in _KEYS - _TABLES}
    assert keys - {"BRAINSURGEON_ROOT"} | {"AUTO_REFRESH_MS"} == VARIABLES.keys()


@pytest.mark.parametrize("name", ["BRAINSURGEON_MEMORY", "BRAINSURGEON_SOURCES"])
def test_a_table_has_no_variable(environ: dict[str, str], name: str) -> None:
    environ[name] = "{}"
    with pytest.raises(ConfigError, match=f"{name} is not a known variable"):
        load_settings(environ=environ)


def test_empty_variables_are_unset(environ: dict[str, str], file: Path) -> None:
    file.write_text('api_keys = ["from the file"]\nworkers = 3\n')
    environ |= {"BRAINSURGEON_API_KEYS": "", "BRAINSURGEON_WORKERS": ""}
    settings = load_settings(environ=environ)
    assert settings.api_keys == ("from the file",)
    assert settings.workers == 3


def test_both_names_of_the_refresh_time_work(environ: dict[str, str]) -> None:
    environ["BRAINSURGEON_AUTO_REFRESH_MS"] = "7"
    assert load_settings(environ=environ).auto_refresh_ms == 7
    environ["AUTO_REFRESH_MS"] = "8"
    assert load_settings(environ=environ).auto_refresh_ms == 8


def test_the_own_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("OPENCLAW_ROOT", "/own")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/none")
    assert load_settings().root == Path("/own")


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("workers", [0, 1, 32], [-1, 33, 1.5, True, "x", []]),
        (
            "debounce_seconds",
            [0, 3600, 0.001],
            [-0.1, 3600.1, float("nan"), float("inf"), True, "x"],
        ),
        ("quiet_seconds", [2, 3600], [1.9, 3601, True, "x"]),
        ("auto_refresh_ms", [0, 86_400_000], [-1, 86_400_001, 0.5, False]),
        (
            "log_level",
            ["trace", "debug", "info", "warn", "error", " Info "],
            ["verbose", "", 3],
        ),
        ("log_format", ["auto", "json", "console"], ["xml", 1]),
        ("readonly", [True, False], ["maybe", 2, []]),
        ("http_open", [True, False], ["maybe", 2, []]),
        (
            "http",
            ["localhost:0", "0.0.0.0:65535", "[fe80::1]:80"],
            ["8000", ":8000", "a:65536", "::1:80", "http://a:80", "a:b", "a b:1", 8000, ""],
        ),
        (
            "cors_origins",
            [[], ["http://a", "https://b:3000/"], "http://a,http://b"],
            [["*"], ["a:3000"], ["http://a/path"], ["ftp://a"], ["http://u@a"], [3], {"a": 1}, 5],
        ),
        ("api_keys", [[], ["k"], "a,b"], [[""], [3], 5]),
        ("root", ["/r", "~", "~/r"], ["r", "../r", "", 5, "~ada"]),
        ("socket", ["/s", "~/s"], ["s", 5, "", "/" + "s" * 200]),
        ("workspace_root", ["/s", "~/s"], ["s", 5, ""]),
        ("workspace_cron", ["@daily"], ["daily", "0 0 31 2 *", 3]),
        ("workspace_max_age", ["1m", "never"], ["1s", "53w", 3]),
        ("workspace_max_count", [0, 10], [-1, True, "x"]),
    ],
)
def test_values_in_the_file(
    environ: dict[str, str], file: Path, key: str, good: list[object], bad: list[object]
) -> None:
    for value in good:
        file.write_text(f"{key} = {toml(value)}\n")
        load_settings(environ=environ)
    for value in bad:
        problem = refusal(file, f"# first\n\n{key} = {toml(value)}\n", environ)
        assert problem.message.startswith(f"{file}, line 3: {key}: ")
        assert [error.field for error in problem.errors] == [key]


def toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case list():
            return f"[{', '.join(toml(item) for item in value)}]"
        case dict():
            return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + "}"
        case _:
            return str(value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("BRAINSURGEON_WORKERS", "many"),
        ("BRAINSURGEON_LOG_LEVEL", "loud"),
        ("BRAINSURGEON_READONLY", "perhaps"),
        ("AUTO_REFRESH_MS", "-1"),
        ("BRAINSURGEON_AUTO_REFRESH_MS", "-1"),
        ("BRAINSURGEON_HTTP", "x"),
        ("BRAINSURGEON_CORS_ORIGINS", "http://a,*"),
        ("BRAINSURGEON_SOCKET", "relative/s"),
    ],
)
def test_bad_values_in_the_environment_name_the_variable(
    environ: dict[str, str], file: Path, variable: str, value: str
) -> None:
    environ[variable] = value
    problem = refusal(file, "workers = 2\n", environ)
    assert problem.message.startswith(f"{variable}: ")
    assert [error.field for error in problem.errors] == [variable]


@pytest.mark.parametrize(
    ("text", "line", "key", "meant"),
    [
        ("worker = 2", 1, "worker", "workers"),
        ('\n"Log-Level" = "info"', 2, "Log-Level", "log_level"),
        ("[menory]\nenabled = true", 1, "menory", "memory"),
        ("[workspaces]", 1, "workspaces", "workers"),
        ("workers.count = 2\nhtpp = 1", 2, "htpp", "http"),
    ],
)
def test_unknown_keys_name_the_nearest(
    environ: dict[str, str], file: Path, text: str, line: int, key: str, meant: str
) -> None:
    problem = refusal(file, text, environ)
    expected = f"{file}, line {line}: {key} is not a known key; did you mean "
    (message,) = [e.message for e in problem.errors if e.field == key]
    assert message.startswith(expected)
    if key not in {"memory", "workspaces"}:
        assert message == f"{expected}{meant}?"


@pytest.mark.parametrize(
    ("variable", "advice"),
    [
        ("BRAINSURGEON_API_KEY", "did you mean BRAINSURGEON_API_KEYS?"),
        ("BRAINSURGEON_WORKER", "did you mean BRAINSURGEON_WORKERS?"),
        ("BRAINSURGEON_RATE_LIMIT_READ", "bsd does not limit rates"),
    ],
)
def test_unknown_variables_name_the_nearest(
    environ: dict[str, str], variable: str, advice: str
) -> None:
    environ[variable] = "1"
    with pytest.raises(ConfigError) as caught:
        load_settings(environ=environ)
    assert caught.value.message.startswith(f"{variable} is not a known variable; {advice}")


def test_all_problems_are_told_at_once(environ: dict[str, str], file: Path) -> None:
    environ |= {"BRAINSURGEON_WORKRS": "1", "BRAINSURGEON_LOG_LEVEL": "x"}
    text = f'workers = 99\nroot = "r"\nsocket = "/{"s" * 200}"\nreadnoly = true\n'
    problem = refusal(file, text, environ)
    assert {error.field for error in problem.errors} == {
        "BRAINSURGEON_WORKRS",
        "BRAINSURGEON_LOG_LEVEL",
        "workers",
        "root",
        "socket",
        "readnoly",
    }
    for error in problem.errors:
        assert error.message in problem.message
    assert problem.exit_code == 78


def test_a_named_file_must_exist(environ: dict[str, str]) -> None:
    other = Path(HOME, "other.toml")
    with pytest.raises(ConfigError, match=r"there is no settings file .*other\.toml"):
        load_settings(other, environ=environ)
    other.write_text("workers = 7")
    assert load_settings(other, environ=environ).workers == 7


def test_what_a_daemon_follows_are_settings() -> None:
    assert Settings.model_fields.keys() >= RELOADABLE


def test_keys_do_not_show_in_texts_about_the_settings(environ: dict[str, str]) -> None:
    environ["BRAINSURGEON_API_KEYS"] = "secret"
    assert "secret" not in repr(load_settings(environ=environ))


def test_settings_are_fixed(environ: dict[str, str]) -> None:
    settings = load_settings(environ=environ)
    with pytest.raises(ValidationError):
        settings.workers = 5  # type: ignore[misc]


@pytest.mark.parametrize("text", ["127.0.0.1:8000", "[::1]:0", "bs.example.com:443"])
def test_an_address_is_written_as_it_is_read(text: str) -> None:
    assert str(HttpAddress.parse(text)) == text


def test_an_address_on_the_command_line_is_usage() -> None:
    with pytest.raises(Invalid) as caught:
        HttpAddress.parse("8000")
    assert caught.value.exit_code == 2
    assert caught.value.hint


# --- what is shared with other machines ---


def test_nothing_is_shared_by_default(environ: dict[str, str]) -> None:
    fleet = load_settings(environ=environ).fleet
    assert not fleet.is_on
    assert fleet.host
    assert fleet == FleetSettings(host=fleet.host)


def test_what_is_shared(environ: dict[str, str], file: Path) -> None:
    file.write_text(
        """
[fleet]
bucket = "s3://archive/bsd/"
host = "build-3"
keep_local = "30d"
push_seconds = 60
database = "postgresql://bsd:secret@db/bsd"
identity = "~/age.key"
"""
    )
    settings = load_settings(environ=environ)
    fleet = settings.fleet
    assert fleet.is_on
    assert (fleet.bucket, fleet.host) == ("s3://archive/bsd", "build-3")
    assert (fleet.keep_local, fleet.push_seconds) == ("30d", 60)
    assert fleet.identity == Path(HOME, "age.key")
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('bucket = "s3://KEY:SECRET@archive/bsd"', "fleet.bucket: a bucket is named without user"),
        ('bucket = "ftp://archive"', "fleet.bucket: a bucket is s3://BUCKET/PREFIX"),
        ('bucket = "s3://s3://archive"', "fleet.bucket: a bucket is s3://BUCKET/PREFIX"),
        ('bucket = "file://data"', "fleet.bucket: a directory is file:///DIRECTORY"),
        ('host = "a:b"', "fleet.host: "),
        ('keep_local = "soon"', "fleet.keep_local: "),
        ("push_seconds = true", "fleet.push_seconds: a number is expected"),
        ("uploads_at_once = 0", "fleet.uploads_at_once: "),
        ('identity = "age.key"', "fleet.identity: a path must be absolute"),
        ('buckt = "s3://archive"', "fleet.buckt is not a known key; did you mean bucket?"),
    ],
)
def test_what_cannot_be_shared(
    environ: dict[str, str], file: Path, line: str, problem: str
) -> None:
    file.write_text(f"[fleet]\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(environ=environ)
    assert problem in caught.value.message
    assert "SECRET" not in caught.value.message


# --- prices ---


def test_rows_of_prices(environ: dict[str, str], file: Path) -> None:
    file.write_text(
        """
[[prices]]
model = "m"
valid_from = 2026-10-07
input = 2
output = 10.0
read = 0.1
lives = [{seconds = 3600, write = 2}, {seconds = 300, write = 1.25}]
steps = [{above = 2000, input = 3, output = 4}, {above = 1000, input = 2, output = 2}]
peaks = [{begin = 22, end = 24, factor = 2}]

[[prices]]
provider = "relay|other"
model = "only-.*"
lives = [{seconds = 60, write = 1}]
"""
    )
    priced, lives = load_settings(environ=environ).price_sources.rows
    price = priced.price
    assert price is not None
    assert (price.input, price.output, price.read) == (2, 10, 0.1)
    assert [life.seconds for life in price.lives] == [300, 3600]
    assert [step.above for step in price.steps] == [1000, 2000]
    assert price.peaks[0].days == (1, 2, 3, 4, 5, 6, 7)
    assert (price.valid_from, price.source) == ("2026-10-07", "bsd.toml")
    assert priced.since == 1_791_331_200
    assert (lives.provider, lives.price, lives.lives[0].seconds) == ("relay|other", None, 60)


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ("inptu = 3", "[[prices]], row 2: inptu is not a known key; did you mean input?"),
        ("input = 1", "[[prices]], row 2: `input`, `output` and `read` belong together"),
        ("", "[[prices]], row 2: a row has `input`, `output` and `read`, or `lives`, or"),
        ("input = -1", "[[prices]], row 2: input: Input should be greater than 0"),
        ("input = 20000", "row 2: input: Input should be less than or equal to 10000"),
        ("output = nan", "row 2: output: Input should be a finite number"),
        ("read = '0.1'", "row 2: read: Input should be a valid number"),
        ("input = true", "row 2: input: Input should be a valid number"),
        ("read = 1.5", "row 2: read: Input should be less than or equal to 1"),
        ("provider = '('", "row 2: provider: '(' is not a regular expression"),
        ("valid_from = 12", "row 2: valid_from: a day is written as in 2026-10-07"),
        ("valid_from = '2026-13-01'", "row 2: valid_from: "),
        (
            "lives = [{seconds = 1, write = 1}]\nvalid_from = 2026-02-02\nvalid_to = 2026-02-01",
            "row 2: `valid_from` is not after `valid_to`",
        ),
        ("lives = [{seconds = 0, write = 1}]", "row 2: lives.seconds: Input should be greater"),
        ("lives = [{seconds = 1, wirte = 1}]", "lives.wirte is not a known key; did you mean wr"),
        (
            "lives = [{seconds = 1, write = 1}, {seconds = 1, write = 2}]",
            "row 2: `seconds` of two `lives` are the same",
        ),
        ("peaks = [{begin = 5, end = 5, factor = 1}]", "row 2: peaks: `begin` is before `end`"),
    ],
)
def test_a_bad_row_of_prices_is_named(
    environ: dict[str, str], file: Path, members: str, problem: str
) -> None:
    file.write_text(
        "[[prices]]\nmodel = 'a'\nlives = [{seconds = 9, write = 1}]\n"
        f"[[prices]]\nmodel = 'b'\n{members}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_settings(environ=environ)
    assert problem in caught.value.message
    assert f"{file}, line 4: " in caught.value.message
