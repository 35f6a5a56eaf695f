// Text as text nodes. Signs that turn the direction of a text or cannot be seen are shown by number.

import { button, fill, h } from "./dom.js";

/** Characters that are put into the document at once; more on request. */
export const AT_ONCE = 100000;

// Marks of direction (they can make code look like other code), and controls but tab and line ends.
// eslint-disable-next-line no-control-regex
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/** A text as nodes; each sign that would not be seen becomes a box with its number. */
export function textNodes(text) {
    const nodes = [];
    let done = 0;
    for (const found of text.replaceAll("\r\n", "\n").matchAll(HIDDEN)) {
        const source = found.input;
        if (found.index > done) nodes.push(source.slice(done, found.index));
        const number = found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
        nodes.push(h("span", { class: "hidden-sign", title: `Character U+${number}` }, `U+${number}`));
        done = found.index + found[0].length;
        if (nodes.length > 2000) break; // no text; the rest is shown as it is
    }
    const rest = text.replaceAll("\r\n", "\n").slice(done);
    return rest ? [...nodes, rest] : nodes;
}

/** A block of text that keeps its lines; `name` is for screen readers. */
export function plainBlock(text, name = "Text") {
    return h("pre", { class: "plain", role: "group", tabindex: 0, "aria-label": name }, textNodes(text));
}

/** Where a text of at most so many characters ends, at a line end if one is near. */
export function endOfPart(text, start, most) {
    if (text.length - start <= most) return text.length;
    let end = start + most;
    const line = text.lastIndexOf("\n", end);
    if (line > start + most / 2) return line + 1;
    if (/[\ud800-\udbff]/.test(text[end - 1])) end -= 1; // half a character
    return end;
}

/** Shows a long text part by part: `draw(part)` makes the element of each. */
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
