// The overview: sizes of sessions by agent, kinds of content, and what an extraction would remove now.

import { get, post, query, sessionPath } from "./api.js";
import { ask, button, describe, fill, h, problem, toast } from "./dom.js";
import { ago, bytes, count, number } from "./format.js";
import { paced } from "./live.js";
import { badges, spent } from "./session_row.js";
import { cacheTile } from "./timing.js";
import { askTonight, deletedSoon, tonightTile } from "./tonight.js";
import { undoSinceDialog } from "./undoing.js";
import { addressOf, leads, savedTile, table, tile, when } from "./widgets.js";

const LARGEST = 8;
const ORDERS = { size: "Size", saved: "Saved", date: "Date", cost: "Cost" };
const SHOWN_FILLS = 5;
// Prefixes of the names of parts, in the order of their colours.
const FILLS = ["tool results", "thinking", "arguments of calls", "images", "assistant text", "user text", "never sent"];
const LEAST_SHARE = 0.01;
const ADVISED = 10 << 20; // bytes: larger files of a program come with advice

export async function overviewView(page) {
    const view = new Overview(page);
    await view.start();
    return view;
}

// The kinds of content of each session, by session name; valid while the size stays the same.
const fillsOf = new Map();

class Overview {
    constructor(page) {
        this.page = page;
        this.sort = Object.hasOwn(ORDERS, page.values.sort ?? "") ? page.values.sort : "size";
        this.turn = 0;
        this.stop = new AbortController();
        this.refresh = paced(() => this.load(), 5000);
    }

    async start() {
        this.tiles = h("div", { class: "tiles", role: "group", "aria-label": "At a glance" });
        this.trouble = h("div", null);
        this.largest = h("ol", { class: "largest" });
        this.more = h("p", { class: "note" });
        this.agents = h("section", { class: "card", "aria-label": "Agents and projects" });
        this.leaving = h("section", { class: "card", hidden: true, "aria-label": "Deleted soon" });
        this.below = h("div", null);
        fill(
            this.page.main,
            h(
                "div",
                { class: "title" },
                h("h1", null, "Overview"),
                button("Undo what bsd did since…", () => undoSinceDialog(() => this.load()), {
                    class: "small writes",
                    "data-focus": "undo-since",
                }),
            ),
            this.tiles,
            this.trouble,
            this.leaving,
            h(
                "section",
                { class: "card", "aria-labelledby": "largest-title" },
                h("div", { class: "title" }, h("h2", { id: "largest-title" }, "Sessions first by"), this.orders()),
                this.largest,
                this.more,
            ),
            this.agents,
            this.below,
        );
        this.tonight = leads("#/jobs", tonightTile(null));
        await this.load();
        askTonight()
            .then((told) => fill(this.tonight, ...tonightTile(told).childNodes))
            .catch(() => this.tonight.remove());
        // After an upgrade the version that this page came with is no longer served.
        this.loadPlots().catch(() => {
            if (this.turn < 0) return;
            fill(this.below, h("p", { class: "note" }, "The plots cannot be loaded. Try: load the page again"));
        });
    }

    leave() {
        this.turn = -1;
        this.stop.abort();
        this.refresh.cancel();
        this.plots?.leave();
    }

    onEvent(event) {
        if (["session", "tick", "again", "lost", "job"].includes(event.type)) this.refresh();
    }

    orders() {
        const choices = Object.entries(ORDERS).map(([name, label]) => {
            const input = h("input", {
                type: "radio",
                name: "order",
                id: `order-${name}`,
                value: name,
                checked: name === this.sort,
                onchange: () => this.choose(name),
            });
            return h("span", { class: "check" }, input, h("label", { for: input.id }, label));
        });
        return h("div", { class: "segments start", role: "radiogroup", "aria-label": "First by" }, choices);
    }

    choose(name) {
        this.sort = name;
        this.stop.abort();
        this.stop = new AbortController();
        this.page.remember(name === "size" ? "#/" : `#/overview${query({ sort: name })}`);
        return this.load();
    }

    async load() {
        const turn = (this.turn = this.turn < 0 ? -1 : this.turn + 1);
        if (turn < 0) return;
        const { signal } = this.stop;
        try {
            // Load the rows first: they are the cheapest for the daemon.
            const { sessions } = await get(`sessions${query({ sort: this.sort, limit: LARGEST })}`, signal);
            if (turn !== this.turn) return;
            fill(this.trouble);
            this.showLargest(sessions);
            const [found, status] = await Promise.all([
                get(`overview${query({ largest: 0 })}`, signal),
                this.page.status(),
            ]);
            if (turn !== this.turn) return;
            this.found = found;
            this.showTiles(found, status);
            this.showAll(found);
            this.showAgents(found);
            this.showLeaving(found);
            this.showWouldLeave(turn, signal);
            this.loadFills(turn, sessions, signal);
        } catch (error) {
            if (turn !== this.turn || error.name === "AbortError") return;
            if (!this.found) fill(this.trouble, problem(error, () => this.load()));
        }
    }

