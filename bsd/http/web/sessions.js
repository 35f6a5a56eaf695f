// The list of sessions.

import { get, query } from "./api.js";
import { describe, fill, h, problem } from "./dom.js";
import { Everything } from "./everything.js";
import { count, number } from "./format.js";
import { hostSelect } from "./hosts.js";
import { excludeButton, pauseButton } from "./leaving_out.js";
import { paced } from "./live.js";
import { Rows } from "./rows.js";
import { hit, sessionRow } from "./session_row.js";

const PAGE = 100;
const HITS = 5;
const ORDERS = [
    ["", "Newest first"],
    ["size", "Largest first"],
    ["saved", "Most saved first"],
    ["cost", "Most costly first"],
];
const FIRST = { "": "newest", size: "largest", saved: "most shortened", cost: "most costly" };
const MOST_RENEWED = 1000; // as many as the server gives at once
const STATUSES = ["active", "stale", "running", "done", "failed", "killed", "timeout", "archived"];

export async function sessionsView(page) {
    const view = new SessionsView(page);
    await view.start();
    return view;
}

// The list as the user left it, to restore the position when the user comes back.
let kept = null;

export function forgetList() {
    kept = null;
}

class SessionsView {
    constructor(page) {
        this.page = page;
        this.filter = {
            q: page.values.q ?? "",
            agent: page.values.agent ?? "",
            status: page.values.status ?? "",
            sort: ORDERS.some(([order]) => order === page.values.sort) ? page.values.sort : "",
        };
        this.known = [];
        this.cursor = null;
        this.turn = 0;
        this.rows = new Rows(page.main, {
            label: "Sessions",
            key: (session) => session.session,
            render: sessionRow,
            more: () => this.more(),
        });
        this.everything = new Everything();
        this.refresh = paced(() => this.renew());
    }

    async start() {
        this.note = h("p", { class: "note", role: "status" });
        this.project = h("span", { class: "actions" });
        this.drawProject();
        this.trouble = h("div", null);
        this.hits = h("section", { class: "card", hidden: true, "aria-label": "Found in the text" });
        fill(
            this.page.main,
            h("h1", { class: "offscreen" }, "Sessions"),
            this.form(),
            h("div", { class: "told" }, this.note, this.project),
            this.trouble,
            this.hits,
            this.everything.element,
            this.rows.element,
        );
        if (kept && kept.filter === JSON.stringify(this.filter)) this.goOn(kept);
        else await this.load();
        this.fillAgents().catch(() => {}); // behind the first rows
    }

    /** Show the previous list first, then load the changes. */
    goOn({ known, cursor, searched, active }) {
        this.turn += 1;
        this.searched = searched;
        this.rows.active = active;
        this.take(known, cursor);
        this.searchText(this.turn);
        this.refresh();
    }

    leave() {
        const { known, cursor, searched } = this;
        kept = { filter: JSON.stringify(this.filter), known, cursor, searched, active: this.rows.active };
        this.refresh.cancel();
        clearTimeout(this.typing);
        this.stop?.abort();
        this.everything.end();
        this.rows.leave();
    }

    onEvent(event) {
        if (event.type === "tick" && event.connected) return;
        if (["session", "tick", "again", "lost"].includes(event.type)) this.refresh();
    }

