// One value of an entry: its beginning as it came with the list, all of it when it is asked for.

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

let latest = { name: "", answer: null }; // several values of an entry are shown one after the other

async function loaded(where) {
    const { text, whole } = await readText(where, { most: 2 * LARGEST });
    if (!whole) throw new Error("It is too large to be shown here: “Whole entry” saves it as a file");
    return JSON.parse(text);
}

/** Load all of a value; throws an error that says why it cannot be had. */
export async function wholeValue(view, row, text) {
    const load = (where) => {
        const name = `${where} ${row.hash}`;
        if (latest.name !== name) {
            latest = { name, answer: loaded(where) };
            latest.answer.catch(() => {
                latest = { name: "", answer: null }; // it is tried again
            });
        }
        return latest.answer;
    };
    if (!text.extracted) return valueAt((await load(view.pathOf(row))).entry, text.path);
    const { content, unavailable } = await load(view.pathOf(row, "extracted"));
    if (Object.hasOwn(content, text.path)) return content[text.path];
    if (Object.hasOwn(unavailable, text.path)) throw new Error(unavailable[text.path]);
    // Of a call single arguments have left.
    const { entry } = await load(view.pathOf(row));
    for (const [key, value] of Object.entries(content)) {
        const [, before, last] = /^(.*?)(?:\.([^.[\]"]+)|\[(\d+)\])$/.exec(key) ?? [];
        const holder = before && valueAt(entry, before);
        if (holder && last !== undefined && Object.hasOwn(holder, last)) holder[last] = value;
    }
    return valueAt(entry, text.path);
}

/** Shows a value; `leave` gives back what it takes. */
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

    /** The button that loads all of it, if this is the beginning. */
    rest() {
        const { length } = this.text;
        // Characters, of which JavaScript counts some as two.
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
                    : h("p", { class: "note" }, `${words}: it is not shown, it is no picture that browsers draw.`),
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
