"""The queries of the sample dashboard, asked of a catalogue."""

from __future__ import annotations

import json
import re

import pytest

from tests.fleet.catalogue.conftest import MakeMember
from tests.openclaw_tree import add_session
from tests.packaging.units import TOP
from tests.servers.postgres import Postgres  # noqa: F401 - tests with a server share a process
from tests.session_files import sample

pytestmark = pytest.mark.servers

_DASHBOARD = TOP / "contrib" / "fleet" / "grafana" / "catalogue.json"


def test_a_catalogue_answers_every_query_of_the_dashboard(member: MakeMember) -> None:
    host = member("alpha")
    add_session(host.layout.root, "main/s1", sample(6))
    host.ingest()
    document = json.loads(_DASHBOARD.read_bytes())
    queries = [target["rawSql"] for panel in document["panels"] for target in panel["targets"]]
    queries += [one["query"] for one in document["templating"]["list"] if one["type"] == "query"]
    empty = []
    for query in queries:
        ask = re.sub(r"\$__timeFilter\(([\w.]+)\)", r"\1 < 'infinity'", query)
        if not host.ask(ask.replace("$host", "'alpha'")):
            empty.append(query)
    assert len(queries) > 10
    # Nothing was extracted.
    assert [query for query in empty if "savings_by_hour" not in query] == []
