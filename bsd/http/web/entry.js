// A block of a conversation: its head, its values, and the actions on its entry.

import { put } from "./api.js";
import { blocksOf, KINDS, textsOf } from "./blocks.js";
import { argumentsOf, isEdit, pathOf, summaryOf } from "./calls.js";
import { FullText } from "./content.js";
import { button, copy, copyButton, fill, h, toast } from "./dom.js";
import { editDialog } from "./editing.js";
import { bytes, clock, count, span } from "./format.js";
import { Pictures } from "./pictures.js";
import { textNodes } from "./plain.js";
import { restoreButtons } from "./restoring.js";
import { ValuePart } from "./value.js";
import { badge, clipped, when } from "./widgets.js";

const PREVIEWED = 600; // characters shown of a folded block
const SMALL_EDIT = 3000; // characters; a diff up to this size is unfolded
const MOST_NESTED = 200; // entries of bookkeeping that are shown at once
const LEAST_SECONDS = 0.1; // a shorter call shows no time
const SLOW = 2; // seconds between steps; shorter times are not shown

export class EntryCard {
    constructor(view, block, { nested = false } = {}) {
        Object.assign(this, { view, block: null, nested });
        this.parts = [];
        this.cards = new Map();
        this.pictures = new Pictures();
        this.head = h("div", { class: "entry-head" });
        this.actions = h("div", { class: "actions", hidden: true });
        this.body = h("div", { class: "entry-body" });
        this.entry = h("div", { class: "entry" }, this.head, this.actions, this.body);
        this.entry.addEventListener("focusin", (event) => {
            if (event.target.closest(".entry") === this.entry) this.view.activate(this);
        });
        this.element = nested ? this.entry : h("li", { class: "block" }, this.entry);
        this.update(block);
    }

    leave() {
        this.full?.stop();
        this.pictures.stop();
        for (const one of [...this.parts, ...this.cards.values()]) one.leave();
        this.parts = [];
        this.cards.clear();
    }

    get row() {
        return this.block.row;
    }

    get isOpen() {
        return this.view.isOpen(this.block.key, this.opensByItself());
    }

    opensByItself() {
        const { kind, tool, texts, isNote } = this.block;
        if (isNote) return false;
        if (kind === "said") return !this.block.isAdded;
        if (kind === "call") return isEdit(tool) && (texts[0]?.length ?? 0) < SMALL_EDIT;
        return kind === "result" && this.nested;
    }

    setOpen(open) {
        this.view.setOpen(this.block.key, open);
        this.draw();
        this.view.moved();
    }

    focus() {
        this.view.activate(this);
        this.head.querySelector(".entry-open").focus({ preventScroll: true });
    }

    /** Put only the controls of the focused entry into the tab order. */
    activate(on) {
        this.isActive = on;
        for (const one of [this.head, this.actions])
            for (const control of one.querySelectorAll("button, a")) control.tabIndex = on ? 0 : -1;
    }

    update(block) {
        if (this.block === block) return;
        const { view } = this;
        const same = this.block && view.isSame(this.block, block);
        this.block = block;
        if (same) return;
        const { row, kind } = block;
        this.entry.dataset.index = row.index;
        this.entry.dataset.type = row.type;
        this.entry.dataset.kind = kind;
        const away = [row, block.result, ...(block.rows ?? [])].some((one) => one?.extracted);
        this.entry.classList.toggle("extracted", away);
        this.entry.classList.toggle("is-result", kind === "result");
        this.entry.classList.toggle("arrived", row.index >= (this.view.arrivedFrom ?? Infinity));
        this.draw();
    }

    /** The entries whose state the head shows: its own, and the result of a folded call. */
    get told() {
        const { row, result, tellsState = true } = this.block;
        return [tellsState && row, !this.isOpen && result].filter(Boolean);
    }

    draw() {
        const held = this.entry.contains(document.activeElement) ? document.activeElement : null;
        const before = this.cards;
        for (const part of this.parts) part.leave();
        this.pictures.stop();
        this.parts = [];
        this.cards = new Map();
        this.before = before; // cards of entries that are still shown are reused
        this.drawHead();
        this.drawActions();
        if (this.full) fill(this.body, this.full.element);
        else if (this.block.kind === "notes") fill(this.body, this.isOpen && this.nestedCards(this.block.rows));
        else fill(this.body, this.isOpen ? this.opened() : this.folded(), this.view.subagentsOf(this.block));
        for (const [key, card] of before) if (this.cards.get(key) !== card) card.leave();
        this.activate(Boolean(this.isActive));
        // Removing an element and inserting it again has lost the focus.
        if (held?.isConnected && document.activeElement !== held) held.focus({ preventScroll: true });
        this.view.marked();
    }

