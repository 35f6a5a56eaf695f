// Markdown as elements. markdown-it makes tokens of it, and each token becomes an element here.
//
// No markup is made on the way: HTML in a text stays text, a link leads to http, https or a mail
// address or is no link, and pictures are named and never fetched.

import markdownit from "./vendor/markdown-it/markdown-it.js";
import { codeBlock } from "./code.js";
import { h } from "./dom.js";
import { textNodes } from "./plain.js";

const parser = markdownit({ html: false, linkify: true, breaks: false });
// Names of files would be links: `.py`, `.rs` and `.md` end names of hosts, too.
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });

const LONGEST = 100000; // characters of a text that is read as Markdown
// Signs that open or close something. Time grows with the square of their number, and no person and no
// model writes so many.
const MOST_SIGNS = 8000;
const SIGNS = /[*_~`[\]]/g;
const MOST_TOKENS = 30000; // elements of one text; what follows is shown as it is spelled
const LINK = /^(?:https?:\/\/|mailto:)/i;

// What may become of a token, by its tag. Headings are no headings of the page.
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

/** Whether a text can be read as Markdown in a moment. */
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
            here.append(h("p", { class: "note" }, "The rest is shown when you choose to see it as it is spelled."));
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

/** The nodes of a token that holds no others. */
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

/** A picture is never fetched: its text and its address stand there. */
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
