// Compares extracted values of an entry with the present values, line by line.

import { readText } from "./api.js";
import { button, copyButton, dialog, fill, h, problem } from "./dom.js";
import { bytes, number } from "./format.js";
import { Pictures, takePictures } from "./pictures.js";
import { restoreEntry } from "./restoring.js";
import { textComparison } from "./text_comparison.js";

const LARGEST = 8 << 20; // bytes that are read at once
const STEP = /\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]|(?:^|\.)([^.[\]"]+)/gy;

/** Show how each extracted value differs from its present value, and let the user restore it. */
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
        h("p", null, `${bytes(row.extracted_size)} were taken out; this is too much to show side by side.`),
        h("p", null, "Try: ", h("code", null, `bsd show ${view.session} --entry ${name} --full`)),
    ];
}

const TITLES = ["Was taken out", "Stands there now"];

function pair(key, now, before, pictures, restore) {
    const values = [before, now].map((value) => takePictures(value));
    const texts = [before, now].map((value, at) => textOf(value, values[at].value));
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
            TITLES.map((title, at) => side(title, texts[at])),
        ),
        now === undefined && h("p", { class: "missing" }, "The entry no longer contains this value."),
        texts[0] === texts[1] && texts[0] !== null
            ? h("p", { class: "note" }, "Both are the same.")
            : textComparison(...texts, TITLES),
        values.map(({ pictures: found }, at) =>
            found.map((picture) => pictures.section(TITLES[at], picture)),
        ),
    );
}

/** The text to compare: the value itself if it is text, else its JSON; pictures become words. */
function textOf(value, rest) {
    if (value === undefined) return null;
    return typeof rest === "string" ? rest : JSON.stringify(rest, null, 2);
}

function side(title, text) {
    return h(
        "div",
        { class: "full-head" },
        h("strong", null, title),
        text !== null && h("span", { class: "note" }, `${number(text.length)} characters`),
        text !== null && copyButton(() => text, "Copy", `what ${title.toLowerCase()}`),
    );
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
