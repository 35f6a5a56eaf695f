// Compares two texts line by line: side by side on wide screens, in a single column on narrow ones.
// Long unchanged stretches are folded.

import { button, fill, h } from "./dom.js";
import { number } from "./format.js";
import { compared, lineParts } from "./diff.js";

const AROUND = 3; // unchanged lines that are shown before and after a change
const AT_ONCE = 400; // rows in the document; more on request
const LONGEST = 20000; // characters of a line that are shown
const NARROW = matchMedia("(max-width: 40rem)");

/** Show the differences between the texts `was` and `now` (null: no text), with their titles. */
export function textComparison(was, now, titles) {
    const lines = (text) => text?.split("\n") ?? [];
    const pieces = folded(compared(lines(was), lines(now)));
    const element = h("div", { class: "comparison" });
    const open = new Set(); // folded stretches that the user has opened
    let most = AT_ONCE;
    const draw = () => {
        if (!element.isConnected && element.childElementCount) {
            NARROW.removeEventListener("change", draw); // its dialog is closed
            return;
        }
        const rows = [];
        for (const piece of pieces) {
            if (piece.isFolded && !open.has(piece)) rows.push(foldRow(piece));
            else rows.push(...(NARROW.matches ? unified(piece.rows) : pairs(piece.rows)));
        }
        const left = rows.length - most;
        fill(
            element,
            h(
                "div",
                {
                    class: NARROW.matches ? "diff unified" : "diff beside",
                    role: "group",
                    "aria-label": `${titles[0]}, ${titles[1].toLowerCase()}`,
                    tabindex: 0,
                },
                rows.slice(0, most),
            ),
            left > 0 && button(`Show more (${number(left)} lines left)`, more, { class: "small", "data-focus": "more" }),
        );
    };
    const more = () => {
        most += AT_ONCE;
        draw();
    };
    const foldRow = (piece) =>
        button(`${number(piece.rows.length)} unchanged lines`, () => unfold(piece), {
            class: "diff-fold",
            "data-focus": "fold",
        });
    const unfold = (piece) => {
        open.add(piece);
        most += piece.rows.length;
        draw();
    };
    NARROW.addEventListener("change", draw);
    draw();
    return element;
}

/** Split rows into changed stretches, with some lines around them, and folded unchanged stretches. */
function folded(rows) {
    const near = new Uint8Array(rows.length);
    rows.forEach(([kind], at) => {
        if (kind !== "same") near.fill(1, Math.max(0, at - AROUND), at + AROUND + 1);
    });
    const pieces = [];
    rows.forEach((row, at) => {
        const isFolded = !near[at];
        if (pieces.at(-1)?.isFolded === isFolded) pieces.at(-1).rows.push(row);
        else pieces.push({ isFolded, rows: [row] });
    });
    // The button of a fold uses a line, so folding a single line saves no space.
    for (const piece of pieces) if (piece.rows.length < 2) piece.isFolded = false;
    return pieces;
}

function unified(rows) {
    return rows.map((row) => line(row));
}

/** Rows of two lines: a removed line beside the line that replaces it. */
function pairs(rows) {
    const found = [];
    let [removed, added] = [[], []];
    const flush = () => {
        for (let at = 0; at < Math.max(removed.length, added.length); at += 1)
            found.push(pair(removed[at], added[at]));
        [removed, added] = [[], []];
    };
    for (const row of rows) {
        if (row[0] === "removed") removed.push(row);
        else if (row[0] === "added") added.push(row);
        else {
            flush();
            found.push(pair(row, row));
        }
    }
    flush();
    return found;
}

function pair(was, now) {
    const nothing = () => h("div", { class: "diff-line none" });
    const right = now ? line(now) : nothing();
    if (was === now) right.setAttribute("aria-hidden", "true"); // a screen reader has the line once
    return h("div", { class: "diff-pair" }, was ? line(was) : nothing(), right);
}

function line([kind, , , text]) {
    const long = text.length > LONGEST;
    const shown = long ? `${text.slice(0, LONGEST)}… (${number(text.length - LONGEST)} characters more)` : text;
    return h("div", { class: `diff-line ${kind}` }, lineParts(kind, shown));
}
