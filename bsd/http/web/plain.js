// Text as text nodes. Invisible characters and direction marks are shown by their code.

import { button, fill, h } from "./dom.js";

/** Characters inserted into the document at once; the rest on request. */
export const AT_ONCE = 100000;

// Direction marks (they can disguise code), and control characters except tab and line ends.
// eslint-disable-next-line no-control-regex
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/** Return a text as nodes; each invisible character becomes a box with its code. */
export function textNodes(text) {
    const nodes = [];
    let done = 0;
    for (const found of text.replaceAll("\r\n", "\n").matchAll(HIDDEN)) {
        const source = found.input;
        if (found.index > done) nodes.push(source.slice(done, found.index));
        const number = found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
        nodes.push(h("span", { class: "hidden-sign", title: `Character U+${number}` }, `U+${number}`));
        done = found.index + found[0].length;
        if (nodes.length > 2000) break; // binary data: show the rest unchanged
    }
    const rest = text.replaceAll("\r\n", "\n").slice(done);
    return rest ? [...nodes, rest] : nodes;
}

/** A block of text that keeps its lines; `name` is for screen readers. */
export function plainBlock(text, name = "Text") {
    return h("pre", { class: "plain", role: "group", tabindex: 0, "aria-label": name }, textNodes(text));
}

/** The index at which to cut a text to a maximum length, at a line end if one is near. */
export function endOfPart(text, start, most) {
    if (text.length - start <= most) return text.length;
    let end = start + most;
    const line = text.lastIndexOf("\n", end);
    if (line > start + most / 2) return line + 1;
    if (/[\ud800-\udbff]/.test(text[end - 1])) end -= 1; // half a character
    return end;
}

/** Shows a long text in parts; `draw(part)` makes the element of each part. */
export function inParts(text, draw, most = AT_ONCE) {
    const box = h("div", { class: "parts" });
    const more = h("p", { class: "more" });
    let shown = 0;
    const next = () => {
        const end = endOfPart(text, shown, most);
        const first = draw(text.slice(shown, end));
        more.before(first);
        shown = end;
        const left = text.length - shown;
        fill(
            more,
            left > 0 &&
                button(`Show more (${left.toLocaleString("en")} characters left)`, next, {
                    class: "small",
                    "data-focus": "more",
                }),
        );
        return first;
    };
    box.append(more);
    const first = next();
    return shown === text.length ? first : box;
}
