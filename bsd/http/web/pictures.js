// Pictures in an entry: recognised by their bytes, checked, and shown instead of their base64.

import { h } from "./dom.js";
import { bytes } from "./format.js";

const MOST_BYTES = 5 << 20; // of one picture
const MOST_PIXELS = 50e6; // a small file may decode to a picture that uses all memory
const MOST_SHOWN = 20; // per entry
const MOST_HEAD = 1 << 20; // characters of base64 in which the size of a JPEG is looked for
const SHORTEST = 40; // characters of base64: the smallest GIF has hardly more
const DATA_URL = /^data:[^;,]{0,100}(?:;[^;,]{0,100}){0,3};base64,/;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

// The type is decided by the first bytes only, not by the session; never SVG, which is a document.
const KINDS = [
    { name: "PNG", type: "image/png", begins: [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a], measure: png },
    { name: "JPEG", type: "image/jpeg", begins: [0xff, 0xd8, 0xff], measure: jpeg },
    { name: "GIF", type: "image/gif", begins: [0x47, 0x49, 0x46, 0x38], measure: gif },
    { name: "WebP", type: "image/webp", begins: [0x52, 0x49, 0x46, 0x46], measure: webp },
];

/** Decode a text as a picture in base64 or as a data URL; null if it is not a picture. */
export function pictureOf(text) {
    if (typeof text !== "string" || text.length < SHORTEST) return null;
    const head = DATA_URL.exec(text.slice(0, 500));
    const start = head ? head[0].length : 0;
    const first = decoded(text.slice(start, start + 32));
    const kind = first && KINDS.find((one) => one.begins.every((byte, at) => first[at] === byte));
    if (!kind || (kind.type === "image/webp" && ascii(first, 8, 4) !== "WEBP")) return null;
    const data = head ? text.slice(start) : text;
    if (!BASE64.test(data)) return null;
    const size = Math.floor((data.length * 3) / 4) - (data.match(/=+$/)?.[0].length ?? 0);
    const beginning = decoded(data.slice(0, Math.min(data.length, MOST_HEAD) & ~3));
    const measured = beginning && kind.measure(beginning);
    return { kind, data, size, width: measured?.[0] ?? 0, height: measured?.[1] ?? 0 };
}

/** A description of a picture. */
export function describePicture({ kind, width, height, size }) {
    return `${kind.name} picture${width && height ? `, ${width} × ${height}` : ""}, ${bytes(size)}`;
}

/** Replace the pictures in a value by words; returns the value and the pictures. */
export function takePictures(value) {
    const pictures = [];
    const without = (one) => {
        const picture = pictureOf(one);
        if (picture) {
            pictures.push(picture);
            return `(${describePicture(picture)})`;
        }
        if (Array.isArray(one)) return one.map(without);
        if (typeof one === "object" && one !== null)
            return Object.fromEntries(Object.entries(one).map(([key, inner]) => [key, without(inner)]));
        return one;
    };
    return { value: without(value), pictures };
}

/** Shows the pictures of an entry; `stop` releases their memory. */
export class Pictures {
    constructor() {
        this.urls = [];
    }

    stop() {
        for (const url of this.urls.splice(0)) URL.revokeObjectURL(url);
    }

    section(key, picture) {
        const words = describePicture(picture);
        return h(
            "section",
            null,
            h("div", { class: "full-head" }, h("code", null, key), h("span", { class: "note" }, words)),
            this.shown(picture, words),
        );
    }

    shown(picture, words) {
        const why = this.whyNot(picture);
        if (why) return h("p", { class: "note" }, `It is not shown: ${why}.`);
        const content = decoded(picture.data);
        if (!content) return h("p", { class: "note" }, "It is not shown: it is not valid base64.");
        const url = URL.createObjectURL(new Blob([content], { type: picture.kind.type }));
        this.urls.push(url);
        const image = h("img", { class: "picture", src: url, alt: words });
        image.addEventListener("error", () =>
            image.replaceWith(h("p", { class: "note" }, "It is not shown: its content is damaged.")),
        );
        return image;
    }

    whyNot({ size, width, height }) {
        if (size > MOST_BYTES) return `it is larger than ${bytes(MOST_BYTES)}`;
        if (!width || !height) return "its content is damaged";
        if (width * height > MOST_PIXELS) return "it has too many pixels";
        if (this.urls.length >= MOST_SHOWN) return `${MOST_SHOWN} pictures of this entry are shown already`;
        return null;
    }
}

function decoded(base64) {
    try {
        return Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
    } catch {
        return null;
    }
}

const ascii = (content, at, length) => String.fromCharCode(...content.slice(at, at + length));

const number = (content, at, length, little = false) => {
    const part = [...content.slice(at, at + length)];
    return (little ? part.reverse() : part).reduce((sum, byte) => sum * 256 + byte, 0);
};

function png(content) {
    return ascii(content, 12, 4) === "IHDR" ? [number(content, 16, 4), number(content, 20, 4)] : null;
}

function gif(content) {
    return [number(content, 6, 2, true), number(content, 8, 2, true)];
}

/** The size of a JPEG is in its first frame header. */
function jpeg(content) {
    let at = 2;
    while (at + 9 < content.length && content[at] === 0xff) {
        const marker = content[at + 1];
        const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
        if (isFrame) return [number(content, at + 7, 2), number(content, at + 5, 2)];
        at += marker === 0xff ? 1 : 2 + number(content, at + 2, 2);
    }
    return null;
}

function webp(content) {
    const form = ascii(content, 12, 4);
    if (form === "VP8X") return [number(content, 24, 3, true) + 1, number(content, 27, 3, true) + 1];
    if (form === "VP8 ") return [number(content, 26, 2, true) & 0x3fff, number(content, 28, 2, true) & 0x3fff];
    if (form !== "VP8L") return null;
    const bits = number(content, 21, 4, true);
    return [(bits & 0x3fff) + 1, ((bits >>> 14) & 0x3fff) + 1];
}
