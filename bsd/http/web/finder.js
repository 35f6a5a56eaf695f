// The search for sessions, messages and files: a dialog (Ctrl-K), or the view `#/find`.

import { query } from "./api.js";
import { describe, dialog, fill, h, isTyping } from "./dom.js";
import { Everything } from "./everything.js";
import { Filters, filtersOf, needsAll } from "./finder_filters.js";
import { groupsOf, searchFor } from "./found.js";
import { count } from "./format.js";

const WAIT = 150; // milliseconds after the last key
let numbers = 0;

/** The search field, the filters, and the list of results. */
export class Finder {
    /**
     * `values`: `q`, and the filters by name. `changed(values)` is called when a value changes, `gone`
     * when the user opens a result.
     */
    constructor({ values = {}, changed = () => {}, gone = () => {}, id }) {
        this.values = { q: values.q ?? "", ...filtersOf(values) };
        this.changed = changed;
        this.gone = gone;
        this.name = `finder-${++numbers}`;
        this.active = -1;
        this.turn = 0;
        this.options = [];
        this.field = h("input", {
            id: id ?? `${this.name}-field`,
            class: "finder-field",
            type: "text",
            role: "combobox",
            value: this.values.q,
            placeholder: "Words, a session, or a file such as auth.py",
            "aria-label": "Search sessions, messages and files",
            "aria-expanded": "true",
            "aria-controls": `${this.name}-list`,
            "aria-autocomplete": "list",
            autocomplete: "off",
            spellcheck: "false",
            enterkeyhint: "go",
            maxlength: 900,
            oninput: () => this.typed(),
            onkeydown: (event) => this.onKey(event),
        });
        this.list = h("div", {
            id: `${this.name}-list`,
            class: "finder-list",
            role: "listbox",
            "aria-label": "Results",
            onclick: (event) => event.target.closest("[role=option]") && this.opened(event),
        });
        this.note = h("p", { class: "note", role: "status" });
        const filters = new Filters(this.values, (name, value) => this.choose(name, value), this.name);
        this.element = h("div", { class: "finder" }, this.field, filters.element, this.note, this.list);
    }

    typed() {
        clearTimeout(this.typing);
        this.typing = setTimeout(() => this.choose("q", this.field.value.trim()), WAIT);
    }

    choose(name, value) {
        if (this.values[name] === value) return;
        this.values[name] = value;
        this.changed(this.values);
        this.running = this.search();
    }

    leave() {
        clearTimeout(this.typing);
        this.turn += 1;
        this.stop?.abort();
    }

    /** Search for the typed words; the previous results stay until the new results arrive. */
    async search() {
        const turn = ++this.turn;
        this.stop?.abort();
        this.stop = new AbortController();
        this.list.setAttribute("aria-busy", "true");
        try {
            const found = await searchFor(this.values, this.stop.signal);
            if (turn === this.turn) this.draw(found);
        } catch (error) {
            if (turn === this.turn && error.name !== "AbortError") this.note.textContent = describe(error);
        } finally {
            if (turn === this.turn) this.list.removeAttribute("aria-busy");
        }
    }

    draw(found) {
        const { q } = this.values;
        const groups = groupsOf(found, this.values).filter(({ items }) => items.length);
        fill(this.list, groups.map((group, at) => this.group(group, at)));
        this.options = [...this.list.querySelectorAll("[role=option]")];
        this.field.setAttribute("aria-expanded", String(this.options.length > 0));
        this.point(q && this.options.length ? 0 : -1);
        const told = groups
            .filter(({ one }) => one)
            .map(({ items, one, many }) => count(items.length, one, many));
        const behind = q && found.search && !found.search.complete ? behindNote(found.search) : "";
        this.note.textContent = q && needsAll(this.values)
            ? "“Search everything” also finds tool results, calls, thinking and extracted text"
            : q || this.values.file || this.values.project
              ? `${told.join(", ") || (q ? "No results" : "Type the words to search for")}${behind}`
              : "";
    }