    async showWouldLeave(turn, signal) {
        const left = await get("overview/would-leave", signal).catch((error) => ({ problem: describe(error) }));
        if (turn === this.turn) fill(this.wouldLeave, this.wouldLeaveTile(left));
    }

    /** Load the kinds of content of each session, in sequence: a long session takes time to read. */
    async loadFills(turn, sessions, signal) {
        for (const session of sessions) {
            if (fillsOf.get(session.session)?.size === session.size) continue;
            try {
                const { fills } = await get(sessionPath(session.session, "outline"), signal);
                fillsOf.set(session.session, { size: session.size, fills });
            } catch (error) {
                if (error.name === "AbortError") return;
                fillsOf.set(session.session, { size: session.size, problem: describe(error) });
            }
            if (turn !== this.turn) return;
            this.showFills(session);
        }
    }

    async loadPlots() {
        const { Plots } = await import("./plots.js"); // a third of the page's scripts: behind the rest
        if (this.turn < 0) return;
        this.plots = new Plots();
        fill(this.below, this.plots.element);
        const { disk = {} } = await this.page.status();
        await this.plots.load({ agents: this.found?.agents ?? [], disk });
    }

    // --- the tiles ---

    showTiles(found, { disk = {}, retention = {}, prompt_cache: waiting }) {
        this.wouldLeave ??= h("div", { class: "tile" }, h("span", { class: "tile-name" }, "Would leave now"), "…");
        const trash = retention.trash ?? {};
        const leaving = sum(found.agents, "deleted_soon");
        const lacking = sum(found.agents, "without_copy");
        fill(
            this.tiles,
            leads("#/sessions", tile("Sessions", number(found.sessions), bytes(found.bytes))),
            leads("#/status", savedTile(disk)),
            this.wouldLeave,
            cacheTile(waiting),
            leads(
                "#/archive",
                tile(
                    "In the archive",
                    bytes((disk.archive ?? 0) + (disk.copies ?? 0)),
                    `${count(found.archived, "session")} that their programs deleted`,
                ),
            ),
            this.tonight,
            leaving > 0 &&
                tile(
                    "Deleted soon",
                    count(leaving, "session"),
                    lacking ? `${number(lacking)} without a copy` : "bsd has copies",
                ),
            leads(
                "#/trash",
                tile(
                    "In the trash",
                    number(trash.all_sessions),
                    `${bytes(trash.all_bytes ?? 0)}, kept for ${trash.keep ?? "–"}`,
                ),
            ),
        );
    }

    wouldLeaveTile(left) {
        const { bytes: all, bytes_saved: saved, read_sessions: read, sessions, values } = left;
        const isSample = read < sessions;
        const sample = isSample && `by a sample of ${number(read)} of ${count(sessions, "session")}`;
        const percent = saved > 0 && `${Math.round((100 * saved) / all)} % of all`;
        const same = !saved && values > 0 && `${count(values, "value")}, from files that keep their size`;
        const words = left.problem ?? [percent, same, sample].filter(Boolean).join(", ");
        return [
            h("span", { class: "tile-name" }, "Would leave now"),
            h("strong", null, left.problem ? "–" : `${isSample && saved ? "≈ " : ""}${bytes(saved)}`),
            h("span", { class: "tile-more" }, words || "no value is due"),
            values > 0 &&
                button("Extract now…", () => this.extract(), { class: "small writes", "data-focus": "extract" }),
        ];
    }

    async extract() {
        const text = [
            "bsd extracts the values that are due from idle sessions, including sessions whose prompt cache is warm.",
            "Every value can be restored, in the session or all at once.",
        ];
        if (!(await ask({ title: "Extract now?", text, yes: "Extract" }))) return;
        const job = await post("jobs/auto_cron/run");
        if (job.last_result && !job.last_result.ok) throw new Error(job.last_result.error);
        toast("Extraction has started. Sessions in use follow when they are idle.");
        this.refresh();
    }

    // --- the sessions ---

    showLargest(sessions) {
        fill(
            this.largest,
            sessions.map((session) => this.sessionItem(session)),
        );
        for (const session of sessions) this.showFills(session);
    }

    showAll(found) {
        const all = `#/sessions${query({ sort: this.sort })}`;
        fill(
            this.more,
            found.sessions
                ? h("a", { href: all }, `All ${count(found.sessions, "session")}`)
                : "No sessions yet. They appear here as soon as an agent writes one.",
        );
    }

