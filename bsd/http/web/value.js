// A value of an entry: shows its beginning from the list, and loads the whole value on request.

import { readText } from "./api.js";
import { button, describe, fill, h } from "./dom.js";
import { bytes, number } from "./format.js";
import { describePicture, takePictures } from "./pictures.js";
import { renderRaw, renderText } from "./render.js";

export const LARGEST = 8 << 20; // bytes of an entry that are read at once
const PICTURE_BY_ITSELF = 2 << 20; // bytes; larger ones are loaded on request
const STEP = /\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]|\.?([^\s.[\]"]+)/y;

/** The value at a path as the server spells it, `message.content[0].text`; undefined: none. */
export function valueAt(entry, path) {
    STEP.lastIndex = 0;
    let value = entry;
    while (STEP.lastIndex < path.length) {
        const step = STEP.exec(path);
        if (!step || typeof value !== "object" || value === null) return undefined;
        const key = step[1] ?? (step[2] === undefined ? step[3] : JSON.parse(step[2]));
        if (!Object.hasOwn(value, key)) return undefined;
        value = value[key];
    }
    return value;
}

let latest = { name: "", answer: null }; // cache: several values of an entry are shown in sequence

async function loaded(where) {
    const { text, whole } = await readText(where, { most: 2 * LARGEST });
    if (!whole) throw new Error("The value is too large to show here. Try: “Whole entry”, which saves it as a file");
    return JSON.parse(text);
}

/** Load a whole value; throws an error with the reason if it is not available. */
export async function wholeValue(view, row, text) {
    const load = (where) => {
        const name = `${where} ${row.hash}`;
        if (latest.name !== name) {
            latest = { name, answer: loaded(where) };
            latest.answer.catch(() => {
                latest = { name: "", answer: null }; // allow a retry
            });
        }
        return latest.answer;
    };
    if (!text.extracted) return valueAt((await load(view.pathOf(row))).entry, text.path);
    const { content, unavailable } = await load(view.pathOf(row, "extracted"));
    if (Object.hasOwn(content, text.path)) return content[text.path];
    if (Object.hasOwn(unavailable, text.path)) throw new Error(unavailable[text.path]);
    // Only some arguments of a call are extracted.
    const { entry } = await load(view.pathOf(row));
    for (const [key, value] of Object.entries(content)) {
        const [, before, last] = /^(.*?)(?:\.([^.[\]"]+)|\[(\d+)\])$/.exec(key) ?? [];
        const holder = before && valueAt(entry, before);
        if (holder && last !== undefined && Object.hasOwn(holder, last)) holder[last] = value;
    }
    return valueAt(entry, text.path);
}

/** Shows a value; `leave` releases its resources. */
export class ValuePart {
    /** `pictures` are those of the whole entry. */
    constructor(view, row, text, hints, pictures) {
        Object.assign(this, { view, row, text, hints, pictures });
        this.element = h("div", { class: `value of-${text.media ? "picture" : text.type}` });
        this.raw = false;
        this.shown = text.text ?? "";
        this.known = view.wholes?.get(this.key);
        this.draw();
    }

    get key() {
        return `${this.row.index} ${this.row.hash} ${this.text.path}`;
    }

    leave() {
        this.left = true;
    }

    setRaw(raw) {
        if (raw === this.raw) return;
        this.raw = raw;
        this.draw();
    }

    draw() {
        const { text } = this;
        this.element.classList.toggle("away", Boolean(text.extracted));
        if (text.unavailable) {
            fill(this.element, h("p", { class: "preview missing" }, text.unavailable));
            return;
        }
        if (text.media) {
            this.drawPicture();
            return;
        }
        if (text.later && this.known === undefined) {
            fill(this.element, this.more(`Show it (${bytes(this.row.extracted_size)})`, () => this.loadAll()));
            return;
        }
        const written = typeof this.known === "string" ? this.known : this.shown;
        fill(this.element, this.raw ? renderRaw(written) : renderText(text.type, written, this.hints), this.rest());
    }

    /** The button that loads the whole value, if only its beginning is shown. */
    rest() {
        const { length } = this.text;
        // Count characters; JavaScript counts some of them as two.
        const isWhole = length === this.shown.length || [...this.shown].length === length;
        if (this.known !== undefined || isWhole) return null;
        return this.more(length === null ? "Show all" : `Show all ${number(length)} characters`, () => this.loadAll());
    }

    more(label, work) {
        return h("p", { class: "more" }, button(label, work, { class: "small quiet", "data-focus": "more" }));
    }

    async loadAll() {
        const value = await wholeValue(this.view, this.row, this.text);
        this.known = typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
        this.view.wholes?.set(this.key, this.known);
        this.draw();
    }

    drawPicture() {
        const { media } = this.text;
        const words = `${media.type ?? media.media_type ?? "picture"}, ${bytes(media.size)}`;
        if (this.raw) {
            fill(this.element, renderRaw(`[${words}]`));
            return;
        }
        const load = async () => {
            const value = await wholeValue(this.view, this.row, this.text);
            if (this.left) return;
            const [picture] = takePictures(value).pictures;
            fill(
                this.element,
                picture
                    ? this.pictures.shown(picture, describePicture(picture))
                    : h("p", { class: "note" }, `${words}: not shown, since browsers cannot display this format.`),
            );
        };
        if (media.size > PICTURE_BY_ITSELF || this.row.size > LARGEST) {
            fill(this.element, this.more(`Show the picture (${words})`, load));
            return;
        }
        fill(this.element, h("p", { class: "note picture-wait" }, words));
        load().catch((error) => {
            if (!this.left) fill(this.element, h("p", { class: "missing" }, describe(error)));
        });
    }
}
