"""Writes bsd/maintenance/secret_rules.json from the rules of gitleaks.

    python packaging/secret_rules.py gitleaks.toml VERSION

gitleaks (https://github.com/gitleaks/gitleaks, MIT) maintains patterns of keys and passwords in the
syntax of RE2. This program translates them for Python's `re`, and adds to each pattern the literal
text with which `bsd/maintenance/secret_patterns.py` finds the few places that are worth a regular
expression:

- `prefix`: the secret itself begins with one of `heads`;
- `assigned`: a name that contains one of `heads`, an operator such as `=` or `:`, the secret;
- `near`: one of `heads` is within some hundred bytes of the secret.

Two kinds of rules are left out: those for files of a certain name, since a transcript has no such
names; and the two about curl, which take exponential time in a backtracking engine. `_OWN` has
substitutes for those two.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

_parser: Any = import_module("re._parser")  # only it returns the longest match of a pattern
_TARGET = Path(__file__).parents[1] / "bsd" / "maintenance" / "secret_rules.json"
_LONGEST = 8192  # bytes: an armoured private key
_ASSIGNED = re.compile(r"(?:\(\?i\)|\[\\w\.-\]\{0,50\}\?\(\?i:)\[\\w\.-\]\{0,50\}\?")
_LEAD = re.compile(r"(?:\\b|\(\?i\)|\(\?:|\(|\(\?i:)*")
_IGNORE_CASE = "(?i)"
# An escape, a class of characters, a flag, or one character.
_PARTS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?i\)|.", re.DOTALL)
_SLOW = frozenset(("curl-auth-header", "curl-auth-user"))
# For patterns whose beginning `begins_with` cannot find, or whose keywords are too vague.
_HEADS = {
    "airtable-personnal-access-token": ["pat"],
    "aws-access-token": ["a3t", "akia", "asia", "abia", "acca"],
    "cloudflare-origin-ca-key": ["v1.0-"],
    "doppler-api-token": ["dp.pt."],
    "dynatrace-api-token": ["dt0c01."],
    "flyio-access-token": ["fo1_", "fm1", "fm2_"],
    "harness-api-key": ["pat.", "sat."],
    "intra42-client-secret": ["s-s4t2ud-", "s-s4t2af-"],
    "openai-api-key": ["sk-"],
    "sendgrid-api-token": ["sg."],
    "slack-config-access-token": ["xoxe.xoxb-", "xoxe.xoxp-"],
    "slack-user-token": ["xoxp-", "xoxe-"],
    "twilio-api-key": ["sk"],
    "vault-batch-token": ["hvb."],
    "vault-service-token": ["hvs.", "s."],
}
_NEW_RELIC = ["new-relic", "newrelic", "new_relic"]
# For other patterns: texts in the name, or near the secret.
_NEAR = {
    "lob-api-key": ["lob"],
    "lob-pub-api-key": ["lob"],
    "new-relic-browser-api-token": _NEW_RELIC,
    "new-relic-insert-key": _NEW_RELIC,
    "new-relic-user-api-key": _NEW_RELIC,
    "typeform-api-token": ["typeform"],
    "azure-ad-client-secret": ["q~"],
    "microsoft-teams-webhook": ["webhook.office.com"],
    "sourcegraph-access-token": ["sourcegraph", "sgp_"],
}
_OWN: list[dict[str, Any]] = [
    {
        "id": "atlassian-api-token",  # the second half of gitleaks' rule
        "kind": "prefix",
        "heads": ["atatt3"],
        "regex": r"ATATT3[A-Za-z0-9_\-=]{186}",
        "entropy": 3.5,
    },
    {
        "id": "authorization-header",
        "kind": "prefix",
        "heads": ["authorization"],
        "regex": r"(?i)\bauthorization['\"]?\s{0,3}[:=]\s{0,3}['\"]?(?:basic|bearer|token)\s{1,3}"
        r"([\w=~@.+/-]{8,2000})",
        "entropy": 2.75,
    },
    {
        "id": "curl-user",
        "kind": "prefix",
        "heads": ["curl"],
        "regex": r"\bcurl\b[^\r\n]{0,400}?[ \t](?:-u|--user)[= \t]{1,5}['\"]?"
        r"([^\s:'\"$<]{2,64}:[^\s'\"$<*]{4,128})",
        "entropy": 2.0,
    },
    {
        "id": "url-password",
        "kind": "near",
        "heads": ["://"],
        "regex": r"(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@\"'<>$*{\[]{1,80}:"
        r"([^\s:/@\"'<>$*{\[]{5,100})@[a-z0-9\[]",
        "entropy": 2.5,
        "allow": [r"(?i)^(?:pass(?:word|wd)?|secret|token|pwd|changeme|example)$"],
    },
]


def main(source: str, version: str) -> None:
    """Read gitleaks' configuration, and write the rules."""
    document = tomllib.loads(Path(source).read_text())
    rules = [*filter(None, map(rule_of, document["rules"])), *_OWN]
    for rule in rules:
        longest = int(_parser.parse(rule["regex"].encode()).getwidth()[1])
        rule["after"] = min(longest, _LONGEST)
    allowlist = document["allowlist"]
    written = {
        "source": "https://github.com/gitleaks/gitleaks, config/gitleaks.toml",
        "version": version,
        "license": "MIT, see secret_rules.LICENSE",
        "allow": [for_python(each) for each in allowlist["regexes"]],
        "stopwords": allowlist["stopwords"],
        "rules": rules,
    }
    _TARGET.write_text(json.dumps(written, indent=1, ensure_ascii=True) + "\n")


