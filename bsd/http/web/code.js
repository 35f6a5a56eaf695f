// Code with its keywords, texts and comments in colours, by highlight.js.
//
// highlight.js returns markup, which is never parsed as HTML: `nodesOf` recognises its three forms and
// makes elements. If the markup contains anything else, or its text differs from the code, the code is
// shown without colours.

import hljs from "./vendor/highlight.js/highlight.js";
import { copyButton, h } from "./dom.js";
import { textNodes } from "./plain.js";

const MOST = 30000; // characters; longer code has no colours
const LONGEST_LINE = 5000; // characters; a longer line is generated code

// Languages by file extension, where the extension is neither a name nor an alias of the language.
const ENDINGS = new Map(
    Object.entries({
        cjs: "javascript",
        mts: "typescript",
        cts: "typescript",
        htm: "xml",
        vue: "xml",
        h: "c",
        hh: "cpp",
        hpp: "cpp",
        inc: "php",
        toml: "ini",
        cfg: "ini",
        conf: "ini",
        service: "ini",
        gradle: "kotlin",
        jsonl: "json",
        lock: "plaintext",
        log: "plaintext",
        csv: "plaintext",
        txt: "plaintext",
        patch: "diff",
        zshrc: "bash",
        bashrc: "bash",
        envrc: "bash",
    }),
);
const NAMES = new Map(
    Object.entries({ makefile: "makefile", gnumakefile: "makefile", gemfile: "ruby", rakefile: "ruby" }),
);

/** The language of a file, by its name; null if unknown. */
export function languageOf(path) {
    const name = String(path ?? "")
        .split(/[\\/]/)
        .pop()
        .toLowerCase();
    const ending = name.includes(".") ? name.split(".").pop() : "";
    return known(NAMES.get(name) ?? ENDINGS.get(ending) ?? ending);
}

/** The name that highlight.js uses for a language; null if highlight.js does not support it. */
function known(name) {
    return /^[\w+#.-]{1,40}$/.test(name ?? "") && hljs.getLanguage(name) ? name : null;
}

/** Return code as nodes, coloured if the language is known and the code is not too long. */
export function codeNodes(code, language) {
    const name = known(language);
    if (!name || code.length > MOST || code.split("\n").some((line) => line.length > LONGEST_LINE))
        return textNodes(code);
    try {
        return nodesOf(hljs.highlight(code, { language: name, ignoreIllegals: true }).value, code);
    } catch {
        return textNodes(code);
    }
}

const FORMS = /<span class="([\w -]+)">|(<\/span>)|&(amp|lt|gt|quot|#x27);|([^<&]+)/y;
const CHARACTERS = { amp: "&", lt: "<", gt: ">", quot: '"', "#x27": "'" };

/** Convert markup of highlight.js to nodes; throws if its text is not `code`. */
function nodesOf(markup, code) {
    const top = document.createDocumentFragment();
    let open = top;
    let pending = "";
    let text = "";
    const flush = () => {
        if (pending) open.append(...textNodes(pending));
        text += pending;
        pending = "";
    };
    FORMS.lastIndex = 0;
    while (FORMS.lastIndex < markup.length) {
        const found = FORMS.exec(markup);
        if (!found) throw new Error("not the markup of highlight.js");
        const [, names, end, character, plain] = found;
        if (plain !== undefined) pending += plain;
        else if (character !== undefined) pending += CHARACTERS[character];
        else {
            flush();
            if (end) open = open.parentNode ?? fail();
            else {
                const span = h("span", { class: names });
                open.append(span);
                open = span;
            }
        }
    }
    flush();
    if (open !== top || text !== code) throw new Error("not the markup of this code");
    return [top];
}

function fail() {
    throw new Error("an end without a beginning");
}

/** A block of code, with its language and a button that copies it. */
export function codeBlock(code, language, label = null) {
    const name = label ?? language ?? "";
    return h(
        "div",
        { class: "code-block" },
        h(
            "div",
            { class: "code-head" },
            h("span", { class: "code-name" }, textNodes(name)),
            copyButton(code, "Copy", "code"),
        ),
        h(
            "pre",
            { role: "group", tabindex: 0, "aria-label": name ? `Code, ${name}` : "Code" },
            h("code", null, codeNodes(code, language)),
        ),
    );
}
