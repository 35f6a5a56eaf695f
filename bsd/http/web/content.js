// The whole text of an entry, loaded on request and shown in pieces.

import { readText } from "./api.js";
import { button, copyButton, describe, download, fill, h } from "./dom.js";
import { bytes, pretty } from "./format.js";
import { pictureOf, Pictures, takePictures } from "./pictures.js";

const AT_ONCE = 100000; // characters in the document; more on request
const LARGEST = 8 << 20; // bytes; of a larger entry only the beginning is shown
const BEGINNING = 400000; // characters

export class FullText {
    constructor(source) {
        this.source = source;
        this.raw = false;
        this.pictures = new Pictures();
        this.element = h("div", { class: "full" });
    }

    stop() {
        this.abort?.abort();
        this.pictures.stop();
    }

    /** The entry has changed since it was shown. */
    outdated(source) {
        this.source = source;
        this.load();
    }

    async load() {
        this.stop();
        const abort = (this.abort = new AbortController());
        const where = this.raw || !this.source.extracted ? this.source.inline : this.source.extracted;
        const waiting = h("span", null, "Loading…");
        fill(
            this.element,
            h(
                "p",
                { class: "note", role: "status" },
                waiting,
                " ",
                button("Stop", () => abort.abort(), { class: "small quiet" }),
            ),
        );
        const large =
            (this.raw || !this.source.extracted ? this.source.row.size : this.source.row.extracted_size) >
            LARGEST;
        try {
            const { text, whole } = await readText(where, {
                signal: abort.signal,
                most: large ? BEGINNING : Infinity,
                progress: (read, size) => {
                    waiting.textContent = `Loading… ${bytes(read)}${size ? ` of ${bytes(size)}` : ""}`;
                },
            });
            if (abort === this.abort) this.show(text, whole, where);
        } catch (error) {
            if (abort === this.abort) this.fail(error);
        }
    }

    fail(error) {
        const stopped = error.name === "AbortError";
        fill(
            this.element,
            h(
                "p",
                { class: "missing", role: stopped ? null : "alert" },
                stopped ? "Stopped." : describe(error),
            ),
            button("Try again", () => this.load(), { class: "small" }),
        );
    }

    show(text, whole, where) {
        const parts = whole ? this.parts(text) : [["beginning", beginningOf(text)]];
        fill(
            this.element,
            !whole &&
                h(
                    "p",
                    { class: "note" },
                    "This entry is large; only its beginning is shown. ",
                    button("Save all of it…", () => this.save(where), { class: "small" }),
                ),
            parts.map(([key, value, missing]) =>
                typeof value === "string" ? section(key, value, missing) : this.pictures.section(key, value),
            ),
            parts.length === 0 && h("p", { class: "note" }, "This entry contains no text."),
            h("div", { class: "actions" }, this.rawButton()),
        );
    }

    rawButton() {
        const flip = () => {
            this.raw = !this.raw;
            return this.load();
        };
        return button(this.raw ? "As text" : "Entry as JSON", flip, {
            class: "small quiet",
            "data-focus": "raw",
        });
    }

    async save(where) {
        const { text } = await readText(where, { signal: this.abort.signal });
        download([text], `entry-${this.source.row.id ?? this.source.row.index}.json`);
    }

    parts(text) {
        if (this.raw) return [["entry", pretty(entryText(text))]];
        const told = JSON.parse(text);
        if (!this.source.extracted) return readable(told.entry);
        const here = Object.entries(told.content).flatMap(([key, value]) => withPictures(key, value));
        const gone = Object.entries(told.unavailable).map(([key, why]) => [key, why, true]);
        return [...here, ...gone];
    }
}

/** Cut the entry, in its original spelling, out of the answer. */
export function entryText(answer) {
    const mark = ',"entry":';
    return answer.slice(answer.indexOf(mark) + mark.length, answer.lastIndexOf("}"));
}

function section(key, value, missing) {
    const text = h("pre", { tabindex: 0, "aria-label": key, class: missing ? "missing" : null });
    const more = h("p", null);
    let shown = 0;
    const show = () => {
        let end = Math.min(value.length, shown + AT_ONCE);
        if (end < value.length && /[\ud800-\udbff]/.test(value[end - 1])) end -= 1; // half a character
        text.append(value.slice(shown, end));
        shown = end;
        const left = value.length - shown;
        fill(
            more,
            left > 0 &&
                button(`Show more (${left.toLocaleString("en")} characters left)`, show, {
                    class: "small",
                    "data-focus": "more",
                }),
        );
    };
    show();
    return h(
        "section",
        null,
        h(
            "div",
            { class: "full-head" },
            h("code", null, key),
            h("span", { class: "note" }, `${value.length.toLocaleString("en")} characters`),
            !missing && copyButton(() => value, "Copy", "this text"),
        ),
        text,
        more,
    );
}

function asText(value) {
    return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

const FLAT = ["content", "text", "thinking", "output", "result", "data", "message", "summary"];

/** Show a value as text, followed by its pictures; if the value is a picture, only the picture. */
function withPictures(key, value) {
    const { value: rest, pictures } = takePictures(value);
    const shown = pictures.map((picture) => [key, picture]);
    const isPicture = typeof value === "string" || PICTURE_BLOCKS.includes(value?.type);
    return pictures.length && isPicture ? shown : [[key, asText(rest)], ...shown];
}

const PICTURE_BLOCKS = ["image", "input_image", "image_url"];

/** The readable texts of an entry; the whole entry if it has none. */
function readable(entry) {
    const found = [];
    const blocks = entry.message?.content ?? entry.content;
    if (typeof blocks === "string") found.push(["content", blocks]);
    for (const block of Array.isArray(blocks) ? blocks : []) found.push(...ofBlock(block));
    if (!found.length) {
        for (const key of FLAT)
            if (entry[key] !== undefined && entry[key] !== null && entry[key] !== "")
                found.push(...withPictures(key, entry[key]));
    }
    return found.length ? found : withPictures("entry", entry);
}

function ofBlock(block) {
    if (typeof block !== "object" || block === null) return [["block", asText(block)]];
    if (typeof block.text === "string") return [["text", block.text]];
    if (typeof block.thinking === "string") return [["thinking", block.thinking]];
    if (block.type === "toolCall" || block.type === "tool_use")
        return withPictures(`call ${block.name ?? ""}`, block.arguments ?? block.input ?? {});
    return withPictures(String(block.type ?? "block"), block);
}

/** The same if only the beginning is loaded: a picture is named, not shown. */
function beginningOf(json) {
    const text = unescaped(json);
    const picture = pictureOf(text.slice(0, text.length & ~3));
    return picture ? `A ${picture.kind.name} picture, too large to show.` : text;
}

/** The beginning of the first text in a piece of JSON, as text. */
function unescaped(json) {
    const found = /"(?:[^"\\]|\\.){200,}/.exec(json);
    if (!found) return json;
    let text = found[0].slice(1);
    for (let cut = 0; cut < 12; cut += 1) {
        try {
            return JSON.parse(`"${text}"`);
        } catch {
            text = text.slice(0, -1); // a truncated escape sequence
        }
    }
    return json;
}