    form() {
        const changed = (name) => (event) => this.choose(name, event.target.value.trim());
        const typed = (event) => {
            clearTimeout(this.typing);
            const value = event.target.value;
            this.typing = setTimeout(() => this.choose("q", value.trim()), 250);
        };
        const onEnter = (event) => {
            event.preventDefault();
            clearTimeout(this.typing);
            this.choose("q", this.search.value.trim());
            this.rows.go(0);
        };
        const down = (event) => {
            if (event.key !== "ArrowDown") return;
            event.preventDefault();
            this.rows.go(this.rows.active);
        };
        this.search = h("input", {
            type: "search",
            id: "search",
            name: "q",
            value: this.filter.q,
            placeholder: "Search titles, ids and text",
            "aria-label": "Search sessions",
            autocomplete: "off",
            spellcheck: "false",
            maxlength: 900,
            oninput: typed,
            onkeydown: down,
        });
        this.agents = h(
            "select",
            { name: "agent", "aria-label": "Agent", onchange: changed("agent") },
            h("option", { value: "" }, "All agents"),
        );
        const chosen = this.filter.status;
        const statuses = [...new Set([...STATUSES, chosen])].filter(Boolean);
        const status = h(
            "select",
            { name: "status", "aria-label": "Status", onchange: changed("status") },
            h("option", { value: "" }, "Any status"),
            statuses.map((one) => h("option", { value: one, selected: one === chosen }, one)),
        );
        const sort = h(
            "select",
            { name: "sort", "aria-label": "Order", onchange: changed("sort") },
            ORDERS.map(([order, label]) =>
                h("option", { value: order, selected: order === this.filter.sort }, label),
            ),
        );
        return h(
            "form",
            { class: "filters", role: "search", onsubmit: onEnter },
            this.search,
            hostSelect("", (host) => this.goTo(host)),
            this.agents,
            status,
            sort,
        );
    }

    /** Show the sessions of another machine. */
    goTo(host) {
        const { q, agent } = this.filter;
        location.hash = `#/fleet${query({ q, host, agent })}`;
    }

    choose(name, value) {
        if (this.filter[name] === value) return;
        this.filter[name] = value;
        this.page.remember(`#/sessions${query(this.filter)}`);
        this.page.main.scrollTop = 0;
        this.drawProject();
        this.load();
    }

    /** Buttons that act on the whole agent or project of the filter. */
    drawProject() {
        const { agent } = this.filter;
        const props = { class: "small writes" };
        fill(
            this.project,
            agent && pauseButton(agent, () => this.load(), props),
            agent && excludeButton(agent, () => this.choose("agent", ""), props),
        );
    }

    async fillAgents() {
        const { agents } = await get("agents");
        const names = new Set([...agents.map((agent) => agent.name), this.filter.agent].filter(Boolean));
        const told = Object.fromEntries(agents.map((agent) => [agent.name, agent]));
        fill(
            this.agents,
            h("option", { value: "" }, `All agents`),
            [...names].map((name) =>
                h(
                    "option",
                    { value: name, selected: name === this.filter.agent, title: told[name]?.note },
                    told[name] ? `${name} (${number(told[name].sessions)})` : name,
                ),
            ),
        );
        const odd = agents.filter((agent) => agent.note);
        if (odd.length)
            this.agents.after(
                h("p", { class: "note" }, odd.map((agent) => `${agent.name}: ${agent.note}`).join(" · ")),
            );
    }

    ask(more) {
        this.stop?.abort();
        this.stop = new AbortController();
        return this.get({ limit: PAGE, ...more }, this.stop.signal);
    }

    get(more, signal) {
        return get(`sessions${query({ ...this.filter, ...more })}`, signal);
    }

    /** Load the list again, with the current filter. */
    async load() {
        const turn = ++this.turn;
        this.element.setAttribute("aria-busy", "true");
        this.searchText(turn);
        try {
            const { sessions, next, search } = await this.ask({});
            if (turn !== this.turn) return;
            this.rows.active = 0;
            this.searched = search;
            this.take(sessions, next);
        } catch (error) {
            if (turn === this.turn) this.fail(error);
        } finally {
            if (turn === this.turn) this.element.removeAttribute("aria-busy");
        }
    }

    get element() {
        return this.rows.element;
    }

