// Sessions of all machines that share a catalogue, and a search in them.

import { query } from "./api.js";
import { button, describe, fill, h, problem } from "./dom.js";
import { count } from "./format.js";
import { ALL, askHosts, hostSelect, rowOnHost } from "./hosts.js";

const PAGE = 50;
const WAIT = 300; // milliseconds after the last key
const FILTERS = ["q", "host", "agent", "role", "since", "until"];
const TOLD = { agent: "agent", role: "role", since: "since", until: "until" };

export async function fleetView(page) {
    const view = new FleetView(page);
    view.draw();
    await view.load();
    return view;
}

class FleetView {
    constructor(page) {
        this.page = page;
        this.values = Object.fromEntries(FILTERS.map((name) => [name, page.values[name] ?? ""]));
        this.values.host ||= ALL;
        this.note = h("p", { class: "note", role: "status" });
        this.trouble = h("div", null);
        this.list = h("ol", { class: "hits card", "aria-label": "Sessions of machines" });
        this.further = h("div", { class: "buttons" });
        this.turn = 0;
    }

    draw() {
        this.field = h("input", {
            type: "search",
            id: "search",
            name: "q",
            value: this.values.q,
            placeholder: "Words in sessions of all machines",
            "aria-label": "Search all machines",
            autocomplete: "off",
            spellcheck: "false",
            maxlength: 900,
            oninput: () => {
                clearTimeout(this.typing);
                this.typing = setTimeout(() => this.choose("q", this.field.value.trim()), WAIT);
            },
        });
        const enter = (event) => {
            event.preventDefault();
            clearTimeout(this.typing);
            this.choose("q", this.field.value.trim());
        };
        fill(
            this.page.main,
            h("h1", null, "Machines"),
            h(
                "form",
                { class: "filters", role: "search", onsubmit: enter },
                this.field,
                hostSelect(this.values.host, (host) => this.go(host)),
            ),
            this.note,
            this.trouble,
            this.list,
            this.further,
        );
    }

    leave() {
        clearTimeout(this.typing);
        this.stop?.abort();
    }

    /** Show another machine; this one has a list of its own. */
    go(host) {
        if (host) this.choose("host", host);
        else location.hash = `#/sessions${query({ q: this.values.q, agent: this.values.agent })}`;
    }

    choose(name, value) {
        if (this.values[name] === value) return;
        this.values[name] = value;
        this.page.remember(`#/fleet${query(this.values)}`);
        this.load();
    }

    /** Load a page: the first one, or the one after the key `after`. */
    async load(after = null) {
        const turn = ++this.turn;
        this.stop?.abort();
        this.stop = new AbortController();
        this.list.setAttribute("aria-busy", "true");
        try {
            const found = await askHosts(this.values, { limit: PAGE, after }, this.stop.signal);
            if (turn !== this.turn) return;
            const rows = (found.results ?? found.sessions).map((one) => rowOnHost(one, this.values));
            if (after === null) fill(this.list, rows);
            else this.list.append(...rows);
            this.tell(found);
        } catch (error) {
            if (turn !== this.turn || error.name === "AbortError") return;
            this.note.textContent = describe(error);
            fill(this.trouble, problem(error, () => this.load(after)));
        } finally {
            if (turn === this.turn) this.list.removeAttribute("aria-busy");
        }
    }

    tell({ next }) {
        fill(this.trouble);
        const shown = this.list.children.length;
        const what = this.values.q ? ["entry", "entries"] : ["session"];
        const filters = Object.keys(TOLD).filter((name) => this.values[name]);
        const only = filters.map((name) => `${TOLD[name]} ${this.values[name]}`).join(", ");
        this.list.hidden = !shown;
        this.note.textContent = shown
            ? `The newest ${count(shown, ...what)}${only && ` (${only})`}`
            : "Nothing was found. Try: other words, or another machine";
        fill(this.further, next !== null && button("Show more", () => this.load(next), { class: "quiet" }));
    }
}
