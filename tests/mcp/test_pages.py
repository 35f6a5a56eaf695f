"""No answer over MCP exceeds the limit of the calling program, and pages together are complete."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.memory import actions
from bsd.memory.memory import Memory
from bsd.memory.new_fact import NewFact
from bsd.transcripts.agents.entry import MARKER
from tests.actions.performed import Caller
from tests.mcp.answers import call_until_answered, characters_of, document_of, size_of, texts_of
from tests.mcp.test_mcp import House, serve
from tests.openclaw_tree import add_session
from tests.session_files import HEADER, entry, jsonl

if TYPE_CHECKING:  # importing it takes a second, and each of the workers would import it
    from mcp.client import Client
    from mcp_types import CallToolResult

pytestmark = pytest.mark.daemon

NAME = SessionName("main", "s1")
# Escapes and letters of several bytes: the sent text is larger than its characters.
TEXT = "".join(f'{number}\t"path": "C:\\temp", größer als € 𝄞\n' for number in range(5000))
RESULTS = 300
PROGRAMS: dict[str, Callable[[CallToolResult], bool]] = {
    "claude-code": lambda result: characters_of(result) <= 60_000,
    "some-program": lambda result: size_of(result) <= 18_000,
}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    root = tmp_path_factory.mktemp("pages") / "root"
    root.mkdir()
    entries: list[dict[str, Any]] = [HEADER, entry(1, "user", "read all of it")]
    entries.append(entry(2, "toolResult", TEXT))
    many = entry(3, "toolResult", "short")
    many["message"]["details"] = {f"part {n}": f"{n} of many " * 80 for n in range(60)}
    entries.append(many)
    more = range(4, RESULTS + 4)
    entries += [entry(number, "toolResult", f"harbour {number} " * 60) for number in more]
    entries += [entry(number, "assistant", "go on") for number in range(RESULTS + 4, RESULTS + 9)]
    add_session(root, str(NAME), jsonl(*entries))
    caller = Caller(layout=(layout := Layout(root)), config=ConfigService(layout.config_file))
    overrides = {"trigger_types": ["tool_result"], "keep_recent": 0}
    assert caller.extract(NAME, overrides=overrides).values >= RESULTS
    with Memory(layout.facts_db) as memory:
        actions.store(memory, NewFact(f"cranes {TEXT * 2}", entity="harbour"))
        actions.save_checkpoint(memory, "unload", f"half done {TEXT}")
        for number in range(90):
            actions.store(memory, NewFact(f"ship {number} " + '"cargo" ' * 90, entity="ship"))
    house = House(root)
    house.rest()
    return house


@pytest.fixture(params=["claude-code", pytest.param("some-program", marks=pytest.mark.soak)])
def program(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def asking(house: House, program: str, work: Callable[[Callable[..., Any]], Any]) -> None:
    """Let `work` call tools and read their answers, each of which must fit the limit."""

    async def run(client: Client) -> None:
        async def call(tool: str, **arguments: Any) -> Any:
            result = await call_until_answered(client, tool, arguments)
            assert PROGRAMS[program](result), (tool, arguments, size_of(result))
            return document_of(result)

        await work(call)

    serve(house, run, "--tools", "all", program=program)


async def read_on(call: Callable[..., Any], tool: str, **arguments: Any) -> list[dict[str, Any]]:
    """Call as `next` says until no text is left."""
    pages = [await call(tool, **arguments)]
    while following := pages[-1].get("next"):
        pages.append(await call(**following))
    assert len(pages) > 1
    return pages


def test_a_long_text_is_read_to_its_end(house: House, program: str) -> None:
    async def work(call: Callable[..., Any]) -> None:
        pages = await read_on(call, "restore_remote", entry="e2", inline=False)
        (key,) = pages[0]["texts"]
        assert "".join(page["texts"][key] for page in pages) == TEXT
        assert len(pages) < (6 if program == "claude-code" else 25), "each is as long as may be"

    asking(house, program, work)


def test_many_texts_are_read_to_the_last(house: House) -> None:
    lines = house.path(str(NAME)).read_bytes().splitlines()
    (marked,) = [one for line in lines if (one := json.loads(line)).get("id") == "e3"]

    async def work(call: Callable[..., Any]) -> None:
        texts: dict[str, str] = {}
        for page in await read_on(call, "read_extracted", entry="e3"):
            assert len(json.dumps(page.get("next", ""))) < 2000, "few names, or what stands for all"
            for key, text in page["texts"].items():
                texts[key] = texts.get(key, "") + text
        assert list(texts) == marked[MARKER]["keys"]
        assert sorted(texts.values()) == sorted(f"{n} of many " * 80 for n in range(60))

    asking(house, "some-program", work)


def test_a_listing_is_read_to_its_end(house: House, program: str) -> None:
    async def work(call: Callable[..., Any]) -> None:
        pages = await read_on(call, "purge_control", session="s1", action="get_context")
        listed = [row["id"] for page in pages for row in page["entries"]]
        ids = [one for page in pages for one in page["extracted_ids"]]
        assert len(listed) == len(set(listed)) == pages[0]["total_entries"]
        assert len(ids) == len(set(ids)) == pages[0]["extracted_entries"]
        assert pages[-1]["entries_left_out"] == 0

    asking(house, program, work)


def test_what_is_found_is_read_to_its_end(house: House) -> None:
    async def work(call: Callable[..., Any]) -> None:
        words = {"session": "s1", "query": "harbour", "limit": 100}
        pages = await read_on(call, "search_extracted", **words)
        found = [one["entry_id"] for page in pages for one in page["results"]]
        assert len(found) >= 100
        assert len(set(found)) == len(found)

    asking(house, "some-program", work)


def test_a_long_fact_is_read_to_its_end(house: House, program: str) -> None:
    async def work(call: Callable[..., Any]) -> None:
        (fact,) = (await call("memory_lookup", entity="harbour"))["results"]
        text = fact["text"]
        while following := fact.get("next"):
            (fact,) = (await call(**following))["results"]
            text += fact["text"]
        assert text == f"cranes {TEXT * 2}"
        stored = await call("memory_store", text=f"derricks {TEXT}", entity="derrick")
        assert stored["fact"]["text_left"]
        assert (await call("memory_forget", query="derricks"))["candidates"]
        assert (await call("memory_forget", memoryId=stored["fact"]["id"]))["forgotten"]

    asking(house, program, work)


def test_many_facts_are_read_to_the_last(house: House, program: str) -> None:
    async def work(call: Callable[..., Any]) -> None:
        for tool, what in (
            ("memory_lookup", {"entity": "ship"}),
            ("memory_recall", {"query": "ship"}),
        ):
            pages = await read_on(call, tool, **what, limit=90)
            ids = {one["id"] for page in pages for one in page["results"]}
            assert len(ids) == 90
            assert "results_left_out" not in pages[-1]

    asking(house, program, work)


def test_a_long_checkpoint_says_how_it_is_read(house: House, program: str) -> None:
    async def work(call: Callable[..., Any]) -> None:
        saved = (await call("memory_checkpoint", action="restore"))["checkpoint"]
        assert saved["intent"] == "unload"
        text = ""
        following = saved["next"]
        while following:
            (fact,) = (await call(**following))["results"]
            text, following = text + fact["text"], fact.get("next")
        assert json.loads(text)["state"] == f"half done {TEXT}"

    asking(house, program, work)


def test_what_is_wrong_is_said_in_short(house: House, program: str) -> None:
    async def work(call: Callable[..., Any]) -> None:
        long = "nowhere " * 20_000
        for tool, arguments in (
            ("read_extracted", {"entry": "e2", "keys": [long]}),
            ("read_extracted", {"entry": long}),
            ("restore", {"session": long, "entry_id": "e2"}),
            ("purge_control", {"session": "s1", "action": long}),
            ("context", {"session": "s1", "action": "discard", "targets": [[long]] * 300}),
            ("memory_recall", {"query": "x", long: 1}),
            (long, {}),
        ):
            answer = await call(tool, **arguments)
            assert answer.get("error") or answer.get("errors")

    asking(house, program, work)


def test_nothing_is_left_behind_the_end(house: House) -> None:
    async def work(call: Callable[..., Any]) -> None:
        listing = await call("purge_control", session="s1", action="get_context", offset=10**6)
        assert (listing["entries"], listing["extracted_ids"]) == ([], [])
        assert "next" not in listing
        found = await call("search_extracted", session="s1", query="harbour", offset=1000)
        assert found["results"] == []
        facts = await call("memory_recall", query="ship", offset=1000)
        assert facts["results"] == []
        (fact,) = (await call("memory_recall", query="cranes"))["results"]
        behind = await call("memory_recall", id=fact["id"], offset=10**8)
        assert "there is no text from 100000000 on" in behind["error"]

    asking(house, "some-program", work)


def test_tools_say_that_their_answers_are_long(house: House) -> None:
    """Claude Code moves an answer of more than 50,000 characters to a file unless tools do."""

    async def work(client: Client) -> None:
        for tool in (await client.list_tools()).tools:
            gives = tool.name not in {
                *("context", "memory_store", "memory_confirm", "memory_forget", "memory_prune"),
            }
            said = {"anthropic/maxResultSizeChars": 500_000} if gives else None
            assert tool.meta == said, tool.name

    serve(house, work, "--tools", "all")


def test_a_text_is_a_block_of_its_own(house: House) -> None:
    async def work(client: Client) -> None:
        for tool, arguments in (
            ("restore_remote", {"entry": "e4", "inline": False}),
            ("restore", {"entry_id": "e4", "inline": False}),
            ("read_extracted", {"entry": "e4"}),
            ("purge_control", {"action": "restore", "entry": "e4", "inline": False}),
        ):
            result = await call_until_answered(client, tool, {"session": "s1", **arguments})
            head, block = texts_of(result)
            assert block == "harbour 4 " * 60
            assert "harbour" not in head
            assert result.structured_content is None

    serve(house, work)


def test_what_is_left_out_of_a_long_answer_is_counted(house: House, program: str) -> None:
    """Each of 2,000 targets is wrong in its own way."""

    async def work(call: Callable[..., Any]) -> None:
        targets = [[f"{number:06x}" + "0" * 60] for number in range(2000)]
        refused = await call("context", session="s1", action="discard", targets=targets)
        assert len(refused["errors"]) + refused["errors_left_out"] == 2000

    asking(house, program, work)
