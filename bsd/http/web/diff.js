// Changes of files: diffs in the output of programs, and diffs made from calls of editing tools.

import { h } from "./dom.js";
import { textNodes } from "./plain.js";

const MOST_LINES = 4000; // shown; a note gives the number of the others
const MOST_COMPARED = 400000; // pairs of lines compared to find the unchanged lines
const HUNK = /^@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@/;
const HEAD = /^(?:diff |index |--- |\+\+\+ |new file |deleted file |old mode |new mode |rename |similarity )/;
const KINDS = { "+": "added", "-": "removed", "\\": "note" };
// Tools that show their changes with the number of each line behind its sign.
const NUMBERED = /^[-+ ] *\d+ /;

/** Whether a text is a diff. */
export function isDiff(text) {
    const head = text.slice(0, 4000);
    return (
        /^(?:diff --git |\*\*\* Begin Patch\n)/.test(head) ||
        /^--- \S.*\n\+\+\+ \S/m.test(head) ||
        /^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@/m.test(head)
    );
}

/** Show a diff with coloured lines. Text around its hunks has no signs. */
export function diffBlock(text, name = "Changes") {
    const lines = text.replace(/\n$/, "").split("\n");
    // Patches written by models, and diffs of some tools, do not give the length of a hunk.
    let free = !lines.some((line) => HUNK.test(line));
    let [was, now, oldLeft, newLeft] = [0, 0, 0, 0];
    const rows = lines.map((line) => {
        const kind = KINDS[line[0]] ?? "same";
        if (oldLeft > 0 || newLeft > 0) {
            if (kind === "note") return ["note", null, null, line];
            const row = [kind, kind === "added" ? null : was, kind === "removed" ? null : now, line];
            if (kind !== "added") [was, oldLeft] = [was + 1, oldLeft - 1];
            if (kind !== "removed") [now, newLeft] = [now + 1, newLeft - 1];
            return row;
        }
        const hunk = HUNK.exec(line);
        if (hunk) {
            [was, now] = [Number(hunk[1]), Number(hunk[3])];
            [oldLeft, newLeft] = [Number(hunk[2] ?? 1), Number(hunk[4] ?? 1)];
            free = false;
        }
        if (hunk || line.startsWith("@@")) return ["note", null, null, line];
        if (line.startsWith("*** ")) return ["head", null, null, line];
        if (free) return [kind, null, null, line];
        return [HEAD.test(line) ? "head" : "same", null, null, line];
    });
    return block(
        rows,
        name,
        rows.some(([, one, other]) => one !== null || other !== null),
    );
}

/** Show the lines that differ between two texts, with unchanged lines around them. */
export function editBlock(was, now, name = "Changes") {
    const rows = compared(was.split("\n"), now.split("\n"));
    return block(rows, name, false);
}

/** A new file: all its lines are added. */
export function newFileBlock(text, name = "New file") {
    const lines = text.replace(/\n$/, "").split("\n");
    return block(
        lines.map((line, at) => ["added", null, at + 1, `+${line}`]),
        name,
        true,
    );
}

/** True if the lines of a text have a sign and a line number, as in the output of some tools. */
export function isNumberedDiff(text) {
    const lines = text.split("\n", 50).filter(Boolean);
    const fitting = lines.filter((line) => NUMBERED.test(line)).length;
    return fitting > 1 && fitting >= lines.length - 4 && lines.some((line) => /^[-+]/.test(line));
}

/** A line of a kind, with its sign, as it stands in a diff. */
export function lineParts(kind, line) {
    return [
        WORDS[kind] && h("span", { class: "offscreen" }, WORDS[kind]),
        h("span", { class: "diff-text" }, textNodes(line)),
    ];
}

/** The lines of two texts as rows `[kind, null, null, line]`; the line has the sign of its kind. */
export function compared(old, fresh) {
    let start = 0;
    while (start < old.length && start < fresh.length && old[start] === fresh[start]) start += 1;
    let end = 0;
    while (
        end < old.length - start &&
        end < fresh.length - start &&
        old[old.length - 1 - end] === fresh[fresh.length - 1 - end]
    )
        end += 1;
    const row = (kind, line) => [kind, null, null, `${{ added: "+", removed: "-", same: " " }[kind]}${line}`];
    return [
        ...old.slice(0, start).map((line) => row("same", line)),
        ...middle(old.slice(start, old.length - end), fresh.slice(start, fresh.length - end), row),
        ...old.slice(old.length - end).map((line) => row("same", line)),
    ];
}

/** Compare the middle parts: the longest common subsequence of lines counts as unchanged. */
function middle(old, fresh, row) {
    const width = fresh.length + 1;
    if (old.length * fresh.length > MOST_COMPARED)
        return [...old.map((line) => row("removed", line)), ...fresh.map((line) => row("added", line))];
    const longest = new Uint32Array((old.length + 1) * width);
    for (let i = old.length - 1; i >= 0; i -= 1)
        for (let j = fresh.length - 1; j >= 0; j -= 1)
            longest[i * width + j] =
                old[i] === fresh[j]
                    ? longest[(i + 1) * width + j + 1] + 1
                    : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    const rows = [];
    let [i, j] = [0, 0];
    while (i < old.length || j < fresh.length) {
        if (i < old.length && j < fresh.length && old[i] === fresh[j]) {
            rows.push(row("same", old[i]));
            i += 1;
            j += 1;
        } else if (
            j >= fresh.length ||
            (i < old.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])
        ) {
            rows.push(row("removed", old[i]));
            i += 1;
        } else {
            rows.push(row("added", fresh[j]));
            j += 1;
        }
    }
    return rows;
}

const WORDS = { added: "added", removed: "removed" };

function block(rows, name, numbered) {
    const shown = rows.slice(0, MOST_LINES);
    const left = rows.length - shown.length;
    return h(
        "div",
        { class: `diff${numbered ? " numbered" : ""}`, role: "group", "aria-label": name, tabindex: 0 },
        shown.map(([kind, was, now, line]) =>
            h(
                "div",
                { class: `diff-line ${kind}` },
                numbered && h("span", { class: "diff-number", "aria-hidden": "true" }, was ?? ""),
                numbered && h("span", { class: "diff-number", "aria-hidden": "true" }, now ?? ""),
                lineParts(kind, line),
            ),
        ),
        left > 0 && h("p", { class: "note" }, `${left.toLocaleString("en")} more lines are not shown here.`),
    );
}
