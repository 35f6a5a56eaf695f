// Machines that share a catalogue: the choice of one, and their entries and sessions.

import { get, query } from "./api.js";
import { copyButton, fill, h } from "./dom.js";
import { bytes, count, dollars } from "./format.js";
import { addressOf, badge, when } from "./widgets.js";

export const ALL = "*";
// Filters of the search that the catalogue of all machines does not have.
const LOCAL = { place: "Where", project: "Project", file: "File touched" };
const ROLES = ["", "user", "assistant"]; // the catalogue has no words of others

/**
 * A select for the machine, hidden as long as there is no catalogue. `choose(host)` gets "" for this
 * machine, and `*` for all.
 */
export function hostSelect(chosen, choose) {
    const element = h("select", {
        name: "host",
        "aria-label": "Machine",
        hidden: !chosen,
        onchange: (event) => choose(event.target.value),
    });
    const draw = (others) => {
        const known = [["", "This machine"], [ALL, "All machines"], ...others.map((name) => [name, name])];
        const shown = known.some(([value]) => value === chosen) ? known : [...known, [chosen, chosen]];
        fill(
            element,
            shown.map(([value, label]) => h("option", { value, selected: value === chosen }, label)),
        );
    };
    draw([]);
    get("fleet/status")
        .then(({ database, hosts }) => {
            if (!database) return;
            chosen = element.value; // the user may have chosen meanwhile
            draw(hosts.filter(({ here }) => !here).map(({ host }) => host));
            element.hidden = false;
        })
        .catch(() => {}); // the list of this machine does without
    return element;
}

/** Load entries of other machines; without words, their last sessions. Throws ApiError. */
export async function askHosts({ q, host, agent, role, since, until, ...more }, { limit, after = null }, signal) {
    const local = Object.keys(LOCAL).filter((name) => more[name]);
    if (local.length || !ROLES.includes(role ?? "")) {
        const names = [...local.map((name) => LOCAL[name]), !ROLES.includes(role ?? "") && "this role"];
        throw Object.assign(new Error(`The catalogue of all machines has no filter for ${names.filter(Boolean).join(", ")}`), {
            hint: "remove it, or choose “This machine”",
        });
    }
    const page = { host, agent, limit, after };
    if (!q) return get(`fleet/sessions${query(page)}`, signal);
    return get(`fleet/search${query({ q, role, since, until, ...page })}`, signal);
}

export const nameOnHost = ({ host, session }) => `${host}:${session}`;

/** The URL of an entry or a session; those of other machines are in the view of machines. */
export function placeOnHost(one, values) {
    const { q, agent, role, since, until } = values;
    if (!one.here) return `#/fleet${query({ host: one.host, q, agent, role, since, until })}`;
    if (one.gone || one.deleted_at) return `#/archive${query({ session: one.session, at: one.line })}`;
    return `${addressOf(one.session)}${query({ at: one.line, q })}`;
}

/** The facts of an entry or a session, as parts of a line. */
export function factsOnHost(one) {
    return [
        h("span", { class: "mono" }, one.line === undefined ? nameOnHost(one) : `${nameOnHost(one)} #${one.line}`),
        one.role && h("span", null, one.role),
        one.tool && h("span", null, one.tool),
        when(one.time ?? one.updated),
        typeof one.entries === "number" && h("span", null, count(one.entries, "entry", "entries")),
        one.cost > 0 && h("span", null, dollars(one.cost)),
        h("span", null, bytes(one.size)),
        (one.gone || one.deleted_at) && badge("gone", "warn", "Its program has deleted it"),
    ];
}

/** A row of the view of machines; for another machine's session, with the command that brings it back. */
export function rowOnHost(one, values) {
    const title = one.title || one.session;
    return h(
        "li",
        { class: "on-host" },
        one.here ? h("a", { href: placeOnHost(one, values) }, title) : h("strong", null, title),
        h("span", { class: "row-facts" }, factsOnHost(one).filter(Boolean)),
        !one.here &&
            h("span", { class: "row-facts" }, h("code", null, one.command), copyButton(one.command, "Copy", "the command")),
    );
}
