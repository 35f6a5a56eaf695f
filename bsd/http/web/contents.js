// The list of a session's prompts: beside the session on wide screens, else in a dialog.

import { query } from "./api.js";
import { dialog, fill, h } from "./dom.js";
import { count, number, span } from "./format.js";
import { addressOf } from "./widgets.js";

export class Contents {
    /** `go(line)` shows a prompt. */
    constructor(session, go) {
        Object.assign(this, { session, go, prompts: [], current: null });
        this.element = h("nav", { class: "contents", "aria-label": "Prompts", hidden: true });
    }

    set(prompts) {
        const drawn = JSON.stringify(prompts);
        if (drawn === this.drawn) return;
        this.drawn = drawn;
        this.prompts = prompts;
        this.element.hidden = !prompts.length;
        this.list = this.listOf((prompt) => this.go(prompt.index));
        fill(this.element, h("h2", null, `Prompts (${number(prompts.length)})`), this.list);
        this.mark(this.line ?? 0);
    }

    listOf(chosen) {
        const items = this.prompts.map((prompt) => {
            const passed = typeof prompt.seconds === "number" && prompt.seconds >= 1 && span(prompt.seconds);
            const link = h(
                "a",
                {
                    href: `${addressOf(this.session)}${query({ at: prompt.index })}`,
                    "data-line": prompt.index,
                    onclick: (event) => {
                        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
                        event.preventDefault(); // show the prompt without loading the view again
                        chosen(prompt);
                    },
                },
                h("span", { class: "contents-text" }, prompt.text || "(no text)"),
                h("span", { class: "note" }, [passed, count(prompt.entries, "entry", "entries")].filter(Boolean).join(" · ")),
            );
            return h("li", null, link);
        });
        return h("ol", { class: "contents-list" }, items);
    }

    /** Mark the prompt that precedes a line. */
    mark(line) {
        this.line = line;
        if (!this.list) return;
        const prompt = this.prompts.findLast(({ index }) => index <= line) ?? this.prompts[0];
        if (prompt === this.current) return;
        this.current = prompt;
        markIn(this.list, prompt);
    }

    openDialog() {
        const { body, close } = dialog(`Prompts (${number(this.prompts.length)})`, { wide: true });
        const list = this.listOf((prompt) => {
            close();
            this.go(prompt.index);
        });
        fill(body, this.prompts.length ? list : h("p", { class: "empty" }, "This session has no prompts yet."));
        markIn(list, this.current);
        (list.querySelector("[aria-current]") ?? list.querySelector("a"))?.focus();
    }
}

function markIn(list, prompt) {
    for (const link of list.querySelectorAll("[aria-current]")) link.removeAttribute("aria-current");
    const link = prompt && list.querySelector(`[data-line="${prompt.index}"]`);
    if (!link) return;
    link.setAttribute("aria-current", "location");
    // Scroll only the list, not the view.
    const { top, bottom } = link.getBoundingClientRect();
    const box = list.getBoundingClientRect();
    if (top < box.top) list.scrollTop += top - box.top - 8;
    else if (bottom > box.bottom) list.scrollTop += bottom - box.bottom + 8;
}
