// A list with rows of any height that keeps only the rows near the viewport in the document.
//
// The height of a row is estimated until the row is shown and measured. The row at the top of the
// viewport is the anchor: the scroll position follows it, so the visible text does not move when rows
// above it are measured, loaded or folded.

import { h } from "./dom.js";

const BEYOND = 600; // pixels rendered above and below the viewport
const PASSES = 5; // measuring can bring more rows into the viewport

/**
 * An item has a `key`, the lines `first` to `last` that it shows, and `estimate`, a height in pixels.
 * `render(item)` returns {element, update(item), leave()}; `drawn(items)` is called after rendering.
 */
export class VirtualList {
    constructor(scroller, { label, render, drawn }) {
        Object.assign(this, { scroller, render, drawn });
        this.items = [];
        this.heights = new Map();
        this.rows = new Map(); // by key: those in the document
        this.tops = [];
        this.anchor = null; // null: the viewport is above the list
        this.element = h("ol", { class: "entries", "aria-label": label });
        this.asked = null;
        this.onScroll = () => {
            // Ignore scroll events that were caused by drawing.
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

    /** Draw in the next frame; several calls cause a single drawing. */
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

    /** Correct the scroll position before a new height above the list is painted. */
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

    /** The index of the item at a vertical position in the list, in pixels. */
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

    /** Make the item at the top of the viewport the anchor. */
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

    /** Place a line `offset` pixels below the top of the viewport, at the next drawing. */
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

    /** Scroll to the top of the page, above the list. */
    showStart() {
        this.scroller.scrollTop = this.placed = 0;
        this.anchor = null;
        this.draw();
    }

    /** Scroll to the end, and stay there until the user scrolls. */
    showEnd() {
        this.placed = this.scroller.scrollTop;
        this.anchor = { end: true };
        this.draw();
    }

    /** The scroll position at which the anchor keeps its place in the viewport. */
    wantedTop(listTop) {
        const { anchor } = this;
        if (!anchor) return null;
        if (anchor.end) return listTop + this.total; // as far as it goes
        let at = anchor.key === null ? -1 : this.items.findIndex((item) => item.key === anchor.key);
        let { offset } = anchor;
        if (at < 0) {
            at = this.indexOf(anchor.line);
            if (at < 0) return null;
            // The item that contained the line was replaced by others.
            if (anchor.key !== null) offset = Math.max(offset, -this.height(this.items[at]) + 1, -40);
        }
        return listTop + this.tops[at] - offset;
    }

    /** The index of the item that shows a line, or of the last item before the line. */
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
        // Keep the focused row in the document even if it is scrolled out of view.
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

    /** Measure the rendered rows; returns true if a height differs from the known height. */
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
