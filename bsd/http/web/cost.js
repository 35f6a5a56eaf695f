// The view of cost: sessions played back call by call, without bsd and under one or more settings.
// With a session in the URL it shows that session, else all of them.

import { forgetButton, get, query, sessionPath } from "./api.js";
import { SettingsForm, takeOver } from "./cost_settings.js";
import { SessionCost } from "./cost_session.js";
import { known, settingsTable, sumsOf } from "./cost_table.js";
import { button, describe, fill, h, problem } from "./dom.js";
import { bytes, count } from "./format.js";
import { newest } from "./live.js";
import { addressOf } from "./widgets.js";

const PAUSE = 500; // milliseconds before a retry while another replay runs

export async function costView(page) {
    const view = new CostView(page);
    await view.start();
    return view;
}

class CostView {
    constructor(page) {
        this.page = page;
        this.session = page.parts.join("/");
        this.stop = new AbortController();
    }

    async start() {
        const [config, info] = await Promise.all([
            get("config"),
            this.session ? get(sessionPath(this.session) + query({ limit: 0 })) : null,
        ]);
        this.config = config;
        this.everything = h("input", {
            type: "checkbox",
            id: "cost-everything",
            checked: this.page.values.everything === "true",
        });
        const label = this.session ? "Compare" : "Play back";
        const choice = [this.everything, h("label", { for: "cost-everything" }, "All sessions, instead of a sample of 256 MB")];
        this.form = new SettingsForm(this.page.values, config, () => this.run(), [
            !this.session && h("span", { class: "check" }, choice),
            h("button", { type: "submit", class: "primary", "data-focus": "compare" }, label),
        ]);
        this.result = h("div", { class: "cost-result", "aria-live": "off" });
        fill(
            this.page.main,
            info ? sessionHead(this.session, info) : h("h1", null, "Cost"),
            h(
                "p",
                { class: "note" },
                "bsd plays recorded sessions back, call by call, as the provider saw them: what the calls would have cost without bsd and with these settings. It changes nothing.",
            ),
            this.form.element,
            this.result,
            forgetButton(),
        );
        if (this.session) this.run();
    }

    leave() {
        this.stop.abort();
        this.shown?.leave();
    }

    onEvent(event) {
        if (event.type === "config" || event.type === "again") this.loadConfig().catch(() => {});
    }

    loadConfig = newest(
        () => get("config"),
        (config) => {
            this.config = config;
            this.draw?.();
        },
    );

    async run() {
        this.stop.abort();
        const stop = (this.stop = new AbortController());
        this.shown?.leave();
        this.shown = this.draw = null;
        const asked = { ...this.form.read(), everything: this.everything.checked || null };
        this.page.remember(location.hash.split("?")[0] + query(asked));
        try {
            await (this.session ? this.runOne(asked, stop.signal) : this.runAll(asked, stop));
        } catch (error) {
            if (error.name !== "AbortError") fill(this.result, problem(error, () => this.run()));
        }
    }

    async runOne(asked, signal) {
        fill(this.result, h("p", { class: "note", role: "status" }, "Playing back …"));
        const played = await get(sessionPath(this.session, "replay") + query(asked), signal);
        this.shown = new SessionCost(played, (setting) => this.actions(setting));
        this.draw = () => this.shown.draw();
        fill(this.result, this.shown.element);
        this.draw();
    }

    /** Play back many sessions, portion by portion; each answer has the sums so far. */
    async runAll(asked, stop) {
        const told = h("p", { class: "note", role: "status" }, "Playing back …");
        const stopper = button("Stop", () => stop.abort(), { class: "quiet" });
        const sums = h("div", null);
        fill(this.result, h("section", { class: "card", "aria-label": "Result" }, told, stopper, sums));
        stopper.focus({ preventScroll: true });
        let played = null;
        let end = "";
        this.draw = () => played && fill(sums, allSessions(played, (setting) => this.actions(setting)));
        try {
            do {
                played = await portion({ ...asked, suggest: true, cursor: played?.cursor }, stop.signal);
                told.textContent = progress(played);
                this.draw();
            } while (played.cursor);
        } catch (error) {
            if (!played && error.name !== "AbortError") throw error;
            end = error.name === "AbortError" ? ". Stopped before all sessions were read" : `. ${describe(error)}`;
        }
        if (this.stop !== stop || !told.isConnected) return;
        told.textContent = `${played ? progress(played) : "Nothing was played back"}${end}`;
        stopper.remove();
    }

    /** What can be done with settings of the table. */
    actions(setting) {
        const take = async () => {
            const saved = await takeOver(setting, this.config);
            if (!saved) return;
            this.config = saved;
            this.draw?.();
        };
        return { config: this.config, take };
    }
}

function sessionHead(session, info) {
    const name = info.title || info.label || info.id;
    return h(
        "div",
        { class: "cost-head" },
        h(
            "p",
            { class: "crumb" },
            h("a", { href: "#/cost" }, "Cost"),
            " / ",
            h("a", { href: addressOf(session) }, session),
        ),
        h("h1", null, "Cost of a session"),
        h("p", { class: "row-name" }, h("a", { href: addressOf(session), title: name }, name)),
    );
}

/** Load a portion; retry while other replays run. */
async function portion(asked, signal) {
    for (;;) {
        try {
            return await get(`replay${query(asked)}`, signal);
        } catch (error) {
            if (error.status !== 409) throw error;
            await new Promise((done) => setTimeout(done, PAUSE));
            signal.throwIfAborted();
        }
    }
}

function progress({ read, total, sessions, calls, sample }) {
    const of = sample
        ? `; a sample: the newest and the largest of ${count(sample.all_sessions, "session")} (${bytes(sample.all_bytes)})`
        : "";
    return `Played back ${bytes(read)} of ${bytes(total)}: ${count(sessions, "session")}, ${count(calls, "call")}${of}`;
}

function allSessions(played, actions) {
    const agents = played.agents.filter((agent) => agent.calls > 0);
    const left = played.left_out ?? [];
    return [
        sumsOf(played, played.settings, actions),
        settingsTable("Settings", played.settings, actions, played.suggestion),
        known(played),
        agents.length > 1 &&
            h(
                "details",
                null,
                h("summary", null, "By agent"),
                agents.map((agent) => [
                    h("h3", null, `${agent.agent}: ${count(agent.sessions, "session")}, ${count(agent.calls, "call")}`),
                    settingsTable(`Settings, ${agent.agent}`, agent.settings, actions, agent.suggestion),
                ]),
            ),
        left.length > 0 &&
            h(
                "details",
                null,
                h("summary", null, `${count(left.length, "session")} left out`),
                h(
                    "ul",
                    { class: "plain" },
                    left.map(({ session, reason }) => h("li", null, h("span", { class: "mono" }, session), `: ${reason}`)),
                ),
            ),
    ];
}
