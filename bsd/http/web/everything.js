// "Search everything": searches all text without the index, page by page, until the user stops it.

import { get, query } from "./api.js";
import { button, describe, fill, h } from "./dom.js";
import { bytes, count } from "./format.js";
import { hit } from "./session_row.js";

const MOST = 50; // entries that are shown
const PAUSE = 500; // milliseconds before a retry while other searches run

export class Everything {
    constructor() {
        this.element = h("section", { class: "everything", "aria-label": "Search everything" });
        this.stop = null;
    }

    /**
     * Offer to search all text for the words `q` with the filters of the search; stops a search that
     * is still running.
     */
    offer(asked) {
        this.end();
        fill(this.element);
        if (!asked.q) return;
        const begin = () => {
            this.run(asked);
        };
        fill(this.element, button("Search everything", begin, { class: "quiet", title: "Also searches tool results, thinking and archives" }));
    }

    end() {
        this.stop?.abort();
        this.stop = null;
    }

    async run({ q, ...filters }) {
        const stop = new AbortController();
        this.stop = stop;
        const told = h("p", { class: "note", role: "status" }, "Searching everything …");
        const list = h("ol", { class: "hits" });
        const stopper = button("Stop", () => stop.abort(), { class: "quiet" });
        const again = button("Search everything", () => this.run({ q, ...filters }), { class: "quiet" });
        fill(this.element, h("div", { class: "card" }, h("h2", null, "In everything"), told, stopper, list));
        stopper.focus({ preventScroll: true });
        const found = new Map();
        const unread = new Set();
        let page = {};
        const sum = () => count(found.size, "entry", "entries");
        let end = "";
        try {
            do {
                page = await this.page({ q, ...filters, all: true, limit: MOST - found.size, cursor: page.cursor }, stop);
                for (const one of page.results) {
                    const name = JSON.stringify([one.session, one.entry_id ?? one.index]);
                    if (found.has(name)) continue;
                    found.set(name, one);
                    list.append(hit(one, q));
                }
                for (const one of page.unread ?? []) unread.add(`${one.session}: ${one.error}`);
                told.textContent = `Searched ${bytes(page.scanned)} of ${bytes(page.total)}: ${sum()}`;
            } while (page.cursor && found.size < MOST && !stop.signal.aborted);
            end = page.cursor ? "; there may be more" : "";
            if (found.size < MOST && stop.signal.aborted) end = "; stopped";
        } catch (error) {
            end = error.name === "AbortError" ? "; stopped" : `. ${describe(error)}`;
        }
        if (this.stop !== stop) return;
        const read = page.total === undefined ? "" : `Searched ${bytes(page.scanned)} of ${bytes(page.total)}: `;
        told.textContent = `${read}${sum()}${end}`;
        if (unread.size) told.append(h("span", { class: "block" }, `Not searched: ${[...unread].join("; ")}`));
        stopper.replaceWith(again);
    }

    /** Load a page; retry while other searches of everything run. */
    async page(asked, stop) {
        for (;;) {
            try {
                return await get(`search${query(asked)}`, stop.signal);
            } catch (error) {
                if (error.status !== 409) throw error;
                await new Promise((done) => setTimeout(done, PAUSE));
                if (stop.signal.aborted) throw new DOMException("stopped", "AbortError");
            }
        }
    }
}