    drawHead() {
        const { block, row, isOpen } = this;
        const [name, summary, hint] = this.words();
        fill(
            this.head,
            h(
                "button",
                {
                    type: "button",
                    class: "entry-open",
                    "aria-expanded": String(isOpen),
                    "data-focus": `open-${row.index}`,
                    onclick: () => this.setOpen(!this.isOpen),
                },
                h("span", { class: "chevron", "aria-hidden": "true" }),
                h("span", { class: "kind" }, textNodes(name)),
                summary && h("span", { class: `summary${block.kind === "call" ? " mono" : ""}` }, textNodes(summary)),
                hint && h("span", { class: "hint" }, hint),
            ),
            h("span", { class: "badges" }, this.badges()),
            block.kind !== "notes" && this.restoring(),
            h("span", { class: "meta" }, this.meta()),
            block.kind !== "notes" &&
                h(
                    "button",
                    {
                        type: "button",
                        class: "quiet small tools",
                        "aria-label": `Actions on entry ${row.index}`,
                        "aria-expanded": String(!this.actions.hidden),
                        "data-focus": `tools-${row.index}`,
                        onclick: () => this.showActions(this.actions.hidden),
                    },
                    "⋯",
                ),
        );
    }

    /** The name, a short summary, and a note. */
    words() {
        const { kind, row, rows, texts, tool } = this.block;
        if (kind === "notes") return [count(rows.length, "entry of bookkeeping", "entries of bookkeeping"), kindsOf(rows)];
        if (kind === "call") return [tool ?? "Call", summaryOf(texts[0]?.text)];
        const letters = texts.reduce((sum, { length }) => sum + (length ?? 0), 0);
        if (kind === "thinking") return ["Thinking", !this.isOpen && beginning(texts), count(letters, "character")];
        if (kind === "result") return ["Result", this.nested ? null : (row.tool ?? null)];
        const name = this.block.isAdded ? "Added by the program" : (KINDS[row.type] ?? row.type);
        return [name, !this.isOpen && beginning(texts)];
    }

    meta() {
        const { block, row } = this;
        const { kind, result, step, between } = block;
        if (kind === "notes") return [];
        const taken = result ? secondsBetween(row, result) : null;
        const size = kind === "call" ? (result?.size ?? null) : row.size;
        return [
            between && h("span", { title: "Between the question and this answer" }, between),
            kind === "call" && !result && h("span", null, "no result here"),
            taken >= LEAST_SECONDS && h("span", { class: "seconds", title: "From the call to its result" }, seconds(taken)),
            kind !== "call" && step >= SLOW && h("span", { title: "Since the step before" }, `+${seconds(step)}`),
            !(this.nested && kind === "result") && row.time && moment(row.time),
            size !== null && h("span", { class: "size" }, bytes(size)),
            h("span", { class: "index" }, `#${row.index}`),
        ];
    }

    badges() {
        const { block } = this;
        const isFailed = [block.row, block.result].some((row) => row?.texts?.some(({ failed }) => failed));
        if (block.kind === "notes") {
            const away = block.rows.filter((row) => row.extracted);
            const size = away.reduce((sum, row) => sum + row.extracted_size, 0);
            return [away.length > 0 && clipped(`${away.length} taken out`, `${bytes(size)}, never sent to the model`)];
        }
        return [isFailed && badge("error", "bad", "The tool reported that the call failed"), this.told.map(stateOf)];
    }

    restoring() {
        return this.away.map(({ tick, restore }) => h("span", { class: "restoring writes" }, tick, restore));
    }

    /** Controls that restore the extracted values of the block. */
    get away() {
        return this.told
            .filter(({ extracted }) => extracted)
            .map((row) => {
                const [tick, restore, compare] = restoreButtons(this.view, row);
                return { tick, restore, compare };
            });
    }

    showActions(shown) {
        this.actions.hidden = !shown;
        this.drawActions();
        this.activate(true);
        this.head.querySelector(".tools").setAttribute("aria-expanded", String(shown));
        this.view.moved();
    }

    drawActions() {
        const { row, view } = this;
        if (this.actions.hidden || this.block.kind === "notes") {
            fill(this.actions);
            return;
        }
        const pinned = row.extractable === false;
        const isHeader = row.type === "session"; // the header of the session cannot be changed
        const named = (name) => ({ class: "small", "data-focus": `${name}-${row.index}` });
        const writes = (name, more = {}) => ({ ...named(name), class: "small writes", ...more });
        fill(
            this.actions,
            button(this.full ? "Hide whole entry" : "Whole entry", () => this.showAll(), named("whole")),
            button(view.isRaw(this.block.key) ? "Formatted" : "As text", () => view.flipRaw(this), named("raw")),
            !isHeader &&
                button(
                    pinned ? "Unpin" : "Pin",
                    () => this.pin(pinned ? null : false),
                    writes("pin", { title: pinned ? "Let the rules decide again" : "Never extract this entry" }),
                ),
            !isHeader && button("Edit…", () => editDialog(view, row), writes("edit")),
            row.id && copyButton(row.id, "Copy id", "entry id"),
            this.away.map(({ compare }) => compare),
            button("Copy link", () => copy(view.linkOf(row), "link copied"), {
                class: "quiet small",
                "aria-label": "Copy link to this entry",
                "data-focus": `link-${row.index}`,
            }),
            row.result_of && !this.nested && view.partnerButton(row),
        );
    }

    // --- the body ---

