// Requests of a search, and its results as groups of rows.

import { get, query } from "./api.js";
import { h } from "./dom.js";
import { needsAll } from "./finder_filters.js";
import { askHosts, factsOnHost, placeOnHost } from "./hosts.js";
import { addressOf, badge, clipped, when } from "./widgets.js";

const HITS = 20;
const SESSIONS = 6;
const FILES = 6;
const NEWEST = 6;
const SECONDS = { "24h": 86_400, "7d": 7 * 86_400, "30d": 30 * 86_400 };
const DAY_MS = 86_400_000;
// A word that may be (the beginning of) a file name, and a word that may be a session id.
const FILE = /^[^\s"*]{2,}\*?$/;
const ID = /^[A-Za-z0-9._@:+/-]{4,}$/;

/** Search with the finder's `values`; without words, load the newest sessions. */
export async function searchFor(values, signal) {
    const { q, agent, role, place, project, file } = values;
    if (values.host) return { onHosts: await askHosts(values, { limit: q ? HITS : NEWEST }, signal) };
    const nothing = { sessions: [] };
    if (!q && file) return { withFile: (await get(`files${query({ path: file, agent, limit: HITS })}`, signal)).sessions };
    if (!q) {
        const newest = project ? nothing : await get(`sessions${query({ agent, limit: NEWEST })}`, signal);
        return { newest: newest.sessions };
    }
    const words = needsAll(values)
        ? { sessions: [], results: [] }
        : get(`search${query({ ...values, limit: HITS })}`, signal);
    // Role and place apply to messages only, not to files and sessions.
    const isNarrow = role || project || file || place === "extracted" || place === "archived";
    const path = q.endsWith("*") ? q : `${q}*`;
    const files = FILE.test(q) && !isNarrow ? get(`files${query({ path, agent, limit: FILES })}`, signal) : nothing;
    const isId = ID.test(q) && !isNarrow && place !== "gone";
    const named = isId ? get(`sessions${query({ q, agent, limit: 4 * SESSIONS })}`, signal) : nothing;
    // If the search for files or sessions fails, still show the messages.
    const extra = (asked) => Promise.resolve(asked).catch(() => nothing);
    const [found, withFile, withName] = await Promise.all([words, extra(files), extra(named)]);
    return { ...found, files: withFile.sessions, named: withName.sessions };
}

/** Groups of `{label, one, many, items: [{href, parts}]}`, in the order in which they are shown. */
export function groupsOf(found, values) {
    const { q } = values;
    if (found.onHosts) return hostGroups(found.onHosts, values);
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
 * The line of a found entry; for extracted text its id instead, since line numbers may have changed
 * after the extraction.
 */
export function lineOf({ where, index, gone, entry_id: id }) {
    return where === "extracted" && !gone && id && !/^\d+$/.test(id) ? id : index;
}

/** The URL of an entry; for a deleted session, the URL in the archive. */
export function placeOf({ session, gone }, { at, q }) {
    return gone ? `#/archive${query({ session, at })}` : `${addressOf(session)}${query({ at, q })}`;
}

/** Sessions whose name matches, and sessions with hits whose title contains the words. */
function sessionsIn(found, values) {
    const terms = values.q.toLowerCase().replaceAll(/["*]/g, "").split(/\s+/).filter(Boolean);
    const holds = (text) => terms.every((term) => text.toLowerCase().includes(term));
    const isWanted = isOf(values);
    const titled = found.results.filter((hit) => hit.title && !values.role && holds(hit.title));
    // The name of an agent alone would match all its sessions.
    const nameOf = (one) => (values.q.includes("/") ? one.session : one.id);
    const named = found.named.filter((one) => holds(nameOf(one)) && isWanted(one));
    const all = new Map();
    for (const one of [...named, ...titled, ...found.sessions])
        if (!all.has(one.session)) all.set(one.session, one);
    return [...all.values()].slice(0, SESSIONS);
}

/** True if a session matches the filters of time and place, as far as the page can tell. */
function isOf({ since, until, place }) {
    const from = since ? momentOf(since) : -Infinity;
    const to = until ? momentOf(until) + DAY_MS : Infinity;
    return ({ updated, gone }) => {
        const time = Date.parse(updated);
        return from <= time && time < to && (!place || (place === "gone") === Boolean(gone));
    };
}

/** The time of a filter in milliseconds; NaN (never compares) for a form that only bsd can parse. */
function momentOf(text) {
    return SECONDS[text] ? Date.now() - 1000 * SECONDS[text] : Date.parse(`${text}T00:00`);
}

function filesIn(found, values) {
    return found.files.filter(isOf(values)).flatMap((session) => itsFiles(session));
}

function itsFiles(session) {
    return session.files.slice(0, 2).map((file) => fileItem(session, file));
}

/** Entries of other machines, or their last sessions. */
function hostGroups({ results, sessions }, values) {
    const items = (results ?? sessions).map((one) => ({
        href: placeOnHost(one, values),
        parts: row(one.title || one.session, one.here ? null : one.command, factsOnHost(one)),
    }));
    const { q, host, agent, role, since, until } = values;
    const href = `#/fleet${query({ q, host, agent, role, since, until })}`;
    return [
        results ? { label: "Messages", one: "message", items } : { label: "Newest sessions", items },
        { label: "More", items: [{ href, parts: row("Show them in a list", null, []) }] },
    ];
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
    return one.gone && badge("gone", "warn", "Its program has deleted it; you can bring it back from the archive");
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
    const why = "Also searches tool results, thinking and archives";
    return { href: `#/find${query({ ...values, all: 1 })}`, parts: row(text, null, [h("span", null, why)]) };
}

/** Return a text with its `matches` marked; each is [start, end) in characters. */
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
