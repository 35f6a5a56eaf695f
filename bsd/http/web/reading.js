// What the cards of a session's entries share: where the entries are, what is open, what is as text.

import { entryPath, query } from "./api.js";
import { isSame } from "./blocks.js";
import { addressOf } from "./widgets.js";

/** What cards need of a session: where its entries are, and what is open. */
export class Reading {
    constructor(session, page) {
        Object.assign(this, { session, page });
        this.open = new Map();
        this.raws = new Set();
        this.wholes = new Map();
        this.rawAll = false;
        this.subagents = null;
        this.active = null;
    }

    isSame(one, other) {
        return isSame(one, other);
    }

    isOpen(key, byItself) {
        return this.open.get(key) ?? byItself;
    }

    setOpen(key, open) {
        this.open.set(key, open);
    }

    isRaw(key) {
        return this.raws.has(key) !== this.rawAll;
    }

    flipRaw(card) {
        const { key } = card.block;
        if (!this.raws.delete(key)) this.raws.add(key);
        card.setRaw();
    }

    activate(card) {
        if (this.active !== card) this.active?.activate(false);
        this.active = card;
        card.activate(true);
    }

    pathOf(row, ...more) {
        return entryPath(this.session, row, ...more);
    }

    linkOf(row) {
        return new URL(`${addressOf(this.session)}${query({ at: row.index })}`, document.baseURI).href;
    }

    subagentsOf(block) {
        return this.subagents?.of(block) ?? null;
    }

    partnerButton() {
        return null;
    }

    /** Something has another height than before. */
    moved() {}

    /** Something was drawn anew, in which hits are to be marked. */
    marked() {}

    async refreshAll() {}
}
