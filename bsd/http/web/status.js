// The state of the daemon: health, queue, last results, disk use and savings.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { ago, bytes, clock, count, howLongKept, number, span } from "./format.js";
import { paced } from "./live.js";
import { noticeText } from "./notices.js";
import { clockTime, costText, cutsText, isCut, reasonWords, short, waitWords, waits } from "./timing.js";
import { badge, balance, facts, linkTo, savedTile, table, tile, when } from "./widgets.js";

const SHOWN = 30;
const LEVELS = {
    strong: ["strong", "good", "bsd notices writes of other programs even while it exchanges a file."],
    weak: ["weak", "warn", "On this file system bsd cannot prove that a file is unused, so it waits longer before a change."],
    none: ["none", "bad", "This file system cannot exchange files, so bsd does not edit its sessions."],
};

export async function statusView(page) {
    const body = h("div", { class: "stack" });
    const tiles = h("div", { class: "tiles", role: "group", "aria-label": "Totals" });

    const load = async () => {
        const [status, health] = await Promise.all([
            page.status(true),
            get("health").catch((error) => ({ status: "stopped", problems: [error.message] })),
        ]);
        fill(
            tiles,
            tile("State", status.state, health.status === "ok" ? "all is well" : health.status),
            savedTile(status.disk),
            tile(
                "Shorter since the start",
                bytes(status.totals?.bytes_saved),
                `≈ ${number(status.totals?.tokens_saved)} tokens of text; pictures and PDFs count none`,
            ),
            tile(
                "Values moved",
                number(status.totals?.values),
                `in ${count(status.totals?.entries ?? 0, "entry", "entries")}`,
            ),
            tile("Running for", span(status.uptime_seconds ?? 0), `bsd ${status.version}`),
        );
        fill(body, sections(status, health));
    };
    const plots = h("p", { class: "note" }, h("a", { href: "#/" }, "What was saved by day"));

    fill(page.main, h("h1", null, "Status"), tiles, body, plots);
    await load();
    const refresh = paced(() => load().catch(() => {}), 2000);
    return { onEvent: () => refresh(), leave: () => refresh.cancel() };
}

function sections(status, health) {
    return [
        problems(status, health),
        h(
            "div",
            { class: "columns" },
            watching(status),
            working(status),
            promptCache(status),
            doing(status),
            keeping(status),
            status.disk && onDisk(status.disk),
        ),
        results(status.sessions ?? []),
    ];
}

function card(title, ...content) {
    return h("section", { class: "card", "aria-label": title }, h("h2", null, title), content);
}

/** Problems are shown in red, mere notices are not. */
function problems(status, health) {
    const title = health.status === "ok" ? "Notices" : "Problems";
    const notices = status.notices ?? [];
    const others = (health.problems ?? []).filter(
        (text) =>
            !notices.some((one) => text.startsWith(one.text) || one.text.endsWith(text)),
    );
    const late = (health.late ?? []).map((loop) => `the loop ${loop} does not answer`);
    const found = [...notices, ...[...others, ...late].map((text) => ({ text }))];
    return (
        found.length > 0 &&
        h(
            "section",
            { class: health.status === "ok" ? "card told" : "card problem", "aria-label": title },
            h("h2", null, title),
            h(
                "ul",
                { class: "plain" },
                found.map((one) => h("li", null, noticeText(one))),
            ),
        )
    );
}

function watching({ roots = [], watcher = {} }) {
    const guarantees = roots.map((root) => {
        const [text, kind, why] = LEVELS[root.level] ?? [root.level, "plain", ""];
        return h(
            "li",
            null,
            h("span", { class: "mono wrap" }, root.path),
            " ",
            badge(text, kind, why),
            h("span", { class: "note block" }, `${root.filesystem}${root.why ? ` — ${root.why}` : ""}`),
        );
    });
    return card(
        "Watching",
        facts([
            ["Directories", number(watcher.directories)],
            ["Watched", number(watcher.watched)],
            ["By scan only", number(watcher.scan_only)],
        ]),
        h("h3", null, "Guarantee"),
        h("ul", { class: "plain" }, guarantees),
    );
}

function working({ queue = {}, workers = [] }) {
    const names = [
        ...["debouncing", "gathering", "cache_warm", "waiting", "ready", "working", "refused"],
        "retried",
    ];
    return card(
        "Queue",
        facts(
            names.map((name) => [
                name[0].toUpperCase() + name.slice(1).replace("_", " "),
                queue[name] === undefined ? null : number(queue[name]),
            ]),
        ),
        h("h3", null, "Workers"),
        h(
            "ul",
            { class: "plain" },
            workers.map((one) =>
                h(
                    "li",
                    null,
                    `${one.name}: `,
                    one.session
                        ? [linkTo(one.session, { class: "mono" }), ` since ${ago(one.since)}`]
                        : "idle",
                ),
            ),
        ),
    );
}