    /** Show the entries that contain the words; the list below shows the sessions. */
    async searchText(turn) {
        const { q, agent } = this.filter;
        this.everything.offer(this.filter.status ? {} : { q, agent });
        const found =
            q && !this.filter.status
                ? await get(`search${query({ q, agent, limit: HITS })}`).catch(() => null)
                : null;
        if (turn !== this.turn) return;
        const results = found?.results ?? [];
        this.hits.hidden = !results.length;
        const shown = results.map((one) => hit(one, q));
        fill(this.hits, h("h2", null, "In the text"), h("ol", { class: "hits" }, shown));
        this.rows.show();
    }

    async more() {
        if (this.loading || this.cursor === null) return;
        this.loading = true;
        const turn = this.turn;
        try {
            const { sessions, next } = await this.get({ limit: 5 * PAGE, cursor: this.cursor });
            if (turn !== this.turn) return;
            const have = new Set(this.known.map((one) => one.session));
            this.take([...this.known, ...sessions.filter((one) => !have.has(one.session))], next);
        } catch (error) {
            if (turn === this.turn) this.fail(error);
        } finally {
            this.loading = false;
        }
        if (turn === this.turn) this.rows.show();
    }

    /**
     * Load changes. Sorted by date, changed sessions are on the first page and the rest is unchanged.
     * In another order they can be on any page, so all pages that are shown are loaded again.
     */
    async renew() {
        if (this.filter.sort) return this.renewAll();
        const turn = this.turn;
        try {
            const { sessions, next } = await this.get({ limit: PAGE });
            if (turn !== this.turn) return;
            const fresh = new Set(sessions.map((one) => one.session));
            const oldest = sessions.at(-1)?.updated ?? "";
            const rest =
                next === null
                    ? []
                    : this.known.filter((one) => !fresh.has(one.session) && one.updated <= oldest);
            const first = sessions.map((one) => this.unchanged(one));
            this.take(
                [...first, ...rest],
                next === null ? null : (this.cursor ?? (rest.length ? null : next)),
            );
        } catch (error) {
            if (turn === this.turn && !this.known.length) this.fail(error);
        }
    }

    async renewAll() {
        const turn = this.turn;
        const limit = Math.min(MOST_RENEWED, Math.max(PAGE, this.known.length));
        try {
            const { sessions, next } = await this.get({ limit });
            if (turn !== this.turn) return;
            const fresh = new Set(sessions.map((one) => one.session));
            const rest = next === null ? [] : this.known.slice(limit).filter((one) => !fresh.has(one.session));
            const first = sessions.map((one) => this.unchanged(one));
            this.take([...first, ...rest], next === null ? null : rest.length ? this.cursor : next);
        } catch (error) {
            if (turn === this.turn && !this.known.length) this.fail(error);
        }
    }

    /** Reuse the object of an unchanged session, so that its row is not drawn again. */
    unchanged(session) {
        const before = this.known.find((one) => one.session === session.session);
        return before && JSON.stringify(before) === JSON.stringify(session) ? before : session;
    }

    take(sessions, next) {
        this.known = sessions;
        this.cursor = next;
        fill(this.trouble);
        const { sort, ...filters } = this.filter;
        const filtered = Object.values(filters).some(Boolean);
        const behind = this.filter.q && this.searched ? behindNote(this.searched) : "";
        this.note.textContent = sessions.length
            ? `${next === null ? "" : `The ${FIRST[sort]} `}${count(sessions.length, "session")}${filtered ? " found" : ""}${behind}`
            : filtered
              ? `No session matches. Try: other words, or fewer filters${behind}`
              : "No sessions yet. They appear here as soon as an agent writes one.";
        this.rows.set(sessions, next === null);
    }

    fail(error) {
        if (error.name === "AbortError") return;
        this.note.textContent = describe(error);
        fill(
            this.trouble,
            problem(error, () => this.load()),
        );
    }
}

function behindNote({ complete, waiting, problem: trouble }) {
    if (trouble) return `. Their text was not searched: ${trouble}`;
    return complete ? "" : `. ${count(waiting, "session")} still to be read for the search`;
}
