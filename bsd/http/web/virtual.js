// A list of rows of any height, of which only those near the viewport are in the document.
//
// Heights are measured once a row is shown and estimated until then. What the reader looks at stays
// where it is when rows above it are measured, loaded or folded: the row at the top of the viewport
// is the anchor, and the scroll position follows it.

import { h } from "./dom.js";

const BEYOND = 600; // pixels rendered above and below the viewport
const PASSES = 5; // measuring can bring more rows into sight

/**
 * Items have a `key`, the lines `first` to `last` that they stand for, and `estimate` in pixels.
 * `render(item)` gives {element, update(item), leave()}; `drawn(items)` hears which are rendered.
 */
export class VirtualList {
    constructor(scroller, { label, render, drawn }) {
        Object.assign(this, { scroller, render, drawn });
        this.items = [];
        this.heights = new Map();
        this.rows = new Map(); // by key: those in the document
        this.tops = [];
        this.anchor = null; // null: the reader sees what stands above the list
        this.element = h("ol", { class: "entries", "aria-label": label });
        this.asked = null;
        this.onScroll = () => {
            // The position that a drawing has set itself is no wish of the reader.
            if (Math.abs(this.scroller.scrollTop - this.placed) >= 1) this.request();
        };
        scroller.addEventListener("scroll", this.onScroll, { passive: true });
        this.observer = new ResizeObserver(() => this.request());
        this.observer.observe(scroller);
        this.above = new ResizeObserver(() => this.hold());
    }

    leave() {
        this.scroller.removeEventListener("scroll", this.onScroll);
        this.observer.disconnect();
        this.above.disconnect();
        cancelAnimationFrame(this.asked);
        for (const row of this.rows.values()) row.leave();
        this.rows.clear();
    }

    /** Draw in the next frame, once for all that asks for it. */
    request() {
        this.asked ??= requestAnimationFrame(() => {
            this.asked = null;
            this.draw();
        });
    }

    /** Observe an element above the list, whose height moves it. */
    observe(element) {
        this.above.observe(element);
    }

    /** Keep what the reader looks at where it is, before the new height of what stands above is painted. */
    hold() {
        const wanted = this.placed === this.scroller.scrollTop ? this.wantedTop(this.listTop) : null;
        if (wanted !== null) {
            this.scroller.scrollTop = wanted;
            this.placed = this.scroller.scrollTop;
        }
        this.request();
    }

    set(items) {
        this.catchUp();
        this.items = items;
        this.draw();
    }

    /** The reader may have scrolled since the last drawing. */
    catchUp() {
        if (this.placed !== undefined && Math.abs(this.scroller.scrollTop - this.placed) >= 1) this.findAnchor();
        this.placed = this.scroller.scrollTop;
    }

    get listTop() {
        const { scroller, element } = this;
        return element.getBoundingClientRect().top - scroller.getBoundingClientRect().top + scroller.scrollTop;
    }

    get isAtEnd() {
        const { scrollHeight, scrollTop, clientHeight } = this.scroller;
        return scrollHeight - scrollTop - clientHeight < 60;
    }

    height(item) {
        return this.heights.get(item.key) ?? item.estimate;
    }

    measureTops() {
        let top = 0;
        this.tops = this.items.map((item) => {
            const at = top;
            top += this.height(item);
            return at;
        });
        this.total = top;
    }

    /** The number of the item at a place of the list, in pixels. */
    at(place) {
        let low = 0;
        let high = this.items.length - 1;
        while (low < high) {
            const middle = (low + high + 1) >> 1;
            if (this.tops[middle] <= place) low = middle;
            else high = middle - 1;
        }
        return low;
    }

    /** Remember what stands at the top of the viewport. */
    findAnchor() {
        const place = this.scroller.scrollTop - this.listTop;
        if (place <= 0 || !this.items.length) {
            this.anchor = null;
            return;
        }
        const item = this.items[this.at(place)];
        const offset = this.tops[this.at(place)] - place;
        const share = -offset / Math.max(1, this.height(item));
        const line = item.first + Math.floor(share * (item.last - item.first + 1));
        this.anchor = { key: item.key, line, offset };
    }

    /** Place a line at `offset` pixels below the top of the viewport; drawn at the next occasion. */
    aim(line, offset) {
        this.placed = this.scroller.scrollTop;
        this.anchor = { key: null, line, offset };
    }

