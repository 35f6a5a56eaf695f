// State shared by the cards of a session's entries: where entries are, open cards, plain-text mode.

import { entryPath, query } from "./api.js";
import { isSame } from "./blocks.js";
import { addressOf } from "./widgets.js";

/** The state of a session that its cards need. */
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

    /** The height of a card has changed. */
    moved() {}

    /** A card was redrawn, so hits must be marked again. */
    marked() {}

    async refreshAll() {}
}
