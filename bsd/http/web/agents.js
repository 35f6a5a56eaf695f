// The agents on this machine: turn them on and off, exclude their projects, pause them.

import { get, post } from "./api.js";
import { button, copyButton, describe, fill, h, problem, toast } from "./dom.js";
import { bytes, count, number } from "./format.js";
import { leaveCard } from "./goodbye.js";
import { excludeButton, pauseButton } from "./leaving_out.js";
import { leftOut } from "./left_out.js";
import { newest, paced } from "./live.js";
import { turnDialog } from "./turn.js";
import { badge, facts } from "./widgets.js";

const PARTS = {
    source: "sessions",
    mcp: "tools",
    skill: "skill",
    hooks: "hooks",
    permission: "permission",
};
const LOOKS = 200; // attempts to reach a bsd that starts again
const PAUSE_MS = 300;
const MANY = 12; // projects, from which on they can be filtered

export async function agentsView(page) {
    const view = new AgentsView(page);
    await view.load();
    return view;
}

class AgentsView {
    constructor(page) {
        this.page = page;
        this.leaves = new Map(); // what would leave each agent's sessions, once it is known
        this.opened = new Set(); // the lists of projects that are shown
        this.words = new Map(); // by which they are filtered
        this.asking = new AbortController();
        this.told = h("div", { "aria-live": "polite" });
        this.list = h("div", { class: "stack" });
        this.leftOut = leftOut(page.readonly(), () => this.load());
        this.foot = h("div");
        this.refresh = paced(() => this.load(), 2000);
        fill(page.main, h("h1", null, "Agents"), this.told, this.list, this.leftOut.element, this.foot);
    }

    leave() {
        this.refresh.cancel();
        this.asking.abort();
    }

    onEvent(event) {
        if (event.type === "again" || event.type === "config") this.refresh();
    }

    load = newest(
        () => Promise.all([get("setup"), this.page.status(true), get("agents"), get("config")]),
        ([here, status, known, config]) => {
            Object.assign(this, { here, status, known: known.agents, config });
            this.draw();
            this.foretell();
        },
    );

    draw() {
        const { here } = this;
        const shown = here.agents.filter((agent) => agent.found || agent.on || agent.problem);
        const absent = here.agents.filter((agent) => !shown.includes(agent));
        fill(
            this.list,
            this.whyNone() && h("p", { class: "note" }, this.whyNone()),
            here.not_followed.length > 0 && this.notFollowed(),
            shown.map((agent) => this.card(agent)),
        );
        this.leftOut.draw(this.status, this.config);
        fill(
            this.foot,
            leaveCard(here.leave),
            absent.length > 0 &&
                h("p", { class: "note" }, `Not on this machine: ${absent.map((a) => a.title).join(", ")}.`),
            h(
                "p",
                { class: "note wrap" },
                "bsd stores its data in ",
                h("span", { class: "mono" }, here.root),
                "; settings are in ",
                h("span", { class: "mono" }, here.settings_file),
                ".",
            ),
        );
    }

    /** A hint to restart the daemon, if its agents differ from those in bsd.toml. */
    notFollowed() {
        const titles = this.here.agents
            .filter((agent) => this.here.not_followed.includes(agent.agent))
            .map((agent) => agent.title);
        return h(
            "div",
            { class: "card" },
            h("p", null, `${titles.join(", ")}: bsd.toml has changed; bsd applies the change when it restarts.`),
            !this.here.locked &&
                button("Start bsd again", () => this.restart(), {
                    class: "primary writes",
                    "data-focus": "restart",
                }),
        );
    }

