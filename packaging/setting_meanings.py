"""The meaning of each setting of config.json, as Markdown for `settings.md`."""

from __future__ import annotations

from collections.abc import Mapping

MEANINGS: Mapping[str, str] = {
    "enabled": (
        "The main switch. If it is `false`, neither the daemon nor a scheduled job extracts "
        "values. `bsd extract` does not extract either, and everything that is stored can still"
        " be restored."
    ),
    "trigger_types": (
        "The types of values that leave a session. If the list is empty, no value leaves."
    ),
    "trigger_rules": (
        "[Rules](#trigger-rules) for finer control. If there are rules, bsd uses them instead "
        "of `trigger_types`. A rule may have its own `min_length`, `keep_recent` and "
        "`keep_chars`."
    ),
    "keep_recent": "This number of the newest messages stays whole.",
    "min_value_length": "Values that are shorter stay in the session.",
    "keep_chars": (
        "This number of characters from the beginning of a value stays in front of its placeholder."
    ),
    "age_threshold_hours": (
        "Younger entries stay whole. Fractions are allowed. If it is 0, age does not matter."
    ),
    "scan_interval_seconds": (
        "How often the daemon looks for changes that the file system has not reported."
    ),
    "auto_cron": (
        "When the daemon extracts from all sessions that have changed since its last look."
    ),
    "when": (
        "When values that the model sees may leave. After a value leaves a warm prompt cache, the "
        "provider caches the rest of the session again, at a price. If the value is `cold`, the "
        "daemon waits until the cache is cold. If it is `pays`, the daemon waits too, but extracts "
        "earlier if the further calls will probably earn the cost, or if the next request stays "
        "below a price step. If the prices of a model are unknown, `pays` works as `cold`. Values "
        "that no model is sent leave at once. `bsd extract` does not wait."
    ),
    "retention": (
        "How long extracted values stay in the store as they were. After that time they move "
        "into the compressed archive, or are deleted for good if `archive` is `false`."
    ),
    "retention_cron": "When the daemon moves and deletes expired content.",
    "trash_retention": (
        "How long deleted sessions stay in the trash, and how long changes can be undone."
    ),
    "archive": (
        "If it is `true`, values that are older than `retention` are compressed and can still "
        "be restored. If it is `false`, they are deleted for good and their placeholders stay."
    ),
    "archive_retention": (
        "How long the archive keeps values. Values that were archived longer ago are deleted "
        "for good."
    ),
    "archive_max_bytes": (
        "The largest size of the archive, with its copies of sessions. If it is exceeded, "
        "copies of sessions that still exist are deleted first, then the oldest content. If it "
        "is 0, there is no limit."
    ),
    "archive_sessions": (
        "How long bsd keeps copies of sessions after their program has deleted them. `never` "
        "keeps them for ever; `off` makes no copies."
    ),
    "search_index": (
        "If it is `true`, bsd keeps an index of the text of users and assistants, of titles, "
        "tools and paths. If it is `false`, its words are deleted, and text is found only with "
        "`bsd search --all`."
    ),
    "keep_restore_remote_calls": (
        "If it is `true`, calls of `restore_remote` stay in the session. If it is `false`, bsd "
        "removes them after it has carried them out."
    ),
    "keep_purge_control_calls": (
        "If it is `true`, calls of `purge_control` and `restore` stay in the session. If it is "
        "`false`, bsd shortens them."
    ),
    "keep_after_restore_seconds": "A restored entry is not extracted again for this time.",
    "scope": (
        "Which values may leave: all, or only those that are shown to people and never sent to "
        "the model."
    ),
    "prefix_bound": (
        "Some models sign everything that was sent before their thinking, and refuse a session "
        "in which it has changed. `skip` leaves such values in the session."
    ),
    "prefix_bound_models": (
        "Regular expressions for the names of models whose signatures cover everything before them."
    ),
    "protected_tools": (
        "Names of tools whose calls and results agents may not replace, discard or distill."
    ),
    "exclude": (
        "Agents, sessions and projects that bsd leaves out: `AGENT`, `AGENT/SESSION`, or a "
        "directory such as `~/secret` with everything below it. `*` stands for any text and `?`"
        " for one character. `bsd exclude` changes the list."
    ),
}
