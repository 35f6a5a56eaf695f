// One session played back: sums, the plot of its calls, the cuts, and the values wanted again.

import { query } from "./api.js";
import { CallPlots } from "./call_plot.js";
import { known, settingsTable, sumsOf } from "./cost_table.js";
import { settingWords } from "./cost_settings.js";
import { fill, h } from "./dom.js";
import { clock, count, dollars, number, thousands } from "./format.js";
import { addressOf, table } from "./widgets.js";

const MOST_ROWS = 200;

export class SessionCost {
    /** `played`: the answer of the route; `actions(setting)`: see `settingsTable`. */
    constructor(played, actions) {
        Object.assign(this, { played, actions, chosen: 0 });
        this.sums = h("section", { class: "card", "aria-label": "Sums" });
        this.plots = new CallPlots([
            ["Tokens per call", thousands, thousands],
            ["Cost per call", dollars, (amount) => `$${Number(amount.toPrecision(3))}`],
        ]);
        this.cuts = h("div", null);
        this.select = h(
            "select",
            { id: "cost-shown", onchange: () => this.choose(Number(this.select.value)) },
            played.settings.map(({ sums }, at) => h("option", { value: at }, settingWords(sums))),
        );
        const several = played.settings.length > 1;
        const calls = played.calls.tokens.length > 0;
        this.element = h(
            "div",
            null,
            this.sums,
            calls
                ? h(
                      "section",
                      { class: "card", "aria-labelledby": "cost-calls" },
                      h(
                          "div",
                          { class: "title" },
                          h("h2", { id: "cost-calls" }, "Call by call"),
                          several && h("label", { for: "cost-shown" }, "Settings shown"),
                          several && this.select,
                      ),
                      this.plots.element,
                      this.cuts,
                  )
                : h("p", { class: "empty" }, "This session has no call to a model."),
        );
    }

    leave() {
        this.plots.leave();
    }

    draw() {
        const { played } = this;
        const settings = played.settings.map(({ sums }) => sums);
        fill(
            this.sums,
            sumsOf(played, settings, this.actions),
            settingsTable("Settings", settings, this.actions),
            known(played),
        );
        if (played.calls.tokens.length) this.choose(this.chosen);
    }

    choose(at) {
        this.chosen = at;
        const { calls, compactions, steps } = this.played;
        const setting = this.played.settings[at];
        const marks = [
            ...compactions.map((call) => ({ at: call, kind: "compaction" })),
            ...setting.cuts.map(({ call }) => ({ at: call, kind: "cut" })),
            ...calls.cold.flatMap((isCold, call) => (isCold && call > 0 ? [{ at: call, kind: "cold" }] : [])),
        ];
        const most = calls.tokens.reduce((one, other) => Math.max(one, other), 0);
        const shown = steps
            .filter(({ above }) => above <= most)
            .map(({ above, factor }) => [above, `above ${thousands(above)} tokens: ${number(factor)} times the price`]);
        this.plots.show({
            words: wordsOf(this.played, setting),
            marks,
            figures: [
                { without: calls.tokens, with: setting.tokens, steps: shown },
                { without: calls.cost, with: setting.cost, steps: [] },
            ],
        });
        fill(this.cuts, this.cutsTable(setting), this.wantedTable(setting));
    }

    cutsTable({ cuts }) {
        if (!cuts.length) return h("p", { class: "note" }, "With these settings there is no cut.");
        const rows = cuts
            .slice(0, MOST_ROWS)
            .map(({ call, time, text, values, removed, rewritten }) => [
                this.callButton(call),
                time === null ? "not known" : clock(1000 * time),
                text,
                number(values),
                number(removed),
                number(rewritten),
            ]);
        return [
            h("h3", null, "Cuts"),
            table(
                "Cuts",
                [["Before call", "num"], ["Time", null], ["Reason", null], ["Values", "num"], ["Tokens removed", "num"], ["Tokens written again", "num"]],
                rows,
            ),
            more(cuts, "cut"),
        ];
    }

    wantedTable({ wanted_again: wanted }) {
        if (!wanted.length) return null;
        const rows = wanted.slice(0, MOST_ROWS).map(({ call, line, tokens }) => [
            this.callButton(call),
            h("a", { href: addressOf(this.played.session) + query({ at: line }) }, `#${number(line)}`),
            number(tokens),
        ]);
        return [
            h("h3", null, "Wanted again"),
            table("Wanted again", [["By call", "num"], ["Entry", null], ["Tokens", "num"]], rows),
            more(wanted, "value"),
        ];
    }

    /** A number that moves the pointer of the plots to its call. */
    callButton(call) {
        return h(
            "button",
            { type: "button", class: "quiet inline", onclick: () => this.plots.point(call), "aria-label": `Show call ${call + 1} in the plot` },
            number(call + 1),
        );
    }
}

const more = (all, name) =>
    all.length > MOST_ROWS && h("p", { class: "note" }, `and ${count(all.length - MOST_ROWS, `more ${name}`)}`);

/** Return a function that tells of a call in words. */
function wordsOf({ calls, compactions }, { tokens, cost, cuts }) {
    const cutBefore = new Map(cuts.map((cut) => [cut.call, cut]));
    const compacted = new Set(compactions);
    return (at) => {
        const time = calls.times[at] === null ? "" : `, ${clock(1000 * calls.times[at])}`;
        const money = calls.cost[at] === null ? "" : ` (${dollars(calls.cost[at])})`;
        const less = cost[at] === null ? "" : ` (${dollars(cost[at])})`;
        const cut = cutBefore.get(at);
        return [
            `Call ${number(at + 1)} of ${number(tokens.length)}${time}: ${thousands(calls.tokens[at])} tokens without bsd${money}, ${thousands(tokens[at])} with these settings${less}.`,
            calls.cold[at] && "The cache was cold.",
            compacted.has(at) && "The session was compacted before it.",
            cut && `Cut before it because ${cut.text}: ${thousands(cut.removed)} tokens left.`,
        ]
            .filter(Boolean)
            .join(" ");
    };
}
