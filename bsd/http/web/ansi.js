// Output of programs, with the colours of its escape sequences.
//
// Only sequences for colours and styles (SGR) have an effect; all others are removed. If a program
// overwrites a line after a carriage return, only the final text of the line is shown.

import { h } from "./dom.js";
import { textNodes } from "./plain.js";

// eslint-disable-next-line no-control-regex
const SEQUENCE = /\u001b(?:\[([0-9;:?<=>!]*)[ -/]*([@-~])|[\]PX^_][^\u0007\u001b]{0,4096}(?:\u0007|\u001b\\)?|[ -/]*[0-~])|\u009b[0-9;:]*m/g;
const MOST_PARTS = 20000; // spans; what follows has no colours

/** True if a text contains escape sequences. */
export function hasEscapes(text) {
    return text.includes("\u001b[");
}

/** Return a text with its colours, in a block that looks like a terminal. */
export function ansiBlock(text, name = "Program output") {
    return h("pre", { class: "terminal", role: "group", tabindex: 0, "aria-label": name }, ansiNodes(text));
}

export function ansiNodes(text) {
    const shown = overwritten(text);
    const nodes = [];
    let style = {};
    let done = 0;
    for (const found of shown.matchAll(SEQUENCE)) {
        append(nodes, shown.slice(done, found.index), style);
        done = found.index + found[0].length;
        if (found[2] === "m") style = styled(style, found[1]);
        if (nodes.length > MOST_PARTS) break;
    }
    append(nodes, shown.slice(done).replace(SEQUENCE, ""), style);
    return nodes;
}

/** The final text of each line: progress bars overwrite their line many times. */
function overwritten(text) {
    if (!text.includes("\r")) return text;
    return text
        .replaceAll("\r\n", "\n")
        .split("\n")
        .map((line) => (line.includes("\r") ? lastWritten(line) : line))
        .join("\n");
}

function lastWritten(line) {
    const parts = line.split("\r").filter(Boolean);
    return parts.length ? parts[parts.length - 1] : "";
}

function append(nodes, text, style) {
    if (!text) return;
    const names = ["bold", "dim", "italic", "underline", "strike"].filter((one) => style[one]);
    let { front, back } = style;
    if (style.inverse) [front, back] = [back ?? "ground", front ?? "text"];
    if (typeof front === "string" || typeof front === "number") names.push(`front-${front}`);
    if (typeof back === "string" || typeof back === "number") names.push(`back-${back}`);
    const colours = [front, back].map((one) => (Array.isArray(one) ? `rgb(${one.join(" ")})` : ""));
    if (!names.length && !colours.some(Boolean)) {
        nodes.push(...textNodes(text));
        return;
    }
    const span = h("span", { class: names.map((one) => `sgr-${one}`).join(" ") || null }, textNodes(text));
    if (colours[0]) span.style.color = colours[0];
    if (colours[1]) span.style.backgroundColor = colours[1];
    nodes.push(span);
}

/** The style after a sequence; numbers 0 to 15 are the terminal's own colours. */
function styled(before, codes) {
    const style = { ...before };
    const numbers = codes.split(/[;:]/).map((one) => Number(one || 0));
    for (let at = 0; at < numbers.length; at += 1) {
        const code = numbers[at];
        if (code === 0) Object.keys(style).forEach((name) => delete style[name]);
        else if (code === 1) style.bold = true;
        else if (code === 2) style.dim = true;
        else if (code === 3) style.italic = true;
        else if (code === 4) style.underline = true;
        else if (code === 7) style.inverse = true;
        else if (code === 9) style.strike = true;
        else if (code === 22) style.bold = style.dim = false;
        else if (code === 23) style.italic = false;
        else if (code === 24) style.underline = false;
        else if (code === 27) style.inverse = false;
        else if (code === 29) style.strike = false;
        else if (code >= 30 && code <= 37) style.front = code - 30;
        else if (code >= 40 && code <= 47) style.back = code - 40;
        else if (code >= 90 && code <= 97) style.front = code - 82;
        else if (code >= 100 && code <= 107) style.back = code - 92;
        else if (code === 39) style.front = undefined;
        else if (code === 49) style.back = undefined;
        else if (code === 38 || code === 48) {
            const [colour, taken] = extended(numbers.slice(at + 1));
            style[code === 38 ? "front" : "back"] = colour;
            at += taken;
        }
    }
    return style;
}

/** Parse a colour of the 256-colour palette or an RGB colour; also return the count of numbers used. */
function extended([kind, ...rest]) {
    const isByte = (one) => Number.isInteger(one) && one >= 0 && one <= 255;
    if (kind === 5) return [isByte(rest[0]) ? ofPalette(rest[0]) : undefined, 2];
    if (kind !== 2) return [undefined, 1];
    const colour = rest.slice(0, 3);
    return [colour.length === 3 && colour.every(isByte) ? colour : undefined, 4];
}

function ofPalette(number) {
    if (number < 16) return number;
    if (number >= 232) return Array(3).fill(8 + 10 * (number - 232));
    const level = (part) => (part ? 55 + 40 * part : 0);
    const cube = number - 16;
    return [level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6)];
}