/** The sessions that wait for their prompt cache, and the cuts by reason; null if there are none. */
function promptCache({ prompt_cache: waiting = {}, totals = {} }) {
    const { sessions, tokens_ready: ready, tokens_rewritten: now, next_cold: cold } = waiting;
    const done = totals.tokens_rewritten;
    if (!sessions && !cutsText(totals.cuts)) return null;
    return card(
        "Prompt cache",
        facts([
            ["Waiting", count(sessions ?? 0, "session")],
            ["Tokens ready", sessions ? short(ready) : null],
            ["Next cold at", cold ? clockTime(cold) : null],
            [
                "Cuts now would rewrite",
                now ? `${short(now)} cached tokens (${costText(waiting.cost_now, waiting.unpriced)})` : null,
            ],
            ["Cuts", cutsText(totals.cuts)],
            ["Rewritten", done ? `${short(done)} cached tokens` : null],
        ]),
    );
}

function doing({ totals = {}, left_alone: alone = {}, search }) {
    const gaveUp = Object.entries(totals.give_ups ?? {});
    return card(
        "Totals",
        facts([
            ["Sessions", number(totals.sessions)],
            ["Commits", number(totals.commits)],
            ["Written", bytes(totals.bytes_written)],
            ["Busy", number(totals.busy)],
            ["Failed", number(totals.failed)],
            ["Search index", search && searchState(search)],
            [
                "Given up",
                gaveUp.length
                    ? gaveUp.map(([reason, times]) => `${reason}: ${number(times)}`).join(", ")
                    : "none",
            ],
            [
                "Left alone",
                alone.count
                    ? Object.entries(alone.reasons)
                          .map(([reason, times]) => `${reason}: ${number(times)}`)
                          .join(", ")
                    : "none",
            ],
        ]),
    );
}

function searchState({ complete, waiting, problem }) {
    if (problem) return problem;
    return complete ? "complete" : `${count(waiting, "session")} still to be read`;
}

function keeping({ retention = {}, root, started_at: started, config = {}, pid }) {
    return card(
        "Keeping",
        facts([
            ["Root", h("span", { class: "mono wrap" }, root)],
            ["Settings", h("span", { class: "mono wrap" }, config.path ?? "–")],
            ["Extracted content is kept", howLongKept(retention)],
            [
                "Next run",
                retention.next_run
                    ? `${ago(retention.next_run)}: ${count(retention.files ?? 0, "file")}, ${bytes(retention.bytes ?? 0)}`
                    : "none",
            ],
            [
                "Trash",
                retention.trash
                    ? `${count(retention.trash.all_sessions ?? 0, "session")}, ${bytes(retention.trash.all_bytes ?? 0)}; ${number(retention.trash.sessions)} due`
                    : null,
            ],
            ["Started", h("time", { datetime: started, title: started }, clock(started))],
            ["Process", pid],
        ]),
    );
}

function onDisk(disk) {
    return card(
        "On disk",
        facts([
            ["Left the sessions", bytes(disk.saved)],
            ["Store", bytes(disk.store)],
            ["Archive", bytes(disk.archive)],
            ["Search index", bytes(disk.index)],
            ["History", bytes(disk.history)],
            ["Databases", bytes(disk.databases)],
            ["Others", bytes(disk.others + disk.log + disk.orphans)],
            ["Kept in all", bytes(disk.kept)],
            ["Saved", balance(disk.net)],
            ["Once packed", balance(disk.net_when_packed)],
            ["Copies of sessions", bytes(disk.copies)],
            ["Trash", bytes(disk.trash)],
            ["Replaced versions", bytes(disk.in_flight.bytes)],
            ["Saved with these", bytes(disk.net_with_copies)],
        ]),
        disk.uncounted > 0 &&
            h("p", { class: "note" }, `What left ${count(disk.uncounted, "session")} is not counted yet.`),
    );
}

const KINDS = { extracted: "good", failed: "bad", busy: "warn", left_alone: "plain", unchanged: "plain" };

/** Why values in context left a session, or why they wait. */
function why(one) {
    const parts = [isCut(one) && `because ${reasonWords(one)}`, waits(one) && waitWords(one)];
    return parts.filter(Boolean).join("; ");
}

function results(sessions) {
    const newest = [...sessions].sort((a, b) => (a.at < b.at ? 1 : -1)).slice(0, SHOWN);
    if (!newest.length) return null;
    return card(
        "Last results",
        table(
            "Last results",
            [
                ["Session", null],
                ["Result", null],
                ["Values", "num"],
                ["Saved", "num"],
                ["When", null],
            ],
            newest.map((one) => [
                linkTo(one.session, { class: "mono" }),
                [
                    badge(one.status.replace("_", " "), KINDS[one.status] ?? "plain"),
                    (one.reason || why(one)) && h("span", { class: "note block" }, one.reason || why(one)),
                ],
                number(one.values),
                bytes(one.bytes_saved),
                when(one.at),
            ]),
        ),
    );
}
