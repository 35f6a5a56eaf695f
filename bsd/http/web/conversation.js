// The entries of a session as a conversation of any length. Loads entries near the viewport, follows
// a growing session, handles the keyboard.

import { get, query, sessionPath } from "./api.js";
import { blocksOf } from "./blocks.js";
import { button, fill, h } from "./dom.js";
import { EntryCard } from "./entry.js";
import { count } from "./format.js";
import { Lines } from "./lines.js";
import { Reading } from "./reading.js";
import { VirtualList } from "./virtual.js";
import { addressOf } from "./widgets.js";

const TEXTS = 4000; // characters of each text that come with the list
const BEFORE = 30; // lines loaded before the requested line
const FROM_TOP = 64; // pixels, so that the bar at the top does not hide the entry
const PER_LINE = 70; // pixels assumed for a line that is not loaded, until others are measured
const MOST_PIXELS = 8e6; // of all gaps together: browsers limit the height of an element

let latest = null; // the last session shown, to restore its state when the user comes back

export class Conversation extends Reading {
    /** `told(answer)` is called with each page, `seen(line)` with the line at the viewport's top. */
    constructor(session, page, { filter = {}, only = null, told, seen, changed }) {
        super(session, page);
        Object.assign(this, { filter, only, told, seen, changed });
        this.isPlain = Object.keys(filter).length > 0;
        this.ask = async (which) => {
            const asked = { ...filter, ...which, texts: TEXTS };
            const answer = await get(sessionPath(session, "entries") + query(asked));
            told(answer);
            return answer;
        };
        this.blocks = new WeakMap(); // by the entries of a stretch
        this.lines = new Lines(this.ask);
        this.perLine = PER_LINE;
        this.unseen = 0;
        this.list = new VirtualList(page.main, {
            label: "Entries",
            render: (item) => (item.isGap ? gap(item) : new EntryCard(this, item)),
            drawn: (items) => this.onDrawn(items),
        });
        this.list.element.addEventListener("keydown", (event) => this.onKey(event));
        this.follower = h("div", { class: "follower", "aria-live": "polite" });
        this.element = h("div", { class: "conversation" }, this.list.element, this.follower);
        this.takeLatest();
    }

    get memory() {
        return JSON.stringify([this.session, this.filter, this.list.scroller.clientWidth]);
    }

    takeLatest() {
        if (latest?.memory !== this.memory) return;
        const { lines, heights, open, wholes } = latest;
        lines.ask = this.ask;
        this.list.heights = heights;
        Object.assign(this, { lines, open, wholes });
    }

    leave() {
        this.left = true;
        const { memory, lines, open, wholes, list } = this;
        latest = { memory, lines, heights: list.heights, open, wholes };
        list.leave();
    }

    /** Load and show the first position: a line, the end (`at` is Infinity), or the beginning. */
    async start(at) {
        const known = this.lines.total > 0;
        if (at === Infinity) await this.lines.loadEnd();
        else if (!this.lines.has(at ?? 0)) await this.lines.loadFrom(Math.max(0, (at ?? 0) - BEFORE));
        if (this.left) return;
        if (at > 0 && at < Infinity) this.list.aim(at, FROM_TOP);
        this.build();
        if (at === Infinity) this.list.showEnd();
        else if (at) await this.goTo(at);
        if (known) this.refresh().catch((error) => this.told({ error }));
        else if (!this.lines.isWhole)
            this.lines.loadEnd().then(
                () => this.build(),
                (error) => this.told({ error }),
            );
    }

    // --- drawing ---

    build() {
        if (this.left) return;
        const items = [];
        for (const stretch of this.lines.stretches) {
            if (stretch.rows) items.push(...this.blocksOf(stretch.rows));
            else items.push(this.gapOf(stretch));
        }
        this.isEmpty = !items.length;
        this.list.set(items);
        this.changed(this);
    }

    blocksOf(rows) {
        if (!this.blocks.has(rows)) {
            const shown = this.only ? rows.filter(({ index }) => this.only.has(index)) : rows;
            const blocks = blocksOf(shown, { plain: this.isPlain }).filter(
                ({ kind }) => !this.only || kind === "said",
            );
            let before = null;
            for (const block of blocks) {
                const began = Date.parse(block.row.time ?? "");
                if (before !== null && began >= before) block.step = (began - before) / 1000;
                block.between = this.only?.get(block.first) ?? null;
                before = Date.parse((block.result ?? block.rows?.at(-1) ?? block.row).time ?? "") || before;
            }
            this.blocks.set(rows, blocks);
        }
        return this.blocks.get(rows);
    }

