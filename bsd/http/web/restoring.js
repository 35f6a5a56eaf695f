// Restoring extracted values: of an entry, of several ticked entries, or of a whole session.

import { post, sessionPath } from "./api.js";
import { ask, button, copy, fill, h, toast } from "./dom.js";
import { compareDialog } from "./compare.js";
import { bytes, count } from "./format.js";
import { linkTo } from "./widgets.js";

export { compareDialog };

const selections = new WeakMap(); // by view

/** Controls of an entry with extracted values: tick, restore, compare. */
export function restoreButtons(view, row) {
    if (!row.extracted) return [];
    const missing = Boolean(row.unavailable);
    return [
        selectionOf(view).checkbox(row),
        button("Restore", () => restoreEntry(view, row), {
            class: "small writes",
            "data-focus": `restore-${row.index}`,
            disabled: missing,
            title: missing ? row.unavailable : `Put ${bytes(row.extracted_size)} back into the session`,
        }),
        button("Compare…", () => compareDialog(view, row), {
            class: "small",
            "data-focus": `compare-${row.index}`,
            title: "Compare the present and the extracted value",
        }),
    ];
}

/** Restore values of an entry; with `keys`, only these. */
export async function restoreEntry(view, row, keys = null) {
    const done = await post(view.pathOf(row, "restore"), keys ? { keys } : {});
    const lost = Object.entries(done.unavailable ?? {});
    if (lost.length) toast(lost.map(([key, why]) => `${key}: ${why}`).join("; "), "bad");
    else toast(`Restored ${done.keys_restored.join(", ")}.${done.suggestion ? ` ${done.suggestion}` : ""}`);
    selectionOf(view).drop(row);
    await view.refreshAll();
}

/** The selection of a view, created at first use. */
export function selectionOf(view) {
    if (!selections.has(view)) selections.set(view, new RestoreSelection(view));
    return selections.get(view);
}

/** The ticked entries, and a bar at the bottom of the view with actions on them. */
export class RestoreSelection {
    constructor(view) {
        this.view = view;
        this.rows = new Map(); // by their line
        this.bar = h("div", { class: "restore-bar writes", role: "region", "aria-label": "Ticked entries" });
    }

    checkbox(row) {
        const box = h("input", {
            type: "checkbox",
            class: "tick writes",
            "aria-label": `Tick entry #${row.index} to be restored`,
            "data-focus": `tick-${row.index}`,
            disabled: Boolean(row.unavailable),
        });
        box.checked = this.rows.has(row.index);
        box.addEventListener("click", (event) => event.stopPropagation());
        box.addEventListener("change", () => {
            if (box.checked) this.rows.set(row.index, row);
            else this.rows.delete(row.index);
            this.draw();
        });
        return box;
    }

    drop(row) {
        if (this.rows.delete(row.index)) this.draw();
    }

    clear() {
        this.rows.clear();
        for (const box of this.view.page.main.querySelectorAll("input.tick")) box.checked = false;
        this.draw();
    }

    draw() {
        const rows = [...this.rows.values()];
        if (!rows.length) {
            if (this.bar.contains(document.activeElement)) this.view.page.main.focus({ preventScroll: true });
            this.bar.remove();
            return;
        }
        if (!this.bar.isConnected) this.view.page.main.append(this.bar);
        const size = rows.reduce((sum, row) => sum + row.extracted_size, 0);
        fill(
            this.bar,
            h(
                "span",
                { role: "status" },
                `${count(rows.length, "entry", "entries")} ticked, ${bytes(size)} come back`,
            ),
            button("Restore them", () => this.restore(), { class: "primary", "data-focus": "restore-ticked" }),
            button("All of the session…", () => restoreAll(this.view), { "data-focus": "restore-all" }),
            button("Untick all", () => this.clear(), { class: "quiet", "data-focus": "untick" }),
        );
    }

    async restore() {
        const entries = [...this.rows.values()].map((row) => row.id ?? `#${row.index}`);
        tellRestored(await post(sessionPath(this.view.session, "restore"), { entries }));
        this.clear();
        await this.view.refreshAll();
    }
}

/** Restore all values of a session, after a confirmation. */
export async function restoreAll(view) {
    const away = view.info?.extracted_bytes;
    const amount = away ? ` (${bytes(away)})` : "";
    const yes = await ask({
        title: "Put everything back?",
        text: [
            `bsd restores all values that were taken out of ${view.session}${amount}.`,
            "After the time in the setting keep_after_restore_seconds, bsd takes them out again, unless you pause the session or pin entries.",
        ],
        yes: "Put everything back",
    });
    if (!yes) return;
    tellRestored(await post(sessionPath(view.session, "restore")));
    selectionOf(view).clear();
    await view.refreshAll();
}

function tellRestored(done) {
    const lost = Object.entries(done.unavailable ?? {});
    toast(
        done.values
            ? `${count(done.values, "value")} of ${count(done.entries, "entry", "entries")} restored: the session has ${bytes(done.bytes_after)} now.`
            : "No value was restored.",
        done.values ? "good" : "bad",
    );
    if (lost.length) toast(lost.map(([key, why]) => `${key}: ${why}`).join("; "), "bad");
}

/**
 * Show in `place` that a session is back: a link to it, and the command that continues it. The copy
 * button has the focus, so that the next keystroke copies the command.
 */
export function showBack(place, { session, sessions, resume, amount, advice, lost = [] }) {
    const others = sessions.length - 1;
    fill(
        place,
        h(
            "section",
            { class: "card back-again", "aria-label": "Back again" },
            h(
                "p",
                null,
                "Back again: ",
                linkTo(session, { class: "mono" }),
                others > 0 && `, with ${count(others, "session")} that belong to it`,
                amount && ` (${amount})`,
            ),
            resume &&
                h(
                    "p",
                    { class: "command" },
                    "Continue it: ",
                    h("code", null, resume),
                    button("Copy command", () => copy(resume, "Command copied"), {
                        class: "primary",
                        "data-focus": "copy-command",
                    }),
                ),
            advice && h("p", { class: "note wrap" }, advice),
            lost.length > 0 &&
                h(
                    "ul",
                    { class: "plain" },
                    lost.map((one) => h("li", { class: "missing" }, one)),
                ),
        ),
    );
    (place.querySelector("button") ?? place.querySelector("a")).focus();
}
