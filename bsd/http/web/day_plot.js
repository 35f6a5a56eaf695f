// A plot with a stacked bar per day; a table below shows the same numbers.

import { fill, h } from "./dom.js";
import { table } from "./widgets.js";
import uPlot from "./vendor/uplot/uplot.js";

const DAY = 86400;
const HEIGHT = 220;
const COLOURS = 8; // --plot-1 to --plot-8 in overview.css; further parts share the last colour
const RANGES = [
    ["month", "30 days", 30],
    ["year", "12 months", 366],
    ["all", "All", Infinity],
];
const DAYS = [1, 2, 7, 14, 30, 61, 91, 183, 365].map((days) => days * DAY); // steps of the axis
const MOST_ROWS = 60; // of the table
// Steps of an axis of bytes: 1, 2, 4 … 512 of each unit.
const BYTE_STEPS = [0, 1, 2, 3, 4].flatMap((unit) =>
    [...Array(10).keys()].map((power) => 1024 ** unit * 2 ** power),
);

let plots = 0;

/** The start of the local day of a time (ISO 8601), in seconds since 1970. */
export function dayOf(iso) {
    const moment = new Date(iso);
    return new Date(moment.getFullYear(), moment.getMonth(), moment.getDate()).getTime() / 1000;
}

const dayName = (day) =>
    new Date(day * 1000).toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric" });

/**
 * Call `draw` whenever a plot must be drawn again: its figure has another width, or the colours have
 * changed. Returns a function that ends this.
 */
export function redrawn(figure, draw) {
    let width = figure.clientWidth;
    const observer = new ResizeObserver(() => {
        if (figure.clientWidth === width) return;
        width = figure.clientWidth;
        draw();
    });
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    observer.observe(figure);
    scheme.addEventListener("change", draw);
    return () => {
        observer.disconnect();
        scheme.removeEventListener("change", draw);
    };
}

export class DayPlot {
    /** `empty` is the text shown without data; `format(value)` formats a value. */
    constructor({ title, empty, format, isBytes = false }) {
        Object.assign(this, { title, empty, format, isBytes });
        const id = `plot-${++plots}`;
        this.range = "month";
        this.days = [];
        this.figure = h("div", { class: "plot" });
        this.legend = h("ul", { class: "plot-legend" });
        this.readout = h("p", { class: "note plot-readout" });
        this.numbers = h("details", null, h("summary", null, "As a table"));
        this.element = h(
            "section",
            { class: "card", "aria-labelledby": id },
            h("div", { class: "title" }, h("h2", { id }, title), this.choices(id)),
            this.figure,
            this.readout,
            this.legend,
            this.numbers,
        );
        this.unwatch = redrawn(this.figure, () => this.drawn && this.draw());
    }

    choices(id) {
        const inputs = RANGES.map(([name, label]) => {
            const input = h("input", {
                type: "radio",
                name: id,
                id: `${id}-${name}`,
                value: name,
                checked: name === this.range,
                onchange: () => {
                    this.range = name;
                    this.draw();
                },
            });
            return h("span", { class: "check" }, input, h("label", { for: input.id }, label));
        });
        const label = `Time shown: ${this.title}`;
        return h("div", { class: "segments", role: "radiogroup", "aria-label": label }, inputs);
    }

    leave() {
        this.unwatch();
        this.drawn?.destroy();
        this.drawn = null;
    }

    fail(text) {
        this.drawn?.destroy();
        this.drawn = null;
        fill(this.figure, h("p", { class: "empty" }, text));
    }

    /** `days`: Map of `dayOf` → Map of name → value; a day without values is not drawn. */
    show(days) {
        this.days = [...days].sort(([one], [other]) => one - other);
        this.draw();
    }