    sessionItem(session) {
        const saved = session.saved_bytes || 0;
        return h(
            "li",
            { class: "large", "data-session": session.session },
            h(
                "div",
                { class: "large-head" },
                h(
                    "a",
                    { class: "row-name", href: addressOf(session.session), "data-focus": session.session },
                    session.title || session.label || session.id,
                ),
                h("span", { class: "large-size" }, bytes(session.size)),
            ),
            h(
                "div",
                { class: "row-facts" },
                h("span", { class: "row-id" }, session.session),
                when(session.updated),
                saved > 0 && h("span", { class: "row-saved" }, `${bytes(saved)} saved`),
                spent(session) && h("span", null, spent(session)),
                badges(session),
            ),
            h("div", { class: "fills" }),
        );
    }

    showFills(session) {
        const item = [...this.largest.children].find((one) => one.dataset.session === session.session);
        const known = fillsOf.get(session.session);
        if (!item || !known) return;
        const place = item.querySelector(".fills");
        if (known.problem) return fill(place, h("p", { class: "note" }, known.problem));
        const fills = known.fills
            .filter((one) => one.share >= LEAST_SHARE)
            .sort((one, other) => other.share - one.share)
            .slice(0, SHOWN_FILLS);
        fill(
            place,
            h("div", { class: "fill-bar", "aria-hidden": "true" }, fills.map(fillPart)),
            h(
                "ul",
                { class: "plot-legend" },
                fills.map((one) =>
                    h(
                        "li",
                        { title: fillWords(one) },
                        h("span", { class: `swatch ${colourOf(one)}`, "aria-hidden": "true" }),
                        `${one.what} ${Math.round(100 * one.share)} %`,
                    ),
                ),
            ),
        );
    }

    // --- the agents ---

    showAgents({ agents }) {
        const only = (agent) => agent.projects.length === 1 && !agent.more_projects;
        const rows = agents.flatMap((agent) => [
            share(
                only(agent) ? { ...agent, updated: agent.projects[0].updated } : agent,
                [
                    h("strong", null, agent.title),
                    only(agent) && [" ", projectLink(agent.projects[0])],
                ],
                agent.left_alone,
            ),
            ...(only(agent) ? [] : agent.projects).map((project) =>
                share(project, h("span", { class: "project" }, projectLink(project))),
            ),
            ...(agent.more_projects > 0
                ? [[h("span", { class: "project note" }, `and ${count(agent.more_projects, "more project")}`), "", "", "", "", ""]]
                : []),
            ...(agent.directory ?? []).map(({ what, advice, bytes: size }) => [
                h("span", { class: "project" }, what, size > ADVISED && h("span", { class: "note block" }, advice)),
                ...["", bytes(size), "", "", ""]]),
        ]);
        this.agents.hidden = !rows.length;
        fill(
            this.agents,
            h("h2", null, "Agents and projects"),
            table(
                "Agents and projects",
                [
                    ["Agent, project", "lead"],
                    ["Sessions", "num"],
                    ["Size", "num"],
                    ["Saved", "num"],
                    ["Archived", "num"],
                    ["Last used", "num"],
                ],
                rows,
            ),
        );
    }

    showLeaving({ agents }) {
        const going = agents.filter((agent) => agent.deleted_soon > 0);
        this.leaving.hidden = !going.length;
        fill(this.leaving, h("h2", null, "Deleted soon by their program"), going.map(deletedSoon));
    }
}

const sum = (all, name) => all.reduce((total, one) => total + (one[name] ?? 0), 0);

const projectLink = ({ agent, title }) =>
    h("a", { href: `#/sessions${query({ agent, sort: "size" })}` }, title);

/** Return the CSS class with the colour of a part; a part has the same colour in all sessions. */
function colourOf({ what }) {
    const at = FILLS.findIndex((beginning) => what.startsWith(beginning));
    return `plot-${at < 0 ? 8 : at + 1}`;
}

function fillPart(one) {
    const part = h("span", { class: colourOf(one) });
    part.style.width = `${100 * Math.min(1, one.share)}%`;
    return part;
}

function fillWords({ bytes: size, extracted_bytes: out }) {
    return out ? `${bytes(size)}, and ${bytes(out)} taken out` : bytes(size);
}

function share(one, title, note = null) {
    const parts = one.parts ? h("span", { class: "note" }, ` + ${count(one.parts, "subagent")}`) : null;
    return [
        [title, note && h("span", { class: "note block" }, note)],
        [number(one.sessions), parts],
        bytes(one.bytes),
        one.saved_bytes ? bytes(one.saved_bytes) : "",
        one.archived ? h("a", { href: "#/archive" }, number(one.archived)) : "",
        one.updated ? when(one.updated) : "",
    ];
}
