// What a search finds: asked for, and as groups of rows that lead to it.

import { get, query } from "./api.js";
import { h } from "./dom.js";
import { needsAll } from "./finder_filters.js";
import { addressOf, badge, clipped, when } from "./widgets.js";

const HITS = 20;
const SESSIONS = 6;
const FILES = 6;
const NEWEST = 6;
const SECONDS = { "24h": 86_400, "7d": 7 * 86_400, "30d": 30 * 86_400 };
const DAY_MS = 86_400_000;
// A word that may be the name of a file, or its beginning; and one that may be a session's id.
const FILE = /^[^\s"*]{2,}\*?$/;
const ID = /^[A-Za-z0-9._@:+/-]{4,}$/;

/** Ask for all that fits. `values` as the finder has them; without words, for the newest sessions. */
export async function searchFor(values, signal) {
    const { q, agent, role, place, project, file } = values;
    const nothing = { sessions: [] };
    if (!q && file) return { withFile: (await get(`files${query({ path: file, agent, limit: HITS })}`, signal)).sessions };
    if (!q) {
        const newest = project ? nothing : await get(`sessions${query({ agent, limit: NEWEST })}`, signal);
        return { newest: newest.sessions };
    }
    const words = needsAll(values)
        ? { sessions: [], results: [] }
        : get(`search${query({ ...values, limit: HITS })}`, signal);
    // A role is that of a message, and a place that of a text: no file and no session has one.
    const isNarrow = role || project || file || place === "extracted" || place === "archived";
    const path = q.endsWith("*") ? q : `${q}*`;
    const files = FILE.test(q) && !isNarrow ? get(`files${query({ path, agent, limit: FILES })}`, signal) : nothing;
    const isId = ID.test(q) && !isNarrow && place !== "gone";
    const named = isId ? get(`sessions${query({ q, agent, limit: 4 * SESSIONS })}`, signal) : nothing;
    // Files and names are extras: if one of them cannot be had, the words are told.
    const extra = (asked) => Promise.resolve(asked).catch(() => nothing);
    const [found, withFile, withName] = await Promise.all([words, extra(files), extra(named)]);
    return { ...found, files: withFile.sessions, named: withName.sessions };
}

/** Groups of `{label, one, many, items: [{href, parts}]}`, in the order in which they are shown. */
export function groupsOf(found, values) {
    const { q } = values;
    if (found.withFile) {
        const items = found.withFile.filter(isOf(values)).flatMap((session) => itsFiles(session));
        return [{ label: "Files", one: "file", items }];
    }
    if (found.newest)
        return [
            { label: "Newest sessions", items: found.newest.map((one) => sessionItem(one)) },
            { label: "Go to", items: viewsWith("") },
        ];
    return [
        { label: "Sessions", one: "session", items: sessionsIn(found, values).map((one) => sessionItem(one)) },
        { label: "Files", one: "file", items: filesIn(found, values) },
        { label: "Messages", one: "message", items: found.results.map((hit) => hitItem(hit, q)) },
        { label: "Go to", items: viewsWith(q) },
        { label: "More", items: [everythingItem(values)] },
    ];
}

/**
 * The line of an entry that was found. The lines of a session may have been counted otherwise when a
 * text was taken out of it: there the entry is found by its id.
 */
export function lineOf({ where, index, gone, entry_id: id }) {
    return where === "extracted" && !gone && id && !/^\d+$/.test(id) ? id : index;
}

/** Where an entry is shown; of a session that is gone, where it can be brought back. */
export function placeOf({ session, gone }, { at, q }) {
    return gone ? `#/archive${query({ session, at })}` : `${addressOf(session)}${query({ at, q })}`;
}

/** Sessions that are called so; of those with hits, the ones whose title holds the words, too. */
function sessionsIn(found, values) {
    const terms = values.q.toLowerCase().replaceAll(/["*]/g, "").split(/\s+/).filter(Boolean);
    const holds = (text) => terms.every((term) => text.toLowerCase().includes(term));
    const isWanted = isOf(values);
    const titled = found.results.filter((hit) => hit.title && !values.role && holds(hit.title));
    // An agent's name alone would fit all its sessions.
    const nameOf = (one) => (values.q.includes("/") ? one.session : one.id);
    const named = found.named.filter((one) => holds(nameOf(one)) && isWanted(one));
    const all = new Map();
    for (const one of [...named, ...titled, ...found.sessions])
        if (!all.has(one.session)) all.set(one.session, one);
    return [...all.values()].slice(0, SESSIONS);
}

/** Whether a session, by what is known of it, meets the filters of time and place. */
function isOf({ since, until, place }) {
    const from = since ? momentOf(since) : -Infinity;
    const to = until ? momentOf(until) + DAY_MS : Infinity;
    return ({ updated, gone }) => {
        const time = Date.parse(updated);
        return from <= time && time < to && (!place || (place === "gone") === Boolean(gone));
    };
}

/** The moment of a filter in milliseconds; NaN, with which nothing is compared, if only bsd can read it. */
function momentOf(text) {
    return SECONDS[text] ? Date.now() - 1000 * SECONDS[text] : Date.parse(`${text}T00:00`);
}

function filesIn(found, values) {
    return found.files.filter(isOf(values)).flatMap((session) => itsFiles(session));
}

function itsFiles(session) {
    return session.files.slice(0, 2).map((file) => fileItem(session, file));
}

// --- rows ---

function row(title, more, facts) {
    return [
        h("span", { class: "finder-title" }, title),
        more && h("span", { class: "finder-more" }, more),
        h("span", { class: "finder-facts" }, facts.filter(Boolean)),
    ];
}

function goneBadge(one) {
    return one.gone && badge("gone", "warn", "Its program has deleted it: the archive brings it back");
}

function sessionItem(one) {
    const facts = [h("span", { class: "mono" }, one.session), one.updated && when(one.updated), goneBadge(one)];
    const title = h("span", { class: "finder-line" }, one.title || one.label || one.session);
    return { href: placeOf(one, {}), parts: row(title, null, facts) };
}

function hitItem(hit, q) {
    const facts = [
        h("span", { class: "mono" }, `${hit.session} #${hit.index}`),
        hit.role && h("span", null, hit.role === "toolResult" ? "tool" : hit.role),
        hit.time && when(hit.time),
        hit.where === "extracted" && clipped("extracted"),
        goneBadge(hit),
    ];
    return {
        href: placeOf(hit, { at: lineOf(hit), q }),
        parts: row(marked(hit.snippet, hit.matches), hit.title, facts),
    };
}

function fileItem(session, file) {
    const lines = [...(file.changed ?? []), ...(file.read ?? []), ...(file.named ?? [])];
    const uses = ["changed", "read", "named"]
        .filter((use) => file[use]?.length)
        .map((use) => `${use} ${file[use].slice(-3).map((line) => `#${line}`).join(" ")}`);
    const name = file.path.slice(file.path.lastIndexOf("/") + 1);
    const directory = file.path.slice(0, -name.length);
    const facts = [
        h("span", null, uses.join(", ")),
        directory && h("span", { class: "mono" }, directory),
        h("span", { class: "mono" }, session.session),
        when(session.updated),
        goneBadge(session),
    ];
    const at = (file.changed ?? file.read ?? lines).at(-1);
    return {
        href: placeOf(session, { at, q: name }),
        parts: row(h("span", { class: "mono" }, name), session.title, facts),
    };
}

/** The views whose names begin a word with `q`, as the header has them. */
function viewsWith(q) {
    const links = [...document.querySelectorAll("nav a")];
    return links
        .filter((link) => link.textContent.toLowerCase().startsWith(q.toLowerCase()))
        .map((link) => ({ href: link.getAttribute("href"), parts: row(link.textContent, null, []) }));
}

function everythingItem(values) {
    const { q } = values;
    const text = `Search everything for “${q}”`;
    const why = "Results of tools, thinking and archives, too";
    return { href: `#/find${query({ ...values, all: 1 })}`, parts: row(text, null, [h("span", null, why)]) };
}

/** A text with the pieces marked that `matches` names: [start, end) in characters. */
export function marked(text, matches) {
    const letters = [...text];
    const parts = [];
    let at = 0;
    for (const [start, end] of matches ?? []) {
        parts.push(letters.slice(at, start).join(""), h("mark", null, letters.slice(start, end).join("")));
        at = end;
    }
    return [...parts, letters.slice(at).join("")];
}
