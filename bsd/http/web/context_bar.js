// The bar with the session's context: what the model still sees, its limit, extracted tokens; below
// it, the kinds of content of the session.

import { fill, h } from "./dom.js";
import { bytes, count, number, span, thousands } from "./format.js";
import { table } from "./widgets.js";

const SOURCES = {
    usage: "as the session recorded it last",
    less: "as the session recorded it last, less an estimate of what was taken out since",
    estimate: "estimated by the characters",
};
const FILLS = 12; // rows of the table

export class ContextBar {
    constructor() {
        this.element = h("div", { class: "context", role: "group", "aria-label": "What the model sees" });
        this.element.hidden = true;
    }

    set(outline, goTo) {
        const drawn = JSON.stringify([outline.context, outline.fills, outline.tools, outline.total]);
        if (drawn === this.drawn) return;
        this.drawn = drawn;
        const isOpen = Boolean(this.element.querySelector("details")?.open);
        const details = h(
            "details",
            { class: "fills", open: isOpen },
            h("summary", { "data-focus": "fills" }, "What fills it"),
            this.fills(outline),
            this.tools(outline),
        );
        fill(this.element, this.bar(outline.context), this.words(outline.context, goTo), details);
        this.element.hidden = false;
    }

    bar({ tokens, limit, most_seen: seen, extracted_tokens: away }) {
        const whole = Math.max(limit ?? seen ?? 0, tokens + away, 1);
        const part = (name, size) => {
            const element = h("span", { class: name });
            element.style.width = `${(100 * size) / whole}%`;
            return element;
        };
        return h("div", { class: "context-bar", "aria-hidden": "true" }, part("context-seen", tokens), part("context-away", away));
    }

    words({ tokens, limit, limit_reason: reason, most_seen: seen, model, since, source, extracted_tokens: away }, goTo) {
        const of = limit ? ` of ${thousands(limit)} tokens (${Math.round((100 * tokens) / limit)} %)` : " tokens";
        const unknown = seen > tokens ? `its limit is not known, at least ${thousands(seen)} tokens` : "its limit is not known";
        const link = h(
            "button",
            { type: "button", class: "quiet inline", onclick: () => goTo(since), "data-focus": "since" },
            `since entry #${number(since)}`,
        );
        return h(
            "p",
            { class: "context-words" },
            h("strong", { title: `${number(tokens)} tokens, ${SOURCES[source] ?? source}` }, `The model sees ${thousands(tokens)}${of}`),
            model && h("span", { class: "note" }, model),
            h("span", { class: "note" }, limit ? `limit ${reason}` : unknown),
            since > 0 && h("span", { class: "note" }, link),
            away > 0 && h("span", { class: "note context-out", title: "An estimate" }, `${thousands(away)} tokens taken out`),
        );
    }

    fills({ fills, total }) {
        const rest = fills.slice(FILLS);
        const shown = [...fills.slice(0, FILLS), ...(rest.length ? [together(rest)] : [])];
        const rows = shown.map((one) => [
            one.what,
            bytes(one.bytes),
            `${Math.round(100 * one.share)} %`,
            one.extracted_bytes ? bytes(one.extracted_bytes) : "–",
        ]);
        const children = total.sessions - 1;
        return [
            table("What fills the session", [["What", null], ["Size", "num"], ["Share", "num"], ["Taken out", "num"]], rows),
            children > 0 &&
                h(
                    "p",
                    { class: "note" },
                    `With ${count(children, "sub-agent")}: ${bytes(total.size)}, ${bytes(total.extracted_bytes)} taken out.`,
                ),
        ];
    }

    tools({ tools }) {
        if (!tools.length) return null;
        const rows = tools.slice(0, FILLS).map((one) => [
            one.name,
            number(one.calls),
            one.errors ? number(one.errors) : "–",
            toolTime(one),
            bytes(one.bytes),
            one.extracted_bytes ? bytes(one.extracted_bytes) : "–",
        ]);
        const columns = [["Tool", null], ["Calls", "num"], ["Errors", "num"], ["Time", "num"], ["Results", "num"], ["Taken out", "num"]];
        return table("Tools", columns, rows);
    }
}

/** Kinds of content that have no row of their own. */
function together(fills) {
    const sum = (name) => fills.reduce((total, one) => total + one[name], 0);
    return {
        what: count(fills.length, "other kind"),
        bytes: sum("bytes"),
        share: sum("share"),
        extracted_bytes: sum("extracted_bytes"),
    };
}

/** The total time of a tool's calls; the time of some calls may be unknown. */
function toolTime({ calls, timed_calls: timed, seconds }) {
    if (!timed) return "not known";
    const time = seconds >= 1 ? span(seconds) : "< 1 s";
    return timed < calls ? `${time} for ${count(timed, "call")}` : time;
}
