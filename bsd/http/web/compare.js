// What stands in an entry, beside what was taken out of it.

import { readText } from "./api.js";
import { button, copyButton, dialog, fill, h, problem } from "./dom.js";
import { bytes, number } from "./format.js";
import { Pictures, takePictures } from "./pictures.js";
import { restoreEntry } from "./restoring.js";

const LARGEST = 8 << 20; // bytes that are read at once
const AT_ONCE = 20000; // characters of a text in the document; more on request
const STEP = /\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]|(?:^|\.)([^.[\]"]+)/gy;

/** Show, for each value that is away, what stands there and what stood there, and restore some. */
export async function compareDialog(view, row) {
    const { body, close, closed } = dialog(`Entry #${row.index}: now and before`, { wide: true });
    const pictures = new Pictures();
    closed.then(() => pictures.stop());
    const restore = async (keys) => {
        await restoreEntry(view, row, keys);
        close(true);
    };
    const load = async () => {
        if (row.size + row.extracted_size > LARGEST) {
            fill(body, tooLarge(view, row), buttonsFor(() => restore(null), close, true));
            return;
        }
        fill(body, h("p", { class: "note", role: "status" }, "Loading…"));
        try {
            const [now, before] = await Promise.all([
                readText(view.pathOf(row)),
                readText(view.pathOf(row, "extracted")),
            ]);
            const { entry } = JSON.parse(now.text);
            const { content, unavailable } = JSON.parse(before.text);
            const keys = Object.keys(content);
            fill(
                body,
                keys.map((key) =>
                    pair(key, valueAt(entry, key), content[key], pictures, keys.length > 1 && restore),
                ),
                Object.entries(unavailable).map(([key, why]) =>
                    h("section", null, h("code", null, key), h("p", { class: "missing" }, why)),
                ),
                buttonsFor(() => restore(null), close, keys.length > 0),
            );
        } catch (error) {
            fill(body, problem(error, load));
        }
    };
    await load();
}

function buttonsFor(restore, close, some) {
    return h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", onclick: () => close() }, "Close"),
        some && button("Restore all of the entry", restore, { class: "primary writes" }),
    );
}

function tooLarge(view, row) {
    const name = row.id ?? `#${row.index}`;
    return [
        h("p", null, `${bytes(row.extracted_size)} are away; that is too much to be shown side by side.`),
        h("p", null, "Try: ", h("code", null, `bsd show ${view.session} --entry ${name} --full`)),
    ];
}

function pair(key, now, before, pictures, restore) {
    return h(
        "section",
        { class: "compared", "aria-label": key },
        h(
            "div",
            { class: "full-head" },
            h("code", { class: "wrap" }, key),
            restore && button("Restore this value", () => restore([key]), { class: "small writes" }),
        ),
        h(
            "div",
            { class: "sides" },
            side("Stands there now", now, pictures),
            side("Was taken out", before, pictures),
        ),
    );
}

function side(title, value, pictures) {
    const { value: rest, pictures: found } = takePictures(value);
    const text = value === undefined ? null : typeof rest === "string" ? rest : JSON.stringify(rest, null, 2);
    return h(
        "div",
        { class: "side" },
        h(
            "div",
            { class: "full-head" },
            h("strong", null, title),
            text !== null && h("span", { class: "note" }, `${number(text.length)} characters`),
            text !== null && copyButton(() => text, "Copy", `what ${title.toLowerCase()}`),
        ),
        text === null
            ? h("p", { class: "missing" }, "Nothing: the entry has no such value any more.")
            : long(title, text),
        found.map((picture) => pictures.section("", picture)),
    );
}

function long(title, text) {
    const shown = h("pre", { tabindex: 0, "aria-label": title });
    const more = h("p", null);
    let end = 0;
    const show = () => {
        let next = Math.min(text.length, end + AT_ONCE);
        if (next < text.length && /[\ud800-\udbff]/.test(text[next - 1])) next -= 1; // half a character
        shown.append(text.slice(end, next));
        end = next;
        fill(
            more,
            end < text.length &&
                button(`Show more (${number(text.length - end)} characters left)`, show, { class: "small" }),
        );
    };
    show();
    return [shown, more];
}

/** The value at a key such as `message.content[0].text`; undefined if there is none. */
export function valueAt(entry, key) {
    let value = entry;
    STEP.lastIndex = 0;
    while (STEP.lastIndex < key.length) {
        const found = STEP.exec(key);
        if (!found || value === null || typeof value !== "object") return undefined;
        const [, index, quoted, plain] = found;
        const step = index ?? (quoted ? JSON.parse(quoted) : plain);
        if (!Object.hasOwn(value, step)) return undefined;
        value = value[step];
    }
    return value;
}