    gapOf({ start, end }) {
        const missing = this.lines.stretches.reduce((sum, one) => sum + (one.rows ? 0 : one.end - one.start), 0);
        const estimate = (end - start) * Math.min(this.perLine, MOST_PIXELS / missing);
        return { key: `g${start}-${end}`, isGap: true, first: start, last: end - 1, estimate };
    }

    onDrawn(items) {
        const { list } = this;
        const top = list.scroller.scrollTop - list.listTop;
        const first = list.items[list.at(Math.max(0, top + FROM_TOP + 8))];
        if (first && !first.isGap) this.seen(first.first);
        if (!this.active?.element.isConnected) {
            const [row] = [...list.rows.values()].filter((one) => one instanceof EntryCard);
            if (row) this.activate(row);
        }
        if (list.isAtEnd) this.tellUnseen(0);
        this.marked();
        const gaps = items.filter(({ isGap }) => isGap);
        if (gaps.length && !this.loading) this.fillGap(gaps, top);
    }

    /** Load missing entries in the viewport, then check again. */
    fillGap(gaps, top) {
        const bottom = top + this.list.scroller.clientHeight;
        const away = (item) => {
            const from = this.list.tops[this.list.items.indexOf(item)];
            return Math.max(from - bottom, top - from - item.estimate, 0);
        };
        const [item] = [...gaps].sort((one, other) => away(one) - away(other));
        const from = this.list.tops[this.list.items.indexOf(item)];
        const middle = Math.max(from, top) / 2 + Math.min(from + item.estimate, bottom) / 2 - from;
        const share = Math.min(1, Math.max(0, middle / item.estimate));
        const line = Math.min(item.last, item.first + Math.floor(share * (item.last - item.first + 1)));
        this.loading = this.lines
            .fill(line)
            .then(() => {
                this.loading = null;
                this.lines.spare(line, line);
                this.measurePerLine();
                this.build();
            })
            .catch((error) => {
                this.loading = null;
                this.told({ error });
            });
    }

    /** Update the assumed height of lines that are not loaded, but rarely: each update moves rows. */
    measurePerLine() {
        let pixels = 0;
        let lines = 0;
        for (const { start, end, rows } of this.lines.stretches) {
            if (!rows) continue;
            lines += end - start;
            for (const block of this.blocksOf(rows)) pixels += this.list.height(block);
        }
        const now = pixels / Math.max(1, lines);
        if (lines && Math.abs(now - this.perLine) > this.perLine / 4) this.perLine = Math.max(2, now);
    }

    moved() {
        this.list.request();
    }

    marked() {
        this.hits?.request();
    }

    /** Redraw the blocks after a change of the sub-agents below calls. */
    redraw() {
        for (const row of this.list.rows.values()) row.draw?.();
        this.moved();
    }

    flipAllRaw() {
        this.rawAll = !this.rawAll;
        this.raws.clear();
        for (const row of this.list.rows.values()) row.setRaw?.();
        return this.rawAll;
    }

    partnerButton(row) {
        if (!this.isPlain) return null;
        const href = `${addressOf(this.session)}${query({ at: row.index })}`;
        return h("a", { class: "small", href }, "Show in the conversation");
    }

    // --- following ---

    /** Load new entries of the session; with `stale`, loaded entries may have changed as well. */
    async refresh({ stale = false } = {}) {
        if (this.left) return;
        const follows = this.list.isAtEnd;
        const { arrived, entries } = await this.lines.loadEnd();
        // The user may have opened another view in the meantime.
        const [first, last] = this.inSight();
        if (stale) this.lines.keepOnly(first, last, entries[0]?.index);
        if (first < this.lines.total) await this.lines.renew(first, Math.min(last, this.lines.total - 1));
        if (this.left) return;
        if (arrived.length) this.arrivedFrom = arrived[0].index;
        this.build();
        if (follows && arrived.length) this.list.showEnd();
        else if (arrived.length) this.tellUnseen(this.unseen + arrived.length);
    }

    inSight() {
        const items = this.list.visible.filter(({ isGap }) => !isGap);
        if (!items.length) return [0, 0];
        const lines = items.flatMap(({ first, result, rows }) => [first, result?.index ?? first, rows?.at(-1).index ?? first]);
        return [Math.min(...lines), Math.max(...lines)];
    }