    folded() {
        const { kind, result, texts } = this.block;
        const shown = kind === "call" ? result && textsOf(result).filter(({ display }) => !display) : texts;
        const missing = shown?.find(({ unavailable }) => unavailable);
        if (missing) return h("p", { class: "preview missing" }, missing.unavailable);
        if (!shown?.length || (kind !== "call" && kind !== "result")) return null;
        const text = shown.map((one) => (one.media ? `[${one.media.type ?? "picture"}, ${bytes(one.media.size)}]` : one.text)).join("\n");
        if (!text?.trim()) return null;
        const away = shown.some(({ extracted }) => extracted);
        return h("p", { class: `preview output${away ? " away" : ""}` }, textNodes(plain(text).slice(0, PREVIEWED)));
    }

    opened() {
        const { kind, row, texts, result } = this.block;
        if (kind === "call") {
            const path = pathOf(texts[0]?.text);
            return [
                texts.filter((text) => !isToldInHead(text)).map((text) => this.part(row, text, { tool: this.block.tool, path })),
                result && this.nestedCard(result, path),
            ];
        }
        if (!texts.length) return h("p", { class: "note" }, "This entry contains no text.");
        return texts.map((text) => this.part(row, text, { tool: row.tool ?? null, path: this.block.path ?? null }));
    }

    part(row, text, hints) {
        const part = new ValuePart(this.view, row, text, hints, this.pictures);
        part.setRaw(this.view.isRaw(this.block.key));
        this.parts.push(part);
        return part.element;
    }

    nestedCard(row, path) {
        const texts = textsOf(row).filter(({ display }, _, all) => !display || all.every((one) => one.display));
        const block = { key: `r${row.index}`, kind: "result", row, texts, result: null, path, first: row.index, last: row.index };
        return this.cardOf(block);
    }

    nestedCards(rows) {
        const shown = rows.slice(0, MOST_NESTED).flatMap((row) => blocksOf([row], { plain: true }));
        return shown.map((block) => this.cardOf({ ...block, isNote: true }));
    }

    cardOf(block) {
        const known = this.before.get(block.key);
        known?.update(block);
        const card = known ?? new EntryCard(this.view, block, { nested: true });
        this.cards.set(block.key, card);
        return card.entry;
    }

    setRaw() {
        this.draw();
        this.view.moved();
    }

    /** Show the whole entry instead of its block. */
    showAll() {
        if (this.full) {
            this.full.stop();
            this.full = null;
        } else {
            const { row, view } = this;
            const extracted = row.extracted ? view.pathOf(row, "extracted") : null;
            this.full = new FullText({ inline: view.pathOf(row), extracted, row });
            this.full.load();
        }
        this.draw();
        this.view.moved();
    }

    async pin(value) {
        await put(this.view.pathOf(this.row, "meta"), { _extractable: value });
        toast(value === false ? "Pinned: it stays in the session." : "Unpinned: the rules decide again.");
        await this.view.refreshAll();
    }
}

function stateOf(row) {
    return [
        row.extracted &&
            h(
                "span",
                { class: "taken" },
                clipped("taken out", row.keys.join(", ")),
                h("span", { class: "note" }, bytes(row.extracted_size), row.extracted_at && [" · ", when(row.extracted_at)]),
            ),
        row.unavailable && badge("unavailable", "bad", row.unavailable),
        row.extractable === false && badge("pinned", "good", "It is never extracted"),
        row.extractable === true && badge("always extract", "warn", "Independent of its type, length and position"),
        typeof row.extractable === "number" &&
            badge(`keep ${row.extractable}`, "plain", `It stays for ${count(row.extractable, "message")}`),
        row.restored && badge("restored", "good", clock(row.restored)),
    ];
}

/** True if the line in the head shows all arguments of a call. */
function isToldInHead({ text, length }) {
    if (!text || length > 200) return !text;
    const values = Object.values(argumentsOf(text));
    return values.length === 1 && values[0] === summaryOf(text);
}

const ESCAPES = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|.)/g;

/** A text without the escapes of a terminal. */
function plain(text) {
    return text.replace(ESCAPES, "");
}

function beginning(texts) {
    const [first] = texts;
    if (first?.media) return "a picture";
    const line = (first?.unavailable ?? first?.text ?? "").trim().split("\n", 1)[0].slice(0, 160);
    return line || null;
}

function kindsOf(rows) {
    const times = new Map();
    for (const { type } of rows) times.set(type, (times.get(type) ?? 0) + 1);
    const named = [...times].sort((a, b) => b[1] - a[1]).slice(0, 4);
    return named.map(([type, many]) => (many > 1 ? `${many} × ${type}` : type)).join(", ");
}

function secondsBetween(one, other) {
    const passed = (Date.parse(other.time ?? "") - Date.parse(one.time ?? "")) / 1000;
    return Number.isFinite(passed) && passed >= 0 ? passed : null;
}

function seconds(passed) {
    return passed < 10 ? `${passed.toFixed(1)} s` : span(passed);
}

/** A time of day; the tooltip shows the date. */
function moment(iso) {
    const time = new Date(iso);
    if (Number.isNaN(time.getTime())) return null;
    const words = time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    return h("time", { datetime: iso, title: clock(iso) }, words);
}
