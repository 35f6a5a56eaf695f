// Sub-agents of a session, shown below the calls that started them, as links or opened in place.

import { get, query, sessionPath } from "./api.js";
import { blocksOf } from "./blocks.js";
import { button, fill, h, problem } from "./dom.js";
import { EntryCard } from "./entry.js";
import { bytes, count } from "./format.js";
import { Reading } from "./reading.js";
import { linkTo } from "./widgets.js";

const SHOWN = 50; // entries of a sub-agent that are opened in place
const STARTERS = /task|agent|spawn/i; // tools

export class Subagents {
    /** `moved()` is called when a height changes. */
    constructor(conversation) {
        this.conversation = conversation;
        this.byCall = new Map();
        this.drawn = "[]";
        this.loose = h("div", { class: "subagents" });
        this.boxes = new Map();
    }

    leave() {
        for (const box of this.boxes.values()) box.leave();
    }

    set(subagents) {
        const drawn = JSON.stringify(subagents);
        if (drawn === this.drawn) return false;
        this.drawn = drawn;
        this.byCall = Map.groupBy
            ? Map.groupBy(subagents, (one) => one.call_index)
            : grouped(subagents, (one) => one.call_index);
        const loose = this.byCall.get(null) ?? [];
        fill(
            this.loose,
            loose.length > 0 && h("h2", null, "Sub-agents without a known call"),
            loose.map((one) => this.box(one)),
        );
        return true;
    }

    /** The elements below a block: the sub-agents that it started. */
    of(block) {
        const started = this.byCall.get(block.first);
        if (!started || block.kind !== "call") return null;
        // If an entry has several calls, only one of them starts sub-agents.
        const calls = block.row.calls ?? [];
        const starter = calls.find(({ name }) => STARTERS.test(name)) ?? calls[0];
        if (calls.length > 1 && block.call !== starter?.id) return null;
        return h("div", { class: "subagents" }, started.map((one) => this.box(one)));
    }

    box(subagent) {
        const known = this.boxes.get(subagent.session);
        if (known) {
            known.update(subagent);
            return known.element;
        }
        const box = new SubagentBox(this, subagent);
        this.boxes.set(subagent.session, box);
        return box.element;
    }
}

class SubagentBox {
    constructor(all, subagent) {
        Object.assign(this, { all, cards: [], isOpen: false });
        this.head = h("div", { class: "subagent-head" });
        this.body = h("div", { class: "subagent-body" });
        this.element = h("section", { class: "subagent", "aria-label": `Sub-agent ${subagent.session}` }, this.head, this.body);
        this.update(subagent);
    }

    leave() {
        for (const card of this.cards) card.leave();
        this.cards = [];
    }

    update(subagent) {
        this.subagent = subagent;
        const { session, title, size, total_size: total, extracted_bytes: away, subagents } = subagent;
        const below = subagents ?? [];
        fill(
            this.head,
            button(this.isOpen ? "Close" : "Open here", () => this.toggle(), {
                class: "small",
                "aria-expanded": String(this.isOpen),
                "data-focus": `sub-${session}`,
            }),
            linkTo(session, null, title || session),
            h("span", { class: "note" }, `sub-agent, ${bytes(size)}${total > size ? `, ${bytes(total)} with those below it` : ""}`),
            away > 0 && h("span", { class: "note" }, `${bytes(away)} taken out`),
        );
        this.below = below.length > 0 && h("div", { class: "subagents" }, below.map((one) => this.all.box(one)));
        if (!this.isOpen) fill(this.body, this.below);
    }

    async toggle() {
        this.isOpen = !this.isOpen;
        this.leave();
        this.update(this.subagent);
        if (this.isOpen) await this.load();
        this.all.conversation.moved();
    }

    async load() {
        const { session } = this.subagent;
        const { conversation } = this.all;
        fill(this.body, h("p", { class: "note", role: "status" }, "Loading…"));
        try {
            const asked = { from: 0, limit: SHOWN, texts: 2000 };
            const { entries, next } = await get(sessionPath(session, "entries") + query(asked));
            const reading = new Reading(session, conversation.page);
            reading.moved = () => conversation.moved();
            reading.marked = () => conversation.marked();
            reading.refreshAll = () => this.load();
            this.leave();
            this.cards = blocksOf(entries).map((block) => new EntryCard(reading, block, { nested: true }));
            fill(
                this.body,
                this.cards.map((card) => card.entry),
                next !== null &&
                    h("p", null, linkTo(session, null, `These are the first ${count(entries.length, "entry", "entries")}: open the whole session`)),
                this.below,
            );
        } catch (error) {
            fill(this.body, problem(error, () => this.load()));
        }
        conversation.moved();
    }
}

function grouped(items, key) {
    const groups = new Map();
    for (const item of items) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
    return groups;
}
