// One entry in the list: what it is, its beginning, and what can be done with it.

import { post, put } from "./api.js";
import { button, copyButton, fill, h, toast } from "./dom.js";
import { FullText } from "./content.js";
import { editDialog } from "./editing.js";
import { bytes, clock, count } from "./format.js";
import { badge, clipped } from "./widgets.js";

const PREVIEWED = 200; // characters

export class EntryItem {
    constructor(view, row) {
        this.view = view;
        this.full = null;
        this.partners = [];
        this.isActive = false;
        this.opener = h("button", {
            type: "button",
            class: "entry-open",
            tabindex: -1,
            "aria-expanded": "false",
            onclick: () => this.toggle(),
        });
        this.badges = h("span", { class: "badges" });
        this.preview = h("p", { class: "preview" });
        this.actions = h("div", { class: "actions" });
        this.below = h("div", { class: "below", hidden: true });
        this.element = h(
            "li",
            { class: "entry" },
            h("div", { class: "entry-head" }, this.opener, this.badges),
            this.preview,
            this.below,
            this.actions,
        );
        this.element.addEventListener("focusin", () => this.view.activate(this));
        this.row = null;
        this.update(row);
    }

    leave() {
        this.full?.stop();
    }

    focus() {
        this.view.activate(this);
        this.opener.focus({ preventScroll: true });
    }

    /** The entry with the focus can be worked on by keyboard; the others are only passed. */
    activate(on) {
        this.isActive = on;
        this.opener.tabIndex = on ? 0 : -1;
        for (const one of this.element.querySelectorAll(".actions button, .actions a"))
            one.tabIndex = on ? 0 : -1;
    }

    update(row) {
        if (this.row && JSON.stringify(this.row) === JSON.stringify(row)) return;
        const changed = this.row !== null && this.row.hash !== row.hash;
        this.row = row;
        this.element.dataset.index = row.index;
        this.element.dataset.type = row.type;
        this.element.classList.toggle("extracted", row.extracted);
        this.element.classList.toggle("is-result", Boolean(row.result_of));
        this.drawHead();
        this.drawPreview();
        this.drawActions();
        if (changed && this.full) this.full.outdated(this.source());
    }

    drawHead() {
        const { row } = this;
        const tools = [...(row.calls ?? []).map((call) => call.name), row.tool].filter(Boolean);
        fill(
            this.opener,
            h("span", { class: "index" }, `#${row.index}`),
            h("span", { class: "kind" }, row.type),
            tools.length > 0 && h("span", { class: "tool" }, tools.join(", ")),
            row.time && h("time", { datetime: row.time, title: row.time }, clock(row.time)),
            h("span", { class: "size" }, bytes(row.size)),
        );
        fill(
            this.badges,
            row.extracted &&
                clipped(
                    "extracted",
                    `${row.keys.join(", ")}${row.extracted_at ? `, ${clock(row.extracted_at)}` : ""}`,
                ),
            row.extracted && h("span", { class: "note" }, bytes(row.extracted_size)),
            row.unavailable && badge("unavailable", "bad", row.unavailable),
            row.extractable === false && badge("pinned", "good", "It is never extracted"),
            row.extractable === true &&
                badge("always extract", "warn", "Whatever its type, length and position"),
            typeof row.extractable === "number" &&
                badge(
                    `keep ${row.extractable}`,
                    "plain",
                    `It stays for ${count(row.extractable, "message")}`,
                ),
            row.restored && badge("restored", "good", clock(row.restored)),
        );
    }

    drawPreview() {
        const { row } = this;
        const text = row.extracted ? (row.unavailable ?? row.extracted_preview ?? row.preview) : row.preview;
        const more = [...(text ?? "")].length >= PREVIEWED;
        this.preview.classList.toggle("missing", Boolean(row.unavailable));
        fill(
            this.preview,
            text
                ? `${text}${more ? "…" : ""}`
                : h("span", { class: "note" }, (row.calls ?? []).length ? "calls a tool" : "no text"),
        );
    }

    setPartners(called, answered) {
        const { row } = this;
        const partners = [];
        for (const call of row.calls ?? [])
            if (answered.has(call.id))
                partners.push([`→ result #${answered.get(call.id)}`, answered.get(call.id)]);
        if (row.result_of && called.has(row.result_of))
            partners.push([`← call #${called.get(row.result_of)}`, called.get(row.result_of)]);
        if (JSON.stringify(partners) === JSON.stringify(this.partners)) return;
        this.partners = partners;
        this.drawActions();
    }

    drawActions() {
        const { row } = this;
        const pinned = row.extractable === false;
        const isHeader = row.type === "session"; // it makes the file a session: nothing touches it
        fill(
            this.actions,
            button(this.full ? "Hide" : row.extracted ? "Show full text" : "Show", () => this.toggle(), {
                class: "small",
                "data-focus": "show",
            }),
            row.extracted &&
                button("Restore", () => this.restore(), {
                    class: "small writes",
                    "data-focus": "restore",
                    disabled: Boolean(row.unavailable),
                }),
            !isHeader &&
                button(pinned ? "Unpin" : "Pin", () => this.pin(pinned ? null : false), {
                    class: "small writes",
                    "data-focus": "pin",
                    title: pinned ? "Let the rules decide again" : "Never extract this entry",
                }),
            !isHeader &&
                button("Edit…", () => editDialog(this.view, row), {
                    class: "small writes",
                    "data-focus": "edit",
                }),
            row.id && copyButton(row.id, "Copy id", "entry id"),
            this.partners.map(([label, index]) =>
                button(label, () => this.view.reveal(index), {
                    class: "small quiet partner",
                    "data-focus": `to-${index}`,
                }),
            ),
        );
        this.activate(this.isActive);
    }

    source() {
        const { row } = this;
        return {
            inline: this.view.pathOf(row),
            extracted: row.extracted ? this.view.pathOf(row, "extracted") : null,
            row,
        };
    }

    toggle() {
        if (this.full) {
            this.full.stop();
            this.full = null;
            fill(this.below);
        } else {
            this.full = new FullText(this.source());
            fill(this.below, this.full.element);
            this.full.load();
        }
        this.below.hidden = !this.full;
        this.preview.hidden = Boolean(this.full);
        this.opener.setAttribute("aria-expanded", String(Boolean(this.full)));
        this.drawActions();
    }

    async restore() {
        const done = await post(this.view.pathOf(this.row, "restore"));
        const lost = Object.entries(done.unavailable ?? {});
        if (lost.length) toast(lost.map(([key, why]) => `${key}: ${why}`).join("; "), "bad");
        else
            toast(
                `Restored ${done.keys_restored.join(", ")}.${done.suggestion ? ` ${done.suggestion}` : ""}`,
            );
        await this.view.refreshAll();
    }

    async pin(value) {
        await put(this.view.pathOf(this.row, "meta"), { _extractable: value });
        toast(value === false ? "Pinned: it stays in the session." : "Unpinned: the rules decide again.");
        await this.view.refreshAll();
    }
}
