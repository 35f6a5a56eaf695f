// Renders the texts of a session: Markdown, code, changes of files, output of programs.
//
// Every text is hostile. These modules never generate markup from a text, so a sanitizer (DOMPurify)
// is not needed: elements are made one by one with `h`, texts are text nodes, and the page's policy
// (`trusted-types 'none'`) makes the browser refuse markup.

import { ansiBlock, hasEscapes } from "./ansi.js";
import { codeBlock, languageOf } from "./code.js";
import { diffBlock, editBlock, isDiff, isNumberedDiff, newFileBlock } from "./diff.js";
import { h } from "./dom.js";
import { pretty } from "./format.js";
import { isReadable, markdownBlock } from "./markdown.js";
import { inParts, plainBlock, textNodes } from "./plain.js";

const MARKDOWN = new Set(["user", "assistant", "thinking"]);
const SHELLS = new Set(["bash", "exec", "shell", "terminal", "run_command", "execute_command", "local_shell"]);
// Tools whose results are the contents of files; other tools that name a file only report on it.
const READERS = /^(?:read|view|cat|open|get|show)/;
const PATHS = ["file_path", "path", "filePath", "notebook_path", "filename", "file"];
const OLD = ["old_string", "oldText", "old_str", "oldString", "old_text"];
const NEW = ["new_string", "newText", "new_str", "newString", "new_text"];
const WRITTEN = ["content", "file_text", "text"];
const LONGEST_JSON = 200000; // characters
const DEEPEST_JSON = 40; // levels; deeper JSON would be mostly white space

/**
 * Return the element that shows a text. `type`: as in the list of entries (`user`, `tool_call`, …).
 * Hints: `tool`, the tool of the call or result; `path`, the file that contains the text; `language`.
 */
export function renderText(type, text, hints = {}) {
    const draw = (part) => (part === text ? rendered(type, text, hints) : renderedPart(type, part, hints));
    const box = h("div", { class: `rendered rendered-${/^\w+$/.test(type) ? type : "other"}` });
    box.append(inParts(text, draw));
    return box;
}

/** Show the text without formatting. */
export function renderRaw(text) {
    return h("div", { class: "rendered rendered-raw" }, inParts(text, (part) => plainBlock(part)));
}

function rendered(type, text, hints) {
    if (MARKDOWN.has(type)) return isReadable(text) ? markdownBlock(text) : plainBlock(text);
    if (type === "tool_call") return call(text, hints);
    return output(text, hints);
}

/** Show a part of a text that is too long to show at once; a part of a call is shown as plain text. */
function renderedPart(type, part, hints) {
    return type === "tool_call" ? plainBlock(part) : rendered(type, part, hints);
}

// --- results ---

function output(text, hints) {
    const wrapped = unwrapped(text);
    if (wrapped)
        return h(
            "div",
            { class: "call" },
            output(wrapped.output, hints),
            wrapped.note && h("p", { class: "note" }, textNodes(wrapped.note)),
        );
    if (hasEscapes(text)) return ansiBlock(text);
    if (isDiff(text) || isNumberedDiff(text)) return diffBlock(text);
    const numbered = withLineNumbers(text);
    const isFile = !hints.tool || READERS.test(shortName(hints.tool));
    const language = hints.language ?? (isFile ? languageOf(hints.path) : null);
    if (numbered && hints.path) return numberedCode(numbered, language);
    if (language && language !== "plaintext") return codeBlock(text, language, nameOf(hints.path));
    if (/^\s*[[{]/.test(text) && parsed(text) !== undefined && depthOf(text) <= DEEPEST_JSON)
        return codeBlock(pretty(text), "json");
    return SHELLS.has(shortName(hints.tool)) ? ansiBlock(text) : plainBlock(text, "Result");
}

/** The output of a command in (possibly truncated) JSON: `{"output":"…","metadata":{…}}`. */
function unwrapped(text) {
    const found = /^\{"output":"((?:[^"\\]|\\.)*)/.exec(text);
    if (!found) return null;
    const rest = text.slice(found[0].length);
    const note = /^","metadata":(\{[^{}]{0,300}\})\}$/.exec(rest);
    if (rest && !note) return null;
    try {
        // Ignore a truncated escape sequence at the end of a truncated text.
        const output = JSON.parse(`"${found[1].replace(/\\u[0-9a-fA-F]{0,3}$/, "")}"`);
        const told = note ? Object.entries(JSON.parse(note[1])) : [];
        return { output, note: told.map(([name, value]) => `${name.replaceAll("_", " ")}: ${value}`).join(", ") };
    } catch {
        return null;
    }
}

/** The lines of a file in the form of some tools: `  12→text` or `12<tab>text`; null for other texts. */
function withLineNumbers(text) {
    const lines = text.split("\n");
    const found = lines.map((line) => /^ *(\d{1,7})(?:→|\t)(.*)$/.exec(line));
    const end = found.findIndex((one) => !one);
    const count = end < 0 ? found.length : end;
    if (count < 2) return null;
    return {
        first: Number(found[0][1]),
        code: found.slice(0, count).map((one) => one[2]),
        rest: lines.slice(count).join("\n"),
    };
}

