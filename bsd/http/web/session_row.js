// Rows of lists: a session, and an entry that a search found.

import { h } from "./dom.js";
import { bytes, count, dollars, number } from "./format.js";
import { lineOf, marked, placeOf } from "./found.js";
import { clockTime, timingWords, waits } from "./timing.js";
import { badge, clipped, linkTo, when } from "./widgets.js";

const STALE_MS = 24 * 3600 * 1000;

export function sessionRow(session) {
    const saved = session.saved_bytes || session.extracted_bytes;
    const models = session.models?.length ? session.models.join(", ") : session.model;
    const facts = [
        when(session.updated),
        typeof session.messages === "number" && count(session.messages, "message"),
        typeof session.tool_calls === "number" && count(session.tool_calls, "call"),
        models,
        spent(session),
    ];
    return linkTo(
        session.session,
        { class: "row" },
        h(
            "span",
            { class: "row-main" },
            h(
                "span",
                { class: "row-title" },
                h("span", { class: "row-name" }, session.title || session.label || session.id),
                badges(session),
            ),
            h("span", { class: "row-id" }, session.session),
            h(
                "span",
                { class: "row-facts" },
                facts.filter(Boolean).map((fact) => h("span", null, fact)),
            ),
        ),
        h(
            "span",
            { class: "row-sizes" },
            h("span", { class: "row-size" }, bytes(session.size)),
            saved > 0 &&
                h(
                    "span",
                    { class: "row-saved" },
                    `${bytes(saved)} ${session.saved_bytes > 0 ? "saved" : "taken out"}`,
                ),
        ),
    );
}

/** The cost of a session, if its program recorded it; else its tokens, since bsd knows no prices. */
export function spent({ cost, tokens }) {
    if (cost) return dollars(cost);
    return tokens?.total ? `${number(tokens.total)} tokens` : null;
}

/** An entry that a search for `q` found. */
export function hit(found, q) {
    const href = placeOf(found, { at: lineOf(found), q });
    const where = h("a", { class: "mono", href }, `${found.session} #${found.index}`);
    return h(
        "li",
        null,
        where,
        " ",
        found.where === "extracted" && clipped("extracted"),
        found.gone && badge("gone", "warn", "Its program has deleted it; you can bring it back from the archive"),
        h("span", { class: "block" }, marked(found.snippet, found.matches)),
    );
}

export function badges(session) {
    const stale = session.is_stale ?? Date.now() - Date.parse(session.updated) > STALE_MS;
    return [
        session.status &&
            badge(session.status, session.status === "running" ? "busy" : "plain", "Status in sessions.json"),
        session.parent && badge("child", "plain", `Child of ${session.parent}`),
        waits(session) &&
            badge(`waits until ${clockTime(session.cache_warm_until)}`, "plain", timingWords(session)),
        session.paused && badge("paused", "warn", `Not edited: paused by ${session.paused}`),
        session.left_alone && badge("left alone", "warn", session.left_alone),
        stale && badge("stale", "plain", "Not written to for 24 hours"),
        session.extracted_entries > 0 &&
            clipped(
                number(session.extracted_entries),
                `${count(session.extracted_entries, "entry", "entries")} extracted`,
            ),
    ];
}
