// A list of any length that keeps only its visible rows in the document.

import { h } from "./dom.js";

const AROUND = 8; // rows beyond the edges

/**
 * `key(item)` identifies an item, `render(item)` returns the elements of a row (one of them a link),
 * `more()` is called near the end. The height of rows is `--row` in the style of the list.
 */
export class Rows {
    constructor(scroller, { label, key, render, more }) {
        Object.assign(this, { scroller, key, render, more });
        this.items = [];
        this.rows = new Map();
        this.active = 0;
        this.complete = false;
        this.element = h("ul", { class: "rows", "aria-label": label });
        this.element.addEventListener("keydown", (event) => this.onKey(event));
        this.element.addEventListener("focusin", (event) => this.onFocus(event));
        this.show = () => {
            this.asked ??= requestAnimationFrame(() => {
                this.asked = null;
                this.draw();
            });
        };
        scroller.addEventListener("scroll", this.show, { passive: true });
        this.observer = new ResizeObserver(this.show);
        this.observer.observe(scroller);
    }

    leave() {
        this.scroller.removeEventListener("scroll", this.show);
        this.observer.disconnect();
        cancelAnimationFrame(this.asked);
    }

    set(items, complete) {
        this.items = items;
        this.complete = complete;
        this.active = Math.min(this.active, Math.max(0, items.length - 1));
        this.draw();
    }

    draw() {
        if (!this.element.isConnected) return;
        const height = parseFloat(getComputedStyle(this.element).scrollMarginTop) || 64;
        this.height = height;
        this.element.style.height = `${this.items.length * height}px`;
        const top = this.element.getBoundingClientRect().top - this.scroller.getBoundingClientRect().top;
        const first = Math.max(0, Math.floor(-top / height) - AROUND);
        const last = Math.min(
            this.items.length,
            Math.ceil((this.scroller.clientHeight - top) / height) + AROUND,
        );
        const wanted = new Set();
        for (let at = first; at < last; at += 1) wanted.add(at);
        // Keep the focused row in the document even if it is scrolled out of view.
        if (this.element.contains(document.activeElement) && this.items.length) wanted.add(this.active);
        this.place([...wanted].sort((a, b) => a - b));
        if (!this.complete && last > this.items.length - 30) this.more();
    }

    place(wanted) {
        const before = this.rows;
        const held = this.element.contains(document.activeElement) ? document.activeElement : null;
        const keys = new Set(wanted.map((at) => this.key(this.items[at])));
        for (const [key, { element }] of before) if (!keys.has(key)) element.remove();
        this.rows = new Map();
        let previous = null;
        for (const at of wanted) {
            const item = this.items[at];
            const key = this.key(item);
            const row = before.get(key) ?? { element: h("li", null), item: null };
            if (row.item !== item) this.write(row, item);
            row.element.style.transform = `translateY(${at * this.height}px)`;
            row.element.setAttribute("aria-posinset", at + 1);
            row.element.setAttribute("aria-setsize", this.complete ? this.items.length : -1);
            row.element.querySelector("a").tabIndex = at === this.active ? 0 : -1;
            row.at = at;
            this.rows.set(key, row);
            const next = previous ? previous.nextSibling : this.element.firstChild;
            if (next !== row.element) this.element.insertBefore(row.element, next);
            previous = row.element;
        }
        if (held?.isConnected) held.focus({ preventScroll: true }); // moving an element takes its focus
    }

    write(row, item) {
        const focused = row.element.contains(document.activeElement);
        row.item = item;
        row.element.replaceChildren(this.render(item));
        if (focused) row.element.querySelector("a").focus({ preventScroll: true });
    }

    onFocus(event) {
        for (const { element, at } of this.rows.values()) {
            const own = element.contains(event.target);
            if (own) this.active = at;
            element.querySelector("a").tabIndex = own ? 0 : -1;
        }
    }

    onKey(event) {
        const page = Math.max(1, Math.floor(this.scroller.clientHeight / this.height) - 1);
        const steps = {
            ArrowDown: 1,
            ArrowUp: -1,
            PageDown: page,
            PageUp: -page,
            Home: -Infinity,
            End: Infinity,
        };
        const step = steps[event.key];
        if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        this.go(Math.min(this.items.length - 1, Math.max(0, this.active + step)));
    }

    /** Scroll to a row and focus it. */
    go(at) {
        if (!this.items.length) return;
        this.active = at;
        const list = this.element.getBoundingClientRect().top - this.scroller.getBoundingClientRect().top;
        const top = list + at * this.height;
        const most = this.scroller.clientHeight - this.height - 8;
        if (top < 60) this.scroller.scrollTop += top - 60;
        else if (top > most) this.scroller.scrollTop += top - most;
        this.draw();
        const row = this.rows.get(this.key(this.items[at]));
        row?.element.querySelector("a").focus({ preventScroll: true });
    }
}