    group({ label, items }, at) {
        const id = `${this.name}-group-${at}`;
        return h(
            "div",
            { role: "group", "aria-labelledby": id },
            h("div", { id, class: "finder-label", role: "presentation" }, label),
            items.map(({ href, parts }, number) =>
                h(
                    "a",
                    {
                        id: `${this.name}-${at}-${number}`,
                        class: "finder-option",
                        role: "option",
                        "aria-selected": "false",
                        tabindex: -1,
                        href,
                    },
                    parts,
                ),
            ),
        );
    }

    /** Mark an option; the field keeps the focus. */
    point(at) {
        this.options[this.active]?.setAttribute("aria-selected", "false");
        this.active = at;
        const option = this.options[at];
        if (!option) {
            this.field.removeAttribute("aria-activedescendant");
            return;
        }
        option.setAttribute("aria-selected", "true");
        option.scrollIntoView({ block: "nearest" });
        this.field.setAttribute("aria-activedescendant", option.id);
    }

    onKey(event) {
        if (event.isComposing || event.altKey || event.ctrlKey || event.metaKey) return;
        const most = this.options.length;
        const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 6, PageUp: -6 }[event.key];
        if (step && most) {
            event.preventDefault();
            const single = Math.abs(step) === 1;
            const to = this.active + step;
            // Wrap around at both ends.
            if (single) this.point(this.active < 0 && step < 0 ? most - 1 : (to + most) % most);
            else this.point(Math.min(most - 1, Math.max(0, to)));
        } else if (event.key === "Enter") {
            event.preventDefault();
            this.enter();
        }
    }

    /** Open the marked result, after the search for the typed words has ended. */
    async enter() {
        clearTimeout(this.typing);
        const q = this.field.value.trim();
        if (q !== this.values.q) {
            this.values.q = q;
            this.changed(this.values);
            this.running = this.search();
        }
        const { turn } = this;
        await this.running;
        if (turn !== this.turn) return; // closed, or other words were typed
        this.options[Math.max(0, this.active)]?.click();
    }

    opened(event) {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return; // in another tab
        this.gone();
    }
}

function behindNote({ waiting, problem }) {
    if (problem) return `. Text was not searched: ${problem}`;
    return `. ${count(waiting, "session")} still to be read for the search`;
}

// --- the dialog ---

let open = null;

export function openFinder() {
    const shown = document.querySelector("dialog[open]");
    if (shown) {
        if (shown === open?.dialog) open.finder.field.select();
        return;
    }
    const box = dialog("Search", { wide: true });
    box.element.classList.add("finder-dialog");
    const finder = new Finder({ gone: () => box.close() });
    open = { finder, dialog: box.element };
    box.closed.then(() => finder.leave()); // after the next dialog may have opened
    box.body.append(
        finder.element,
        h(
            "p",
            { class: "finder-keys", "aria-hidden": "true" },
            [["↑ ↓", "choose"], ["Enter", "open"], ["Esc", "close"]].map(([key, does]) =>
                h("span", null, h("kbd", null, key), ` ${does}`),
            ),
        ),
    );
    finder.field.focus();
    finder.running = finder.search();
}

/** Open the dialog by its button, by Ctrl-K, and by `/` in views that have no search field. */
export function installFinder() {
    document.addEventListener("keydown", (event) => {
        const command = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
        const typing = isTyping(event);
        const slash = event.key === "/" && !typing && !event.ctrlKey && !event.metaKey;
        if (command && event.key.toLowerCase() === "k") event.preventDefault();
        else if (slash && !document.getElementById("search")) event.preventDefault();
        else return;
        openFinder();
    });
    document.getElementById("find-open")?.addEventListener("click", openFinder);
}

// --- the view ---

export async function finderView(page) {
    const { main, values } = page;
    document.title = "Search · bsd";
    const { all, ...filters } = values;
    const everything = new Everything();
    const finder = new Finder({
        id: "search",
        values: filters,
        changed: (now) => {
            page.remember(`#/find${query(now)}`);
            everything.offer({}); // the last offer was for other words
        },
    });
    finder.list.before(everything.element);
    fill(main, h("h1", null, "Search"), finder.element);
    if (all && finder.values.q) everything.run(finder.values);
    else finder.field.focus({ preventScroll: true });
    await finder.search();
    return {
        leave() {
            finder.leave();
            everything.end();
        },
    };
}