    tellUnseen(entries) {
        if (entries === this.unseen) return;
        this.unseen = entries;
        const down = () => this.goToEnd();
        const words = `${count(entries, "new entry", "new entries")} ↓`;
        fill(this.follower, entries > 0 && button(words, down, { class: "primary", "data-focus": "new" }));
    }

    // --- navigation ---

    async goToEnd() {
        if (!this.lines.isWhole || !this.lines.has(this.lines.total - 1)) await this.lines.loadEnd();
        this.build();
        this.list.showEnd();
    }

    holder(line) {
        return this.list.items.find(
            ({ isGap, first, result, rows }) =>
                !isGap && (first === line || result?.index === line || rows?.some(({ index }) => index === line)),
        );
    }

    /** Scroll to an entry and focus it. Returns false if the entry does not exist. */
    async goTo(line, { focus = true } = {}) {
        if (!this.lines.has(line)) {
            await this.lines.loadFrom(Math.max(0, line - BEFORE));
            this.build();
        }
        const block = this.holder(line);
        this.list.show(block?.first ?? line, FROM_TOP);
        if (!block) return false;
        const isInside = block.first !== line || block.kind === "notes";
        if (isInside && !this.isOpen(block.key, false)) this.list.rows.get(block.key)?.setOpen(true);
        this.list.draw();
        const element = this.list.element.querySelector(`.entry[data-index="${line}"]`);
        if (!element) return false;
        if (isInside) this.bringIntoSight(element);
        if (focus) element.querySelector(".entry-open").focus({ preventScroll: true });
        this.list.element.querySelector(".pointed")?.classList.remove("pointed");
        element.classList.add("pointed");
        setTimeout(() => element.classList.remove("pointed"), 1600);
        return true;
    }

    /** Unfold the block that contains an entry. */
    openAt(line) {
        const block = this.holder(line);
        if (block && !this.isOpen(block.key, block.kind === "said" && !block.isAdded)) this.list.rows.get(block.key)?.setOpen(true);
    }

    bringIntoSight(element) {
        const { scroller } = this.list;
        const { top, bottom } = element.getBoundingClientRect();
        const view = scroller.getBoundingClientRect();
        if (top >= view.top + FROM_TOP && bottom <= view.bottom) return;
        scroller.scrollTop += top - view.top - FROM_TOP;
        this.list.findAnchor();
        this.list.draw();
    }

    /** Go to the next or previous extracted entry, relative to the focused entry. */
    async nextExtracted(step) {
        const from = this.active?.row.index ?? -1;
        const asked = step > 0 ? { from: from + 1, limit: 1 } : { before: Math.max(0, from), limit: 1 };
        const answer = await get(sessionPath(this.session, "entries") + query({ extracted: true, ...asked }));
        const [row] = answer.entries;
        return row ? this.goTo(row.index) : false;
    }

    async onKey(event) {
        const at = event.target.closest(".entry-open");
        const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
        if (!at || !step || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        if (step === -Infinity) {
            if (!this.lines.has(0)) await this.lines.loadFrom(0);
            this.build();
            this.list.showStart();
            this.list.element.querySelector(".entry-open")?.focus({ preventScroll: true });
        } else if (step === Infinity) {
            await this.goToEnd();
            [...this.list.element.querySelectorAll(".entry-open")].at(-1)?.focus({ preventScroll: true });
        } else {
            const all = [...this.list.element.querySelectorAll(".entry-open")];
            const next = all[all.indexOf(at) + step];
            if (!next) return;
            next.focus({ preventScroll: true });
            this.keepInSight(next);
        }
    }

    keepInSight(element) {
        const { scroller } = this.list;
        const { top, bottom } = element.closest(".entry").getBoundingClientRect();
        const view = scroller.getBoundingClientRect();
        const isHigh = bottom - top > view.height - 2 * FROM_TOP;
        if (top < view.top + FROM_TOP || isHigh) scroller.scrollTop += top - view.top - FROM_TOP;
        else if (bottom > view.bottom - 16) scroller.scrollTop += bottom - view.bottom + 16;
    }
}

function gap(item) {
    const element = h("li", { class: "block gap", "aria-hidden": "true" });
    const update = ({ estimate }) => (element.style.height = `${Math.round(estimate)}px`);
    update(item);
    return { element, update, leave() {} };
}
