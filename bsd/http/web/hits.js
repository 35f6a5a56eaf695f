// The search inside a session: marks the words, steps from hit to hit.

import { get, query } from "./api.js";
import { button, fill, h } from "./dom.js";
import { number } from "./format.js";

const NAME = "hits"; // of the highlight in the style sheet
const MOST_MARKED = 2000;
const MOST_FOUND = 200;
const MOST_PAGES = 20; // of a search through all text of the session

/** The words of a query in the syntax of the index: `"several words"`, `begin*`. */
function wordsOf(q) {
    const words = [...q.matchAll(/"([^"]+)"|(\S+)/g)].map(([, phrase, word]) => phrase ?? word.replace(/\*$/, ""));
    return words.filter((word) => /[\p{L}\p{N}]/u.test(word));
}

export class Hits {
    /** `remember(q)` keeps the words in the address. */
    constructor(conversation, session, remember) {
        Object.assign(this, { conversation, session, remember, found: [], place: -1, pattern: null });
        this.input = h("input", {
            type: "search",
            name: "find",
            "aria-label": "Find in this session",
            placeholder: "Find in this session",
            autocomplete: "off",
        });
        this.state = h("span", { class: "note", role: "status" });
        this.steps = h("span", { class: "hit-steps" });
        this.element = h("form", { class: "hits-bar", role: "search" }, this.input, this.state, this.steps);
        this.element.addEventListener("submit", (event) => event.preventDefault());
        this.input.addEventListener("keydown", (event) => this.onKey(event));
        this.input.addEventListener("input", () => !this.input.value && this.set(""));
        conversation.hits = this;
    }

    leave() {
        cancelAnimationFrame(this.asked);
        globalThis.CSS?.highlights?.delete(NAME);
        this.q = null;
    }

    async onKey(event) {
        if (event.key === "Escape" && this.input.value) {
            event.preventDefault();
            this.input.value = "";
            await this.set("");
        }
        if (event.key !== "Enter") return;
        event.preventDefault();
        if (this.input.value.trim() !== this.q) await this.set(this.input.value.trim());
        else await this.step(event.shiftKey ? -1 : 1);
    }

    /** Search for words; `at`: the hit that is already shown, else the first hit is shown. */
    async set(q, at = null) {
        this.q = q;
        this.input.value = q;
        this.found = [];
        this.place = -1;
        const words = wordsOf(q).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
        this.pattern = words.length ? new RegExp(words.join("|"), "giu") : null;
        this.isSearching = this.pattern !== null;
        this.remember(q);
        this.draw();
        this.request();
        if (!this.pattern) return;
        try {
            this.found = await this.find(q, at);
        } finally {
            if (q === this.q) this.isSearching = false;
        }
        if (q !== this.q) return;
        this.place = at === null ? -1 : this.found.indexOf(at);
        this.draw();
        if (at === null && this.found.length) await this.step(1);
    }

    /** The lines with the words, from the index; if it has none, or not `at`, from all text. */
    async find(q, at) {
        const agent = this.session.slice(0, this.session.indexOf("/"));
        const asked = { q, agent, session: this.session, limit: MOST_FOUND };
        const lines = new Set();
        const take = ({ results, cursor }) => {
            for (const one of results) if (this.isOurs(one)) lines.add(one.index);
            return cursor;
        };
        take(await get(`search${query(asked)}`));
        if (!lines.size || (at !== null && !lines.has(at))) {
            let cursor = null;
            let pages = 0;
            do cursor = take(await get(`search${query({ ...asked, all: true, cursor })}`));
            while (cursor && lines.size < MOST_FOUND && ++pages < MOST_PAGES && q === this.q);
        }
        return [...lines].sort((one, other) => one - other);
    }

    isOurs({ session, gone }) {
        return session === this.session && !gone;
    }

    /** Go to the next or previous hit; returns false if there is none. */
    async step(step) {
        if (!this.found.length) return false;
        const from = this.conversation.active?.row.index ?? -1;
        const { length } = this.found;
        // The first step starts at the user's position.
        if (this.place < 0) this.place = Math.max(0, this.found.findIndex((line) => line >= from)) - (step > 0 ? 1 : 0);
        this.place = (this.place + step + length) % length;
        this.draw();
        const inField = document.activeElement === this.input;
        await this.conversation.goTo(this.found[this.place], { focus: !inField });
        this.conversation.openAt(this.found[this.place]);
        return true;
    }

    draw() {
        const { found, place, q } = this;
        const none = this.isSearching ? "Searching …" : "No hit";
        fill(this.state, q && (found.length ? `${place < 0 ? "–" : number(place + 1)} of ${number(found.length)}` : none));
        const step = (label, by, name, key) =>
            button(label, () => this.step(by), {
                class: "small quiet",
                "aria-label": name,
                title: `${name} (${key})`,
                "data-focus": name,
            });
        fill(this.steps, found.length > 0 && [step("↑", -1, "Previous hit", "H"), step("↓", 1, "Next hit", "h")]);
    }

    /** Mark the words in the rows that are shown, once per batch of drawings. */
    request() {
        this.asked ??= requestAnimationFrame(() => {
            this.asked = null;
            this.mark();
        });
    }

    mark() {
        const { highlights } = globalThis.CSS ?? {};
        if (!highlights) return; // an older browser
        highlights.delete(NAME);
        if (!this.pattern) return;
        const ranges = [];
        const walker = document.createTreeWalker(this.conversation.list.element, NodeFilter.SHOW_TEXT);
        while (walker.nextNode() && ranges.length < MOST_MARKED) {
            const node = walker.currentNode;
            for (const { index, 0: word } of node.data.matchAll(this.pattern)) {
                const range = new Range();
                range.setStart(node, index);
                range.setEnd(node, index + word.length);
                ranges.push(range);
            }
        }
        if (ranges.length) highlights.set(NAME, new Highlight(...ranges));
    }
}