    card(agent) {
        const state = agent.on ? badge("on", "good") : badge(agent.turned_off ? "turned off" : "off", "plain");
        return h(
            "section",
            { class: "card agent", "aria-label": agent.title },
            h("div", { class: "title" }, h("h2", null, agent.title), state, this.switchOf(agent)),
            h("p", { class: "row-id mono wrap" }, agent.directory),
            facts([
                ["Sessions", sessionsOf(agent)],
                ["Size", agent.sessions ? bytes(agent.bytes) : null],
                ["Would leave by default", !agent.on && agent.sessions ? this.leavesOf(agent) : null],
                ["Set up", setUp(agent)],
            ]),
            agent.deleted_soon > 0 && h("p", { class: "deleted-soon" }, deletedSoon(agent)),
            agent.problem && h("div", { class: "problem" }, agent.problem, tryLine(agent.hint)),
            this.command(agent),
            agent.on && this.projects(agent),
        );
    }

    /** The reason why this page can turn no agent on or off; null if it can. */
    whyNone() {
        if (this.here.locked) return `${capital(this.here.locked)}, so agents are turned on and off in a terminal.`;
        if (this.page.readonly()) return "bsd is in read-only mode.";
        return null;
    }

    /** The reason why this page cannot turn an agent on or off; null if it can. */
    whyNot(agent) {
        if (this.whyNone()) return this.whyNone();
        if (agent.read_only.length) return `This bsd may not write ${agent.read_only.join(", ")}: use a terminal.`;
        return null;
    }

    switchOf(agent) {
        if (this.whyNot(agent)) return null;
        const label = agent.on ? "Turn off…" : "Turn on…";
        return button(
            label,
            () => turnDialog(agent, (done) => this.turned(done)),
            {
                "aria-label": `${label} ${agent.title}`,
                "aria-haspopup": "dialog",
                class: agent.on ? "writes" : "primary writes",
                "data-focus": `switch-${agent.agent}`,
            },
        );
    }

    command(agent) {
        const why = this.whyNot(agent);
        if (!why) return null;
        return h(
            "div",
            { class: "command" },
            !this.whyNone() && h("p", { class: "note" }, why),
            h("code", null, agent.command),
            " ",
            copyButton(agent.command, "Copy", `the command that turns ${agent.title} ${agent.on ? "off" : "on"}`),
        );
    }

    leavesOf(agent) {
        const told = this.leaves.get(agent.agent);
        return h("span", { "data-leaves": agent.agent }, told ? leavesText(told) : "looking…");
    }

    /** Load the forecasts, agent by agent: each takes some seconds. */
    async foretell() {
        for (const agent of this.here.agents) {
            if (agent.on || !agent.sessions || this.leaves.has(agent.agent)) continue;
            this.leaves.set(agent.agent, null);
            const told = await get(`setup/${agent.agent}/would-leave`, this.asking.signal).catch((error) => ({
                error,
            }));
            if (this.asking.signal.aborted) return;
            this.leaves.set(agent.agent, told);
            for (const place of this.list.querySelectorAll(`[data-leaves="${agent.agent}"]`))
                fill(place, leavesText(told));
        }
    }

    /** The names of a program's parts: its projects, or OpenClaw's agents. */
    projects(agent) {
        const sources = (this.status.sources ?? []).filter((one) => one.kind === agent.agent);
        const others = (this.status.sources ?? []).map((one) => `${one.name}:`);
        const own = this.known.filter(({ name }) =>
            sources.length
                ? sources.some((source) => name.startsWith(`${source.name}:`))
                : !others.some((start) => name.startsWith(start)),
        );
        const names = new Set(own.map(({ name }) => name));
        const wholes = own.filter(({ name }) => !isPart(name, names));
        if (!wholes.length) return null;
        const what = count(wholes.length, agent.by_project ? "project" : "agent");
        const rows = h("ul", { class: "projects", "aria-label": `Parts of ${agent.title}` });
        const draw = (words) => {
            this.words.set(agent.agent, words);
            fill(
                rows,
                wholes
                    .filter(({ name }) => name.toLowerCase().includes(words.toLowerCase()))
                    .sort((a, b) => b.sessions - a.sessions)
                    .map((one) => this.project(one)),
            );
        };
        draw(this.words.get(agent.agent) ?? "");
        const filter =
            wholes.length > MANY &&
            h("input", {
                type: "search",
                value: this.words.get(agent.agent),
                placeholder: "Filter",
                "aria-label": `Filter ${what} of ${agent.title}`,
                "data-focus": `filter-${agent.agent}`,
                oninput: (event) => draw(event.target.value),
            });
        const details = h(
            "details",
            { open: this.opened.has(agent.agent) },
            h("summary", { "data-focus": `projects-${agent.agent}` }, `${what}: leave out or pause`),
            filter,
            rows,
        );
        details.addEventListener("toggle", () => {
            if (details.open) this.opened.add(agent.agent);
            else this.opened.delete(agent.agent);
        });
        return details;
    }

