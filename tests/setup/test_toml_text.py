"""Tables and keys are added to TOML files and removed again; no other byte changes."""

from __future__ import annotations

import tomllib

import pytest

from bsd.setup.json_text import NotEditable
from bsd.setup.toml_text import AddedToml, add, take_away

SERVER = {"command": "/opt/a b/bsd", "args": ["mcp"]}
PATH = ("mcp_servers", "bsd")
SOURCE = {"kind": "pi", "path": "~/.pi/agent/sessions"}

FILES = [
    "",
    "# nothing but a comment",
    'model = "x"\n',
    'model = "x" # mine\r\n\r\n[features]\r\nx=true\r\n',
    "[mcp_servers.other]\ncommand = 'x'\n\n  [mcp_servers.other.env]\n  A = '[b]'\n",
    "[mcp_servers]\n",
    'a = """\n[mcp_servers.bsd]\n"""',
    "[[sources]]\nkind = 'codex'\npath = '~/c'\n# below\n\n[memory]\nenabled = true",
]


@pytest.mark.parametrize("text", FILES)
def test_a_table_comes_and_goes(text: str) -> None:
    new, added = add(text, PATH, SERVER)
    assert tomllib.loads(new)["mcp_servers"]["bsd"] == SERVER
    assert take_away(new, added) == text
    assert "\r\n" not in text or "\n" not in new.replace("\r\n", "")


@pytest.mark.parametrize("text", FILES)
def test_sources_come_and_go_in_any_order(text: str) -> None:
    one, first = add(text, ("sources",), SOURCE, in_array=True)
    two, second = add(one, ("sources",), {**SOURCE, "kind": "x"}, in_array=True)
    assert [each["kind"] for each in tomllib.loads(two)["sources"]][-2:] == ["pi", "x"]
    assert take_away(str(take_away(two, first)), second) == text
    assert take_away(str(take_away(two, second)), first) == text


@pytest.mark.parametrize("text", [*FILES, '# head\n\n# root = "~/.openclaw"\n\n# tail\n[memory]\n'])
def test_a_key_goes_before_the_tables(text: str) -> None:
    new, added = add(text, ("root",), "~/.local/share/bsd", after="# root = ")
    assert tomllib.loads(new)["root"] == "~/.local/share/bsd"
    if "# root" in text:
        assert '# root = "~/.openclaw"\nroot = ' in new
    assert take_away(new, added) == text


def test_what_comes_after_stays() -> None:
    new, added = add(FILES[3], PATH, SERVER)
    assert take_away(new + "# of mine\r\n[x]\r\ny = 1\r\n", added) == (
        FILES[3] + "# of mine\r\n[x]\r\ny = 1\r\n"
    )


@pytest.mark.parametrize("text", FILES)
def test_the_program_may_write_other_line_breaks(text: str) -> None:
    new, added = add(text, PATH, SERVER)
    rewritten = new.replace("\r\n", "\n")
    rewritten = rewritten if "\r\n" in new else rewritten.replace("\n", "\r\n")
    left = str(take_away(rewritten, added))
    assert left.split() == text.split()


def test_what_a_person_has_changed_stays() -> None:
    new, added = add("a = 1\n", PATH, SERVER)
    edited = new.replace('"mcp"', '"mcp", "-v"')
    with pytest.raises(NotEditable, match="changed"):
        take_away(edited, added)
    assert tomllib.loads(str(take_away(edited, added, force=True))) == {"a": 1}
    assert take_away("a = 1\n", added) is None


def test_a_source_that_a_person_has_written_goes_if_that_is_wanted() -> None:
    text = FILES[-1]
    by_hand = AddedToml(("sources",), {"kind": "codex", "path": "~/c"}, in_array=True, text="")
    with pytest.raises(NotEditable):
        take_away(text, by_hand)
    assert tomllib.loads(str(take_away(text, by_hand, force=True))) == {"memory": {"enabled": True}}


@pytest.mark.parametrize(
    "text",
    ["sources = []\n", "mcp_servers = 1\n", "mcp_servers = {x = {}}\n", "a = \n", "\ufeffa=1"],
)
def test_what_cannot_be_added_to_is_left_alone(text: str) -> None:
    in_array = text.startswith("sources")
    with pytest.raises(NotEditable):
        add(text, ("sources",) if in_array else PATH, SOURCE, in_array=in_array)
