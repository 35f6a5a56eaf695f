// Upcoming deletions: tonight by bsd and by agents' programs, and within days by these programs.

import { get } from "./api.js";
import { h } from "./dom.js";
import { ago, bytes, clock, count, number } from "./format.js";
import { linkTo, tile, when } from "./widgets.js";

const SHOWN = 10; // sessions of one program

export const askTonight = (signal) => get("retention?at=tonight", signal);

/** A tile with the number of deletions; `found` is null until it is loaded. */
export function tonightTile(found) {
    if (!found) return tile("Deleted tonight", "…");
    const sessions = sum(found.programs, "count");
    const lacking = sum(found.programs, "uncopied");
    const words = [
        found.deleted > 0 && `${count(found.deleted, "file")} by bsd`,
        sessions > 0 && `by their programs; ${lacking ? `${number(lacking)} without a copy` : "bsd has copies"}`,
        found.moved > 0 && `${count(found.moved, "file")} into the archive`,
    ].filter(Boolean);
    const most = sessions ? count(sessions, "session") : found.deleted ? count(found.deleted, "file") : "nothing";
    return tile("Deleted tonight", most, words.join(", ") || `until ${clock(found.at)}`);
}

/** The same as sentences, with the list of sessions. */
export function tonightCard(found) {
    return h(
        "section",
        { class: "card", "aria-label": "Deleted tonight" },
        h("h2", null, "Deleted tonight"),
        h("p", null, `Until ${clock(found.at)}: ${byDaemon(found)}`),
        found.programs.length
            ? found.programs.map((program) => byProgram(program))
            : h("p", null, "No agent's program deletes a session by its age until then."),
    );
}

function byDaemon({ last_run: runs, next_run: next, moved, moved_bytes: size, deleted, deleted_bytes: gone }) {
    if (!next) return "bsd deletes no content by itself, since the setting `retention` is `never`.";
    if (!runs) return `bsd deletes no content until then; its next run is ${clock(next)}.`;
    return (
        `bsd deletes ${count(deleted, "file")} (${bytes(gone)}) for good,` +
        ` and moves ${count(moved, "file")} (${bytes(size)}) into the archive.`
    );
}

function byProgram({ rule, count: all, bytes: size, sessions }) {
    return [
        h("p", null, `${rule}: ${count(all, "session")}, ${bytes(size)}.`),
        h(
            "ul",
            { class: "plain" },
            sessions.slice(0, SHOWN).map((one) =>
                h(
                    "li",
                    null,
                    linkTo(one.session, { class: "mono wrap" }),
                    `, ${bytes(one.size)}, due `,
                    when(one.due_at),
                    one.copied ? "" : ", no copy yet",
                ),
            ),
            all > SHOWN && h("li", null, `and ${number(all - SHOWN)} more`),
        ),
    ];
}

/** The sessions that an agent's program deletes within days. */
export function deletedSoon(agent) {
    const { title, deleted_soon: soon, without_copy: lacking, leaving } = agent;
    const none = soon === 1 ? "there is no copy" : `${number(lacking)} of them have no copy`;
    const copies = lacking ? `${none} yet: bsd makes one as soon as they are idle.` : "bsd has copies.";
    return [
        h("p", null, `${count(soon, "session")} will be deleted by ${title} within 7 days; ${copies}`),
        h(
            "ul",
            { class: "plain" },
            leaving.map((one) =>
                h(
                    "li",
                    null,
                    linkTo(one.session, { class: "mono" }),
                    `, ${bytes(one.size)}, ${goes(one.deleted_at)}${one.has_copy ? "" : ", no copy yet"}`,
                ),
            ),
            soon > leaving.length && h("li", null, `and ${number(soon - leaving.length)} more`),
        ),
    ];
}

const goes = (iso) => (Date.parse(iso) <= Date.now() ? "when it starts next" : ago(iso));
const sum = (all, name) => all.reduce((total, one) => total + one[name], 0);
