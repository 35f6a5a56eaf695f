// Formatting of numbers, times and JSON.

const UNITS = ["B", "KB", "MB", "GB", "TB"];

export function bytes(size) {
    if (typeof size !== "number") return "–";
    let value = Math.abs(size);
    let unit = 0;
    while (value >= 999.5 && unit < UNITS.length - 1) {
        value /= 1024;
        unit += 1;
    }
    const digits = unit && value < 99.5 ? 1 : 0;
    return `${size < 0 ? "−" : ""}${value.toFixed(digits)} ${UNITS[unit]}`;
}

export function count(value, one, many = `${one}s`) {
    return `${number(value)} ${value === 1 ? one : many}`;
}

export function number(value) {
    return typeof value === "number" ? value.toLocaleString("en") : "–";
}

/** An amount of money, with enough digits for the cost of one request. */
export function dollars(amount) {
    if (typeof amount !== "number") return "–";
    if (!amount) return "$0";
    const digits = Math.abs(amount) < 0.1 ? 4 : 2;
    return `$${amount.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })}`;
}

/** A number of tokens as “85k”; they are estimates, so further digits would be meaningless. */
export function thousands(tokens) {
    if (tokens < 1000) return number(tokens);
    return tokens < 999500 ? `${Math.round(tokens / 1000)}k` : `${(tokens / 1e6).toFixed(1)}M`;
}

const STEPS = [
    [60, "s", 1],
    [3600, "min", 60],
    [48 * 3600, "h", 3600],
    [60 * 86400, "d", 86400],
    [730 * 86400, "months", 30 * 86400],
    [Infinity, "years", 365 * 86400],
];

export function span(seconds) {
    const [, unit, size] = STEPS.find(([most]) => Math.abs(seconds) < most);
    return `${Math.floor(Math.abs(seconds) / size)} ${unit}`;
}

/** “5 min ago”, “in 2 h”. */
export function ago(iso, now = Date.now()) {
    const moment = Date.parse(iso ?? "");
    if (Number.isNaN(moment)) return "never";
    const seconds = (now - moment) / 1000;
    if (Math.abs(seconds) < 5) return "just now";
    return seconds > 0 ? `${span(seconds)} ago` : `in ${span(seconds)}`;
}

/** How long extracted content can be restored, from the status: in the store, then in the archive. */
export function howLongKept({ keep, archive = {} } = {}) {
    if (!keep) return "as long as the settings say";
    if (keep === "never") return "for ever";
    if (!archive.on) return `${keep}, then deleted`;
    const limit = archive.most_bytes ? `, up to ${bytes(archive.most_bytes)}` : "";
    const lasts = archive.keep === "never" ? "for ever" : `for ${archive.keep}`;
    return `${keep} in the store, then ${lasts} in the archive${limit}`;
}

export function clock(iso) {
    const moment = new Date(iso ?? "");
    return Number.isNaN(moment.getTime()) ? "–" : moment.toLocaleString();
}

/** Indent JSON without changing the spelling of numbers and escapes. */
export function pretty(text) {
    const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
    const out = [];
    let depth = 0;
    const line = () => `\n${"  ".repeat(depth)}`;
    tokens.forEach((token, at) => {
        const next = tokens[at + 1];
        if (token === "{" || token === "[") {
            const empty = next === "}" || next === "]";
            depth += empty ? 0 : 1;
            out.push(token, empty ? "" : line());
        } else if (token === "}" || token === "]") {
            const empty = tokens[at - 1] === "{" || tokens[at - 1] === "[";
            depth -= empty ? 0 : 1;
            out.push(empty ? "" : line(), token);
        } else if (token === ",") out.push(token, line());
        else out.push(token, token === ":" ? " " : "");
    });
    return out.join("");
}
