"""Writes `http-api.md` and `http-api-objects.md` from the OpenAPI document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from unittest.mock import MagicMock

from markdown_text import anchor, code, heading, page, sentence, table, value

from bsd.core.errors import (
    BsdError,
    Busy,
    ConfigError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    TemporaryFailure,
    Unavailable,
)
from bsd.http.app import create_app

_Schema = Mapping[str, Any]

_SOURCE = re.compile(r" \((?:seed|SPEC) [^)]*\)|Seed \d+'s \w+: ")

_INTRODUCTION = """\
A running daemon (`bsd run`) answers in JSON on a Unix socket that only its owner may open:

```console
$ curl --unix-socket ~/.openclaw/.brainsurgeon/bsd.sock http://bsd/api/health
…"status":"ok"…
```

With `bsd run --http 127.0.0.1:8000`, or the setting [`http`](settings.md#http), it answers on TCP
as well. If [`api_keys`](settings.md#api_keys) are set, a request on TCP needs one of them in the
header `X-API-Key`. The OpenAPI document is at `/api/openapi.json`.

A session is named by its agent and its id, an entry by its id. An entry's id that is all digits and
that no entry has is a line number, counted from 0; `%23n` is always a line number. Sizes are bytes
and times are ISO 8601, unless a field says otherwise. The fields of the answers are described in
[HTTP API: objects](http-api-objects.md)."""
_ERROR = """\
Every error is a JSON object: `error` describes the failure, `hint` suggests a remedy, and `errors`
names the bad fields. `hint` and `errors` may be missing."""
_OBJECTS = """\
The objects that the routes of the [HTTP API](http-api.md) take and return. A field that is marked
as optional may be missing."""
_TITLES = {
    "state": "Status",
    "jobs": "Jobs",
    "config": "Settings",
    "sessions": "Sessions",
    "entries": "Entries",
    "trash": "Trash and retention",
    "archive": "Archive",
    "pauses": "Pauses",
    "setup": "Agents",
    "notices": "Notices",
    "memory": "Memory",
    "workspaces": "Workspaces",
    "events": "Events",
    "hooks": "Hooks",
    "secrets": "Secrets",
    "export": "Export",
    "prices": "Prices",
    "fleet": "Many machines",
}
# Parameters that mean the same in every route; a description in the document wins.
_PARAMETERS = {
    "agent": "only of this agent",
    "after": "`next` of the page before",
    "cursor": "the cursor for the next page, from the last answer",
    "dry_run": "report the changes without making them",
    "entry": "only this entry",
    "format": "form of the file",
    "from": "the first line, counted from 0",
    "hash": "hash of the secret, or its beginning",
    "id": "id of the session in the trash",
    "include_expired": "also facts that have expired",
    "include_superseded": "also facts that a newer fact has replaced",
    "kind": "the program that sends it: `claude-code`",
    "largest": "number of the largest sessions in the answer",
    "limit": "largest number of items in the answer",
    "name": "name of the job",
    "permanent": "delete for good, without the trash",
    "redact": "replace keys and passwords by `[redacted-RULE]`",
    "session_id": "name of the workspace",
}
_ERRORS: Mapping[type[BsdError], str] = {
    Invalid: "the input is wrong; no change was made",
    ConfigError: "the settings cannot be used",
    Forbidden: "the operating system or bsd's own rules refuse access",
    NotFound: "the session, entry or key does not exist",
    Conflict: "the object is not in a state in which this can be done",
    Busy: "a session is in use; the same request may succeed later",
    Unavailable: "something that bsd needs is not there, such as space on the disk",
    TemporaryFailure: "a passing failure; everything is as it was",
    BsdError: "any other failure",
}


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document, without references to the sources of the specification."""
    document = json.dumps(create_app(MagicMock(), MagicMock()).openapi())
    told: dict[str, Any] = json.loads(_SOURCE.sub("", document))
    return told


def api_page(document: _Schema) -> str:
    """Return the page of the routes."""
    parts = [_errors(), "## Overview", _overview(document)]
    for tag, title in _TITLES.items():
        parts.append(heading(2, title, f"section-{tag}"))
        for method, path, operation in _operations(document):
            if operation["tags"][0] == tag:
                parts.append(_route(method, path, operation, document["components"]["schemas"]))
    return page("HTTP API", _INTRODUCTION, parts)


def objects_page(document: _Schema) -> str:
    """Return the page of the objects."""
    parts = []
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts += [heading(2, code(name), anchor(name)), sentence(schema.get("description", ""))]
        if "properties" in schema:
            parts.append(_fields(schema, ""))
        else:
            parts.append(f"Values: {_type(schema, '')}.")
    return page("HTTP API: objects", _OBJECTS, filter(None, parts), searched=False)


def _operations(document: _Schema) -> Iterator[tuple[str, str, _Schema]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _errors() -> str:
    rows: dict[int, list[str]] = {}
    for kind, text in _ERRORS.items():
        rows.setdefault(kind.status, []).append(text)
    lines = [
        "## Errors",
        _ERROR,
        table(
            ("Status", "Meaning"),
            [
                (code(str(status)), " ".join(map(sentence, texts)))
                for status, texts in sorted(rows.items())
            ],
        ),
    ]
    return "\n\n".join(lines)


def _overview(document: _Schema) -> str:
    rows = []
    for tag in _TITLES:
        for method, path, operation in _operations(document):
            if operation["tags"][0] == tag:
                name = f"[{code(f'{method} {path}')}](#{anchor(f'{method} {path}')})"
                rows.append((name, _first_sentence(operation)))
    return table(("Route", "Effect"), rows)


def _first_sentence(operation: _Schema) -> str:
    first: str = operation["description"].split("\n\n")[0]
    return sentence(first.partition("; ")[0] if len(first) > 100 else first)


def _route(method: str, path: str, operation: _Schema, schemas: _Schema) -> str:
    parts = [heading(3, code(f"{method} {path}"), anchor(f"{method} {path}"))]
    parts += [sentence(text) for text in operation["description"].split("\n\n")]
    shown = [one for one in operation.get("parameters", ()) if _is_told(one)]
    if shown:
        rows = [_parameter(one) for one in shown]
        parts.append(table(("Parameter", "Type", "Default", "Meaning"), rows))
    if "requestBody" in operation:
        parts.append(_body(operation["requestBody"], schemas))
    parts.append(_answer(operation["responses"]))
    return "\n\n".join(parts)


def _is_told(parameter: _Schema) -> bool:
    """False for the parts of a session's name, which the page's head explains."""
    return parameter["in"] != "path" or parameter["name"] not in {"agent", "session", "entry"}


def _parameter(one: _Schema) -> tuple[str, str, str, str]:
    schema, name = one["schema"], one["name"]
    place = " (in the path)" if one["in"] == "path" else ""
    needed = "needed" if one["required"] else "optional"
    default = value(schema["default"]) if schema.get("default") not in {None, ""} else needed
    meaning = one.get("description") or _PARAMETERS.get(name, "")
    kind = _type(schema, _PAGE).removesuffix(" or null")
    return code(name) + place, kind, default, sentence(meaning)


def _body(body: _Schema, schemas: _Schema) -> str:
    """Return the sentence on a body, and the table of its fields."""
    kind, content = next(iter(body["content"].items()))
    schema = content["schema"]
    optional = "" if body.get("required") else ", optional"
    described = schema.get("description", "")
    for member in schema.get("anyOf", (schema,)):
        if reference := member.get("$ref"):
            schema = schemas[reference.rpartition("/")[2]]
            described = described or schema.get("description", "")
    text = f"Body ({code(kind)}{optional}): {sentence(described) or 'a JSON object.'}"
    if "properties" in schema:
        return f"{text}\n\n{_fields(schema, _PAGE)}"
    return text


def _answer(responses: Mapping[str, _Schema]) -> str:
    told = []
    for status, response in sorted(responses.items()):
        if status == "default":
            continue
        content = response.get("content")
        if not content:
            text = sentence(response["description"])
        elif "application/json" in content:
            text = f"{_type(content['application/json']['schema'], _PAGE)}."
        else:
            text = f"{code(next(iter(content)))}."
        told.append(f"Answer {code(status)}: {text}")
    return " ".join(told)


_PAGE = "http-api-objects.md"


def _fields(schema: _Schema, target: str) -> str:
    needed = schema.get("required", ())
    rows = []
    for name, member in schema["properties"].items():
        optional = "" if name in needed else "optional"
        if member.get("default") not in (None, [], {}, ""):
            optional = f"default {value(member['default'])}"
        told = "; ".join(filter(None, [member.get("description", "").rstrip("."), optional]))
        rows.append((code(name), _type(member, target), sentence(told) if told else ""))
    return table(("Field", "Type", "Meaning"), rows)


def _type(schema: _Schema, target: str) -> str:
    """Return the type of a value in words, with links to the objects on the page `target`."""
    match schema:
        case {"$ref": reference}:
            name = str(reference).rpartition("/")[2]
            return f"[{code(name)}]({target}#{anchor(name)})"
        case {"anyOf": members} | {"oneOf": members}:
            return " or ".join(dict.fromkeys(_type(member, target) for member in members))
        case {"type": "array", "items": items}:
            return f"list of {_type(items, target)}"
        case {"type": "object", "additionalProperties": dict(inner)} if inner:
            return f"object of {_type(inner, target)}"
    return _plain_type(schema)


def _plain_type(schema: _Schema) -> str:
    """Return the type of a value that holds no other, in words."""
    match schema:
        case {"enum": choices}:
            return ", ".join(map(value, choices))
        case {"type": "array"}:
            return "list"
        case {"type": "integer" | "number" as kind}:
            return f"{kind}{_range(schema)}"
        case {"type": list(kinds)}:
            return " or ".join(kinds)
        case {"type": str(kind)}:
            return kind
    return "any value"


def _range(schema: _Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f" from {low:.0f} to {high:.0f}"
    return f" of at least {low:.0f}" if low is not None else ""