    draw() {
        this.drawn?.destroy();
        this.drawn = null;
        const today = dayOf(new Date());
        const length = RANGES.find(([name]) => name === this.range)[2];
        const shown = this.days.filter(([day]) => day > today - length * DAY);
        const sums = new Map();
        for (const [, parts] of shown)
            for (const [name, value] of parts) sums.set(name, (sums.get(name) ?? 0) + value);
        const names = [...sums].sort(([, one], [, other]) => other - one).map(([name]) => name);
        this.numbers.hidden = this.legend.hidden = !names.length;
        this.readout.textContent = "";
        if (!names.length) {
            fill(this.figure, h("p", { class: "empty" }, this.days.length ? "No data in this period." : this.empty));
            return;
        }
        this.shown = shown;
        this.names = names;
        const style = getComputedStyle(this.element);
        const colour = (name) => style.getPropertyValue(name).trim();
        fill(this.figure);
        this.figure.setAttribute("role", "img");
        this.figure.setAttribute("aria-label", `${this.title}: ${this.words(shown.at(-1))}`);
        this.drawn = new uPlot(this.options(shown, names, colour, today), stacked(shown, names), this.figure);
        this.drawLegend(names);
        this.drawTable(shown, names);
    }

    options(shown, names, colour, today) {
        const axis = { stroke: colour("--muted"), font: `12px ${getComputedStyle(this.element).fontFamily}` };
        const lines = { stroke: colour("--line"), width: 1 };
        const values = { ...axis, size: 74, grid: lines, ticks: lines, values: (_, all) => all.map(this.format) };
        if (this.isBytes) values.incrs = BYTE_STEPS;
        const first = Math.min(shown[0][0], today);
        return {
            width: Math.max(220, this.figure.clientWidth),
            height: HEIGHT,
            legend: { show: false },
            cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
            scales: {
                x: { time: true, range: () => [first - 0.7 * DAY, today + 0.7 * DAY] },
                y: { range: (_, _least, most) => [0, Math.max(1, most * 1.06)] },
            },
            axes: [{ ...axis, size: 36, grid: { show: false }, ticks: lines, incrs: DAYS, values: dates }, values],
            // Draw the total sums first: later series cover their lower part.
            series: [
                {},
                ...[...names.keys()].reverse().map((at) => ({
                    label: names[at],
                    fill: colour(`--plot-${Math.min(at + 1, COLOURS)}`),
                    width: 0,
                    paths: uPlot.paths.bars({ size: [0.72, 64] }),
                    points: { show: false },
                })),
            ],
            hooks: { setCursor: [(plot) => this.point(plot.cursor.idx)] },
        };
    }

    point(at) {
        const day = at === null || at === undefined ? null : this.shown[at];
        this.readout.textContent = day ? this.words(day) : "";
    }

    words([day, parts]) {
        const sum = [...parts.values()].reduce((one, other) => one + other, 0);
        const list = this.names
            .filter((name) => parts.get(name))
            .map((name) => `${name} ${this.format(parts.get(name))}`);
        return `${dayName(day)}: ${this.format(sum)}${list.length > 1 ? ` (${list.join(", ")})` : ""}`;
    }

    drawLegend(names) {
        fill(
            this.legend,
            names.map((name, at) =>
                h(
                    "li",
                    null,
                    h("span", { class: `swatch plot-${Math.min(at + 1, COLOURS)}`, "aria-hidden": "true" }),
                    name,
                ),
            ),
        );
    }

    drawTable(shown, names) {
        const rows = [...shown]
            .reverse()
            .slice(0, MOST_ROWS)
            .map(([day, parts]) => [dayName(day), ...names.map((name) => this.format(parts.get(name) ?? 0))]);
        this.numbers.replaceChildren(
            this.numbers.firstChild,
            h(
                "div",
                { class: "scrolls", tabindex: "0", role: "region", "aria-label": `${this.title}, table` },
                table(this.title, [["Day", null], ...names.map((name) => [name, "num"])], rows),
            ),
        );
    }
}

function dates(_, days) {
    const isLong = days.length > 1 && days.at(-1) - days[0] > 300 * DAY;
    const how = isLong ? { month: "short", year: "2-digit" } : { month: "short", day: "numeric" };
    return days.map((day) => new Date(day * 1000).toLocaleDateString(undefined, how));
}

/** The columns of uPlot: the days, then the sums of all parts, of all but the last, … */
function stacked(shown, names) {
    const sums = names.map(() => []);
    for (const [, parts] of shown) {
        let sum = 0;
        names.forEach((name, at) => {
            sum += parts.get(name) ?? 0;
            sums[at].push(sum);
        });
    }
    return [shown.map(([day]) => day), ...sums.reverse()];
}
