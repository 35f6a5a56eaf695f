// Summaries of tool calls in a single line: the command, file, pattern or question.

const LONGEST = 160; // characters of a summary
// The most informative members of arguments, best first.
const TELLING = [
    ...["command", "cmd", "file_path", "filePath", "path", "filename", "notebook_path", "file"],
    ...["pattern", "query", "url", "skill", "subject", "description", "prompt", "input", "name"],
];
const PATHS = ["file_path", "filePath", "path", "filename", "notebook_path", "file"];
const PATCHED = /^\*\*\* (?:Update|Add|Delete) File: (.+)$/m;
const EDITS = /^(?:edit|multiedit|multi_edit|apply_patch|applypatch|str_replace|notebookedit|write|create)/i;

/** Parse the arguments; from a truncated text, return the members that are complete. */
export function argumentsOf(text) {
    try {
        const value = JSON.parse(text);
        if (typeof value === "string") return { input: value };
        return typeof value === "object" && value !== null ? value : {};
    } catch {
        return partial(text ?? "");
    }
}

function partial(text) {
    const found = {};
    for (const key of TELLING) {
        const member = new RegExp(`"${key}"\\s*:\\s*"((?:[^"\\\\]|\\\\.)*)`).exec(text);
        if (!member) continue;
        try {
            found[key] = JSON.parse(`"${member[1]}"`);
        } catch {
            found[key] = member[1];
        }
    }
    const patch = PATCHED.exec(text);
    return patch && !Object.keys(found).length ? { path: patch[1] } : found;
}

/** Return a line about a call, made from its arguments as JSON; "" if no member is informative. */
export function summaryOf(text) {
    const values = argumentsOf(text);
    for (const key of TELLING) {
        const line = oneLine(values[key]);
        if (line) return line;
    }
    for (const value of Object.values(values)) {
        const line = oneLine(value);
        if (line) return line;
    }
    return "";
}

/** The file that a call names, if any; its name tells the language of the content. */
export function pathOf(text) {
    const values = argumentsOf(text);
    const key = PATHS.find((name) => typeof values[name] === "string");
    return key ? values[key] : null;
}

export const isEdit = (tool) => EDITS.test(tool ?? "");

function oneLine(value) {
    let text = value;
    // A shell with a script: use only the script.
    if (Array.isArray(value) && value.every((one) => typeof one === "string"))
        text = /^(?:\/\S*\/)?(?:ba|z|da)?sh$/.test(value[0]) ? value.at(-1) : value.join(" ");
    if (typeof text !== "string") return "";
    const patch = PATCHED.exec(text);
    const line = (patch ? patch[1] : text).trim();
    const [first] = line.split("\n", 1);
    const cut = first.length > LONGEST || first.length < line.length;
    return cut ? `${first.slice(0, LONGEST)} …` : first;
}