    show(line, offset) {
        this.aim(line, offset);
        this.draw();
    }

    /** The items in the viewport. */
    get visible() {
        const top = this.scroller.scrollTop - this.listTop;
        return this.items.slice(this.at(top), this.at(top + this.scroller.clientHeight) + 1);
    }

    /** Show what stands above the list, and its beginning. */
    showStart() {
        this.scroller.scrollTop = this.placed = 0;
        this.anchor = null;
        this.draw();
    }

    /** Show the end, and stay there until the reader scrolls. */
    showEnd() {
        this.placed = this.scroller.scrollTop;
        this.anchor = { end: true };
        this.draw();
    }

    /** Where the viewport has to begin so that the anchor stays where it is. */
    wantedTop(listTop) {
        const { anchor } = this;
        if (!anchor) return null;
        if (anchor.end) return listTop + this.total; // as far as it goes
        let at = anchor.key === null ? -1 : this.items.findIndex((item) => item.key === anchor.key);
        let { offset } = anchor;
        if (at < 0) {
            at = this.indexOf(anchor.line);
            if (at < 0) return null;
            // The item that held the line has become others.
            if (anchor.key !== null) offset = Math.max(offset, -this.height(this.items[at]) + 1, -40);
        }
        return listTop + this.tops[at] - offset;
    }

    /** The number of the item that shows a line, or of the last one before it. */
    indexOf(line) {
        let found = -1;
        for (let at = 0; at < this.items.length; at += 1) {
            if (this.items[at].first > line) break;
            found = at;
        }
        return this.items.length ? Math.max(0, found) : -1;
    }

    draw() {
        if (!this.element.isConnected) return;
        this.catchUp();
        let shown = [];
        for (let pass = 0; pass < PASSES; pass += 1) {
            this.measureTops();
            this.element.style.height = `${Math.ceil(this.total)}px`;
            const listTop = this.listTop;
            const wanted = this.wantedTop(listTop);
            if (wanted !== null && Math.abs(wanted - this.scroller.scrollTop) >= 1)
                this.scroller.scrollTop = wanted;
            this.placed = this.scroller.scrollTop;
            shown = this.inSight(this.placed - listTop);
            this.place(shown);
            if (!this.measure(shown)) break;
        }
        this.drawn(shown.map((at) => this.items[at]));
    }

    inSight(top) {
        if (!this.items.length) return [];
        const first = this.at(top - BEYOND);
        const last = this.at(top + this.scroller.clientHeight + BEYOND);
        const wanted = [];
        for (let at = first; at <= last; at += 1) wanted.push(at);
        // The row with the focus stays, however far the reader scrolls.
        const held = this.element.contains(document.activeElement) && document.activeElement.closest("li");
        for (const [key, row] of this.rows) {
            if (row.element !== held) continue;
            const at = this.items.findIndex((item) => item.key === key);
            if (at >= 0 && (at < first || at > last)) wanted.push(at);
        }
        return wanted.sort((a, b) => a - b);
    }

    place(wanted) {
        const held = this.element.contains(document.activeElement) ? document.activeElement : null;
        const keys = new Set(wanted.map((at) => this.items[at].key));
        for (const [key, row] of this.rows) {
            if (keys.has(key)) continue;
            this.observer.unobserve(row.element);
            row.leave();
            row.element.remove();
            this.rows.delete(key);
        }
        let previous = null;
        for (const at of wanted) {
            const item = this.items[at];
            let row = this.rows.get(item.key);
            if (row) row.update(item);
            else {
                row = this.render(item);
                this.rows.set(item.key, row);
                this.observer.observe(row.element);
            }
            row.element.style.top = `${Math.round(this.tops[at])}px`;
            const next = previous ? previous.nextSibling : this.element.firstChild;
            if (next !== row.element) this.element.insertBefore(row.element, next);
            previous = row.element;
        }
        // Moving an element takes its focus.
        if (held?.isConnected && held !== document.activeElement) held.focus({ preventScroll: true });
    }

    /** Measure what is rendered; returns whether an item has another height than was thought. */
    measure(wanted) {
        let changed = false;
        for (const at of wanted) {
            const item = this.items[at];
            if (item.isGap) continue;
            const height = this.rows.get(item.key).element.getBoundingClientRect().height;
            if (Math.abs(height - this.height(item)) >= 0.5) changed = true;
            this.heights.set(item.key, height);
        }
        return changed;
    }
}