    project({ name, sessions, note }) {
        const again = () => this.load();
        return h(
            "li",
            null,
            h(
                "span",
                { class: "project-name" },
                h("span", { class: "mono wrap" }, name),
                h("span", { class: "note" }, note ?? count(sessions, "session")),
            ),
            h(
                "span",
                { class: "project-buttons" },
                pauseButton(name, again, { class: "writes small", "data-focus": `pause-${name}` }),
                excludeButton(name, again, { class: "writes small", "data-focus": `exclude-${name}` }),
            ),
        );
    }

    async turned(done) {
        toast(`${done.title} is ${done.turn}.`);
        if (done.settings_changed) await this.untilBack();
        else await this.load();
    }

    async restart() {
        await post("setup/restart");
        await this.untilBack();
    }

    /** Wait until the restarted daemon answers. */
    async untilBack() {
        fill(this.told, h("p", { class: "banner" }, "bsd restarts to apply bsd.toml…"));
        const before = this.status.started_at;
        for (let at = 0; at < LOOKS; at++) {
            await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
            const status = await get("status").catch(() => null);
            if (!status || status.started_at === before) continue;
            fill(this.told);
            await this.load();
            return;
        }
        fill(this.told, problem(new Error("bsd has not restarted. Try: `bsd status`")));
    }
}

/** True if an agent's sessions belong to sessions of another agent, as sub-agents do. */
function isPart(name, names) {
    for (let at = name.lastIndexOf(":"); at > 0; at = name.lastIndexOf(":", at - 1))
        if (names.has(name.slice(0, at))) return true;
    return false;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function tryLine(hint) {
    return hint && h("p", null, "Try: ", h("code", null, hint));
}

function sessionsOf(agent) {
    if (!agent.subagents) return number(agent.sessions);
    return `${number(agent.sessions)} and ${count(agent.subagents, "sub-agent")}`;
}

function setUp(agent) {
    const parts = Object.entries(agent.parts);
    const there = parts.filter(([, on]) => on).map(([part]) => PARTS[part] ?? part);
    const missing = parts.filter(([, on]) => !on).map(([part]) => PARTS[part] ?? part);
    if (!there.length) return "nothing";
    return there.join(", ") + (missing.length ? ` (not: ${missing.join(", ")})` : "");
}

function leavesText(told) {
    if (told.error) return `not known: ${describe(told.error)}`;
    if (told.sessions && !told.read_sessions) return "not known: its sessions are too large to look at quickly";
    if (told.values && !told.bytes_saved) return `${count(told.values, "value")}, from files that keep their size`;
    const share = told.bytes ? ` (${Math.round((100 * told.bytes_saved) / told.bytes)} %)` : "";
    const saved = `${bytes(told.bytes_saved)}${share}`;
    if (told.read_sessions === told.sessions) return saved;
    return `about ${saved}, by a sample of ${number(told.read_sessions)} of ${count(told.sessions, "session")}`;
}

function deletedSoon(agent) {
    const will = `${count(agent.deleted_soon, "session")} will be deleted by ${agent.title} within 7 days`;
    if (!agent.to_copy) return `${will}; bsd has copies.`;
    if (agent.on) return `${will}; ${number(agent.to_copy)} of them have no copy yet; bsd copies them now.`;
    return `${will}; bsd makes copies once the agent is turned on.`;
}