function numberedCode({ first, code, rest }, language) {
    const numbers = code.map((_, at) => first + at).join("\n");
    const block = codeBlock(code.join("\n"), language);
    block.classList.add("with-numbers");
    block
        .querySelector("pre")
        .prepend(h("span", { class: "code-numbers", "aria-hidden": "true" }, numbers));
    return rest.trim() ? h("div", null, block, plainBlock(rest.trim(), "Note of the tool")) : block;
}

// --- calls ---

function call(text, hints) {
    const given = parsed(text);
    if (typeof given !== "object" || given === null || Array.isArray(given))
        return text.includes("*** Begin Patch") ? diffBlock(text) : plainBlock(text, "Arguments");
    const own = (names) => names.find((name) => Object.hasOwn(given, name) && typeof given[name] === "string");
    const path = given[own(PATHS)];
    const shown = new Set();
    const parts = [];
    const command = commandOf(given, hints.tool);
    if (command) {
        parts.push(command.text.includes("*** Begin Patch") ? diffBlock(command.text) : codeBlock(command.text, "bash", "Command"));
        shown.add(command.name);
    }
    for (const [was, now] of edits(given)) parts.push(editBlock(was, now, `Changes of ${path ?? "a file"}`));
    if (parts.length && !command) [...OLD, ...NEW, "edits"].forEach((name) => shown.add(name));
    const written = own(WRITTEN);
    if (written && path && !parts.length) {
        const language = languageOf(path);
        parts.push(language ? codeBlock(given[written], language, nameOf(path)) : newFileBlock(given[written]));
        shown.add(written);
    }
    for (const name of ["input", "patch"])
        if (typeof given[name] === "string" && given[name].includes("*** Begin Patch")) {
            parts.push(diffBlock(given[name]));
            shown.add(name);
        }
    return h("div", { class: "call" }, others(given, shown), parts);
}

/** The remaining arguments: short values in a list, long values below it. */
function others(given, shown) {
    const left = Object.entries(given).filter(([name]) => !shown.has(name));
    if (!left.length) return null;
    const isShort = ([, value]) => typeof value !== "object" && String(value).length <= 200 && !String(value).includes("\n");
    const short = left.filter(isShort);
    const long = left.filter((one) => !isShort(one));
    return [
        short.length > 0 &&
            h(
                "dl",
                { class: "arguments" },
                short.map(([name, value]) => [
                    h("dt", null, textNodes(name)),
                    h("dd", null, h("code", null, textNodes(String(value)))),
                ]),
            ),
        long.map(([name, value]) =>
            h(
                "div",
                { class: "argument" },
                h("p", { class: "argument-name" }, textNodes(name)),
                typeof value === "string"
                    ? plainBlock(value, name)
                    : jsonBlock(value),
            ),
        ),
    ];
}

function commandOf(given, tool) {
    if (!SHELLS.has(shortName(tool))) return null;
    for (const name of ["command", "cmd"]) {
        const value = Object.hasOwn(given, name) ? given[name] : undefined;
        if (typeof value === "string") return { name, text: value };
        if (Array.isArray(value) && value.every((one) => typeof one === "string"))
            return { name, text: ofWords(value) };
    }
    return null;
}

/** A command given as words: the script passed to a shell, else the words, quoted where needed. */
function ofWords(words) {
    const isShell = words.length === 3 && /(?:^|\/)(?:ba|z|da)?sh$/.test(words[0]) && /^-\w*c$/.test(words[1]);
    if (isShell) return words[2];
    return words.map((one) => (/^[\w./:=@%+,-]+$/.test(one) ? one : `'${one.replaceAll("'", "'\\''")}'`)).join(" ");
}

/** The pairs of texts, before and after, of a call that edits a file. */
function edits(given) {
    const several = Array.isArray(given.edits) ? given.edits.slice(0, 50) : [];
    return [given, ...several]
        .map((one) => [OLD, NEW].map((names) => names.map((name) => one?.[name]).find((value) => typeof value === "string")))
        .filter(([was, now]) => was !== undefined && now !== undefined);
}

/** The last part of a tool's name, in lower case, without server and version. */
function shortName(tool) {
    return String(tool ?? "")
        .split(/__|\./)
        .pop()
        .toLowerCase();
}

function nameOf(path) {
    return path ? String(path).split(/[\\/]/).slice(-2).join("/") : null;
}

function jsonBlock(value) {
    const text = JSON.stringify(value);
    return depthOf(text) <= DEEPEST_JSON ? codeBlock(pretty(text), "json") : plainBlock(text, "JSON");
}

/** The depth of brackets in a text, including brackets in strings. */
function depthOf(text) {
    let [depth, most] = [0, 0];
    for (const [sign] of text.matchAll(/[[\]{}]/g)) {
        depth += sign === "[" || sign === "{" ? 1 : -1;
        most = Math.max(most, depth);
    }
    return most;
}

function parsed(text) {
    if (text.length > LONGEST_JSON) return undefined;
    try {
        return JSON.parse(text);
    } catch {
        return undefined;
    }
}
