// The plots of the overview, by day: bytes saved, sizes of sessions, disk use of bsd.

import { get } from "./api.js";
import { describe, h } from "./dom.js";
import { DayPlot, dayOf } from "./day_plot.js";
import { bytes, number } from "./format.js";

const PARTS = {
    store: "Store",
    archive: "Archive",
    copies: "Copies of sessions",
    trash: "Trash",
    index: "Search index",
    history: "History",
    databases: "Databases",
};

export class Plots {
    constructor() {
        const unit = this.unit();
        this.saved = new DayPlot({
            title: "Saved by day",
            empty: "No extraction yet. The plot starts with the first extraction.",
            format: bytes,
            isBytes: true,
        });
        this.sessions = new DayPlot({
            title: "Sizes of sessions",
            empty: "No sessions yet.",
            format: bytes,
            isBytes: true,
        });
        this.disk = new DayPlot({
            title: "What bsd keeps on disk",
            empty: "bsd stores no data yet.",
            format: bytes,
            isBytes: true,
        });
        this.saved.element.querySelector(".title").after(unit);
        this.all = [this.saved, this.sessions, this.disk];
        this.element = h(
            "div",
            { class: "plots" },
            this.all.map((plot) => plot.element),
        );
    }

    unit() {
        this.tokens = false;
        const choices = ["Bytes", "Tokens"].map((label) => {
            const input = h("input", {
                type: "radio",
                name: "plot-unit",
                id: `plot-unit-${label}`,
                checked: label === "Bytes",
                onchange: () => {
                    this.tokens = label === "Tokens";
                    this.showSaved();
                },
            });
            return h("span", { class: "check" }, input, h("label", { for: input.id }, label));
        });
        return h("div", { class: "segments", role: "radiogroup", "aria-label": "Unit" }, choices);
    }

    leave() {
        for (const plot of this.all) plot.leave();
    }

    /** `agents` and `disk` are the current values, used for today's bars. */
    async load({ agents, disk }) {
        const now = { at: new Date().toISOString(), disk, sessions: {} };
        for (const agent of agents) now.sessions[agent.kind] = agent.bytes;
        try {
            const [{ by_agent: saved }, { days, titles }] = await Promise.all([get("savings"), get("sizes")]);
            this.hours = saved;
            this.titles = titles;
            this.showSaved();
            this.sessions.show(byDay([...days, now], (day) => renamed(day.sessions, this.titles)));
            this.disk.show(byDay([...days, now], (day) => renamed(only(day.disk, PARTS), PARTS)));
        } catch (error) {
            for (const plot of this.all) plot.fail(describe(error));
        }
    }

    showSaved() {
        const days = new Map();
        for (const hour of this.hours ?? []) {
            const value = this.tokens ? hour.tokens : hour.saved;
            if (!value) continue;
            const day = dayOf(hour.at);
            if (!days.has(day)) days.set(day, new Map());
            const parts = days.get(day);
            const name = Object.hasOwn(this.titles, hour.agent) ? this.titles[hour.agent] : hour.agent || "other";
            parts.set(name, (parts.get(name) ?? 0) + value);
        }
        this.saved.isBytes = !this.tokens;
        this.saved.format = this.tokens ? (value) => number(Math.round(value)) : bytes;
        this.saved.show(days);
    }
}

const only = (values, names) =>
    Object.fromEntries(Object.entries(values).filter(([name]) => Object.hasOwn(names, name)));

const renamed = (values, names) =>
    new Map(Object.entries(values).map(([name, value]) => [Object.hasOwn(names, name) ? names[name] : name, value]));

/** Keep the last value of each day. */
const byDay = (days, parts) => new Map(days.map((day) => [dayOf(day.at), parts(day)]));
