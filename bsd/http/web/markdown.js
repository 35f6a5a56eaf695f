// Markdown as elements: markdown-it parses a text into tokens, and each token becomes an element.
//
// No markup is generated: HTML in a text stays text, only http, https and mailto links become links,
// and pictures are named but never loaded.

import markdownit from "./vendor/markdown-it/markdown-it.js";
import { codeBlock } from "./code.js";
import { h } from "./dom.js";
import { textNodes } from "./plain.js";

const parser = markdownit({ html: false, linkify: true, breaks: false });
// File names would become links: `.py`, `.rs` and `.md` are also top-level domains.
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });

const LONGEST = 100000; // characters; a longer text is not parsed as Markdown
// Characters that open or close a construct. Parsing time grows with the square of their number, and
// neither people nor models write this many.
const MOST_SIGNS = 8000;
const SIGNS = /[*_~`[\]]/g;
const MOST_TOKENS = 30000; // per text; the rest is shown as plain text
const LINK = /^(?:https?:\/\/|mailto:)/i;

// The elements for tokens, by tag. Headings do not become headings of the page.
const ELEMENTS = {
    p: () => h("p"),
    h1: () => h("p", { class: "md-heading md-h1" }),
    h2: () => h("p", { class: "md-heading md-h2" }),
    h3: () => h("p", { class: "md-heading md-h3" }),
    h4: () => h("p", { class: "md-heading md-h3" }),
    h5: () => h("p", { class: "md-heading md-h3" }),
    h6: () => h("p", { class: "md-heading md-h3" }),
    blockquote: () => h("blockquote"),
    ul: () => h("ul"),
    ol: (token) => h("ol", { start: /^\d{1,9}$/.test(token.attrGet("start") ?? "") && token.attrGet("start") }),
    li: () => h("li"),
    table: () => h("table"),
    thead: () => h("thead"),
    tbody: () => h("tbody"),
    tr: () => h("tr"),
    th: (token) => h("th", { scope: "col", class: alignment(token) }),
    td: (token) => h("td", { class: alignment(token) }),
    em: () => h("em"),
    strong: () => h("strong"),
    s: () => h("s"),
    a: link,
};

/** True if a text can be parsed as Markdown quickly. */
export function isReadable(text) {
    return text.length <= LONGEST && (text.match(SIGNS)?.length ?? 0) <= MOST_SIGNS;
}

/** A text as elements, in a box. */
export function markdownBlock(text) {
    const box = h("div", { class: "md", dir: "auto" });
    append(box, parser.parse(text, {}));
    return box;
}

function append(top, tokens, budget = { left: MOST_TOKENS }) {
    const open = [top];
    for (const token of tokens) {
        const here = open.at(-1);
        if (budget.left-- <= 0) {
            here.append(h("p", { class: "note" }, "The rest is shown in the view “As text”."));
            return;
        }
        if (token.nesting === 1) {
            const element = token.hidden ? null : (ELEMENTS[token.tag]?.(token) ?? h("span"));
            if (element?.tagName === "TABLE") here.append(h("div", { class: "md-table", role: "group", "aria-label": "Table", tabindex: 0 }, element));
            else if (element) here.append(element);
            open.push(element ?? here);
        } else if (token.nesting === -1) {
            if (open.length > 1) open.pop();
        } else if (token.type === "inline") append(here, token.children ?? [], budget);
        else here.append(...leaf(token));
    }
}

/** The nodes of a token without children. */
function leaf(token) {
    switch (token.type) {
        case "fence":
            return [codeBlock(withoutEnd(token.content), token.info.trim().split(/\s+/)[0])];
        case "code_block":
            return [codeBlock(withoutEnd(token.content), null)];
        case "code_inline":
            return [h("code", null, textNodes(token.content))];
        case "hr":
            return [h("hr")];
        case "hardbreak":
            return [h("br")];
        case "softbreak":
            return ["\n"];
        case "image":
            return [picture(token)];
        default:
            return textNodes(token.content);
    }
}

function withoutEnd(code) {
    return code.replace(/\n$/, "");
}

function link(token) {
    const address = token.attrGet("href") ?? "";
    if (!LINK.test(address)) return h("span", { class: "md-place", title: address });
    return h("a", { href: address, title: address, rel: "noopener noreferrer", target: "_blank" });
}

/** A picture is never loaded; its text and its address are shown instead. */
function picture(token) {
    const address = token.attrGet("src") ?? "";
    return h(
        "span",
        { class: "md-picture" },
        "Picture: ",
        textNodes(token.content || "without a name"),
        " (",
        h("code", null, textNodes(address.slice(0, 300))),
        ")",
    );
}

function alignment(token) {
    const found = /text-align:\s?(left|right|center)/.exec(token.attrGet("style") ?? "");
    return found && `md-${found[1]}`;
}