def rule_of(rule: dict[str, Any]) -> dict[str, Any] | None:
    """Return a rule of gitleaks in the form of the file; None if it is left out."""
    if "path" in rule or rule["id"] in _SLOW:
        return None
    regex = rule["regex"]
    keywords = [keyword.lower() for keyword in rule["keywords"]]
    if match := _ASSIGNED.match(regex):
        # Text before the name only makes the match longer.
        kind, heads = "assigned", _NEAR.get(rule["id"], keywords)
        regex = ("(?i:" if match[0].endswith(r"?(?i:[\w.-]{0,50}?") else "(?i)") + regex[
            match.end() :
        ]
    else:
        rest = regex[_LEAD.match(regex).end() :]  # type: ignore[union-attr]
        begins = [key for key in keywords if begins_with(rest, key)]
        heads = _HEADS.get(rule["id"]) or _NEAR.get(rule["id"], keywords)
        kind = "prefix" if rule["id"] in _HEADS or begins == keywords else "near"
    made: dict[str, Any] = {
        "id": rule["id"],
        "kind": kind,
        "heads": heads,
        "regex": for_python(regex),
    }
    for name in ("entropy", "secretGroup"):
        if name in rule:
            made[name] = rule[name]
    for allowed in rule.get("allowlists", ()):
        target = "allow_match" if allowed.get("regexTarget") == "match" else "allow"
        made.setdefault(target, []).extend(map(for_python, allowed.get("regexes", ())))
        made.setdefault("stopwords", []).extend(allowed.get("stopwords", ()))
    return {name: value for name, value in made.items() if value != []}


def begins_with(regex: str, keyword: str) -> bool:
    """Return whether some match of `regex` begins with a keyword, in any case."""
    return any(text.startswith(keyword) for text in beginnings(regex.replace("\\", "").lower()))


def beginnings(regex: str) -> Iterator[str]:
    """Yield the beginnings of a pattern's matches: its first groups of literals, expanded."""
    done = [""]
    at = 0
    while at < len(regex) and len(done) < 64:
        if group := re.compile(r"\(?(?:\?:)?([a-z0-9_.|-]+\|[a-z0-9_.|-]+)\)").match(regex, at):
            done = [head + each for head in done for each in group[1].split("|")]
            at = group.end()
        elif one := re.compile(r"\[([a-z]{1,4})\]").match(regex, at):
            done = [head + each for head in done for each in one[1]]
            at = one.end()
        elif re.match(r"[a-z0-9_~<=-]", regex[at]):
            done = [head + regex[at] for head in done]
            at += 1
        else:
            break
    yield from done


def for_python(regex: str) -> str:
    r"""Translate a regular expression of RE2 for Python's `re`.

    In RE2, `(?i)` holds from its place to the end of its group, `$` and `\z` mean Python's `\Z`,
    and POSIX classes have names.
    """
    written: list[str] = []
    opened = [False]  # for each open group: whether `(?i:` was opened in it
    for at, part in enumerate(_PARTS.findall(regex.replace("[[:alnum:]]", "[a-zA-Z0-9]"))):
        if part == _IGNORE_CASE and at:
            written.append("" if opened[-1] else "(?i:")
            opened[-1] = True
        elif part in {")", "|"}:
            was = opened.pop() if part == ")" else opened[-1]
            written += [")" if was else "", part, "(?i:" if was and part == "|" else ""]
        elif part.startswith("[") and len(part) > 1:
            written.append(_in_class(part))
        else:
            opened += [False] if part == "(" else []
            written.append(r"\Z" if part in {"$", r"\z"} else part)
    made = "".join(written) + (")" if opened[-1] else "")
    re.compile(made.encode())
    return made


def _in_class(part: str) -> str:
    """Escape brackets in a class of characters, as a later Python may read them otherwise."""
    head = re.match(r"\[\^?", part)[0]  # type: ignore[index]
    return head + re.sub(r"\\.|[\[\]]", _escaped, part[len(head) : -1]) + "]"


def _escaped(found: re.Match[str]) -> str:
    return found[0] if len(found[0]) > 1 else "\\" + found[0]


if __name__ == "__main__":
    main(*sys.argv[1:])
