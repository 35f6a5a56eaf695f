// A plot with a value of each call of a session, with bsd and without, and marks of what happened
// between the calls. `CallPlots` shows several of them with one pointer, and a slider that moves it.

import { fill, h } from "./dom.js";
import { redrawn } from "./day_plot.js";
import uPlot from "./vendor/uplot/uplot.js";

const HEIGHT = 220;
const FEW = 60; // calls that are shown as points too
// Marks: the name in the legend. Each has a form of its own, so that the colour alone says nothing.
const MARKS = {
    cut: "cut",
    compaction: "compaction",
    cold: "cold restart",
};
const COLOURS = { cut: "--plot-2", compaction: "--muted", cold: "--plot-4" };

export class CallPlots {
    /** `figures`: [title, format of a value, format of the values of an axis]. */
    constructor(figures) {
        this.all = figures.map((figure) => new CallPlot(...figure, (at) => this.point(at)));
        this.slider = h("input", {
            type: "range",
            min: 1,
            "aria-label": "Call",
            oninput: () => this.point(Number(this.slider.value) - 1),
        });
        this.readout = h("p", { class: "note plot-readout" });
        this.legend = h("ul", { class: "plot-legend" });
        this.element = h(
            "div",
            { class: "call-plots" },
            this.legend,
            this.all.map((plot) => plot.element),
            this.slider,
            this.readout,
        );
    }

    leave() {
        for (const plot of this.all) plot.leave();
    }

    /**
     * `words(at)` tells of a call; `marks`: {at, kind}, before the call at this place. `figures`: of
     * each {without, with, steps}; the columns have a value or null for each call, and `steps`,
     * [value, words], are drawn as lines.
     */
    show({ words, marks, figures }) {
        this.words = words;
        this.slider.max = figures[0].without.length;
        this.all.forEach((plot, at) => plot.show(figures[at], marks));
        const hasSteps = figures.some(({ steps }) => steps.length);
        this.drawLegend(new Set(marks.map((mark) => mark.kind)), hasSteps);
        this.point(figures[0].without.length - 1);
    }

    /** Show a call: its values in words, and the pointer of each figure there. */
    point(at) {
        if (at === null || at === undefined || at < 0) return;
        const told = this.words(at);
        this.readout.textContent = told;
        this.slider.value = at + 1;
        this.slider.setAttribute("aria-valuetext", told);
        for (const plot of this.all) plot.point(at);
    }

    drawLegend(kinds, hasSteps) {
        const item = (kind, words) => h("li", null, h("span", { class: `swatch line-${kind}`, "aria-hidden": "true" }), words);
        fill(
            this.legend,
            item("without", "without bsd"),
            item("with", "with these settings"),
            Object.keys(MARKS)
                .filter((kind) => kinds.has(kind))
                .map((kind) => item(kind, MARKS[kind])),
            hasSteps && item("step", "price step"),
        );
    }
}

class CallPlot {
    constructor(title, format, axis, onPoint) {
        Object.assign(this, { title, format, axis, onPoint, columns: null });
        this.figure = h("div", { class: "plot", role: "img" });
        this.element = h("div", { class: "call-plot" }, h("h3", null, title), this.figure);
        this.unwatch = redrawn(this.figure, () => this.drawn && this.draw());
    }

    leave() {
        this.unwatch();
        this.drawn?.destroy();
        this.drawn = null;
    }

    show({ without, with: shorter, steps }, marks) {
        const most = (column) => this.format(column.reduce((one, other) => Math.max(one, other ?? 0), 0));
        Object.assign(this, { marks, steps, columns: [without.map((_, at) => at + 1), without, shorter] });
        this.element.hidden = without.every((value) => value === null);
        this.figure.setAttribute("aria-label", `${this.title}: at most ${most(without)} without bsd, ${most(shorter)} with these settings`);
        this.draw();
    }

    draw() {
        this.drawn?.destroy();
        this.drawn = null;
        if (this.element.hidden) return;
        fill(this.figure);
        this.drawn = new uPlot(this.options(), this.columns, this.figure);
        if (this.at !== undefined) this.point(this.at);
    }

    point(at) {
        this.at = at;
        const { drawn } = this;
        if (!drawn || drawn.cursor.idx === at) return;
        drawn.setCursor({ left: drawn.valToPos(at + 1, "x"), top: 0 }, false);
    }

    get length() {
        return this.columns[0].length;
    }

    options() {
        const style = getComputedStyle(this.element);
        const colour = (name) => style.getPropertyValue(name).trim();
        const axis = { stroke: colour("--muted"), font: `12px ${style.fontFamily}` };
        const lines = { stroke: colour("--line"), width: 1 };
        const points = { show: this.length <= FEW, size: 5 };
        const formatted = (_, all) => all.map(this.axis);
        return {
            width: Math.max(220, this.figure.clientWidth),
            height: HEIGHT,
            legend: { show: false },
            cursor: { y: false, drag: { x: false, y: false } },
            scales: {
                x: { time: false, range: [0.5, this.length + 0.5] },
                y: { range: (_, _least, most) => [0, Math.max(most, 1e-9) * 1.12] },
            },
            axes: [
                { ...axis, size: 32, grid: { show: false }, ticks: lines, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000] },
                { ...axis, size: 74, grid: lines, ticks: lines, values: formatted },
            ],
            series: [
                {},
                { label: "without bsd", stroke: colour("--edge"), width: 2, dash: [5, 3], points },
                { label: "with these settings", stroke: colour("--plot-1"), width: 2, points },
            ],
            hooks: {
                setCursor: [(plot) => this.onPoint(plot.cursor.idx)],
                draw: [(plot) => this.drawMarks(plot, colour)],
            },
        };
    }

    drawMarks(plot, colour) {
        const { ctx, bbox } = plot;
        const dot = devicePixelRatio;
        ctx.save();
        ctx.beginPath();
        ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
        ctx.clip();
        ctx.lineWidth = dot;
        for (const { at, kind } of this.marks) {
            // A cold call is a point; a cut and a compaction stand between two calls.
            const x = Math.round(plot.valToPos(at + (kind === "cold" ? 1 : 0.5), "x", true));
            ctx.strokeStyle = ctx.fillStyle = colour(COLOURS[kind]);
            DRAW[kind](ctx, x, bbox.top, bbox.top + bbox.height, dot);
        }
        ctx.setLineDash([2 * dot, 3 * dot]);
        ctx.strokeStyle = ctx.fillStyle = colour("--danger");
        ctx.font = `${12 * dot}px ${getComputedStyle(this.element).fontFamily}`;
        ctx.textAlign = "left";
        ctx.textBaseline = "bottom";
        for (const [value, words] of this.steps) {
            const y = Math.round(plot.valToPos(value, "y", true));
            line(ctx, bbox.left, y, bbox.left + bbox.width, y);
            ctx.fillText(words, bbox.left + 6 * dot, y - 2 * dot);
        }
        ctx.restore();
    }
}

function line(ctx, fromX, fromY, toX, toY) {
    ctx.beginPath();
    ctx.moveTo(fromX, fromY);
    ctx.lineTo(toX, toY);
    ctx.stroke();
}

const DRAW = {
    cut(ctx, x, top, bottom, dot) {
        ctx.setLineDash([]);
        line(ctx, x, top, x, bottom);
        ctx.beginPath();
        ctx.moveTo(x - 5 * dot, top);
        ctx.lineTo(x + 5 * dot, top);
        ctx.lineTo(x, top + 8 * dot);
        ctx.fill();
    },
    compaction(ctx, x, top, bottom, dot) {
        ctx.setLineDash([4 * dot, 3 * dot]);
        line(ctx, x, top, x, bottom);
    },
    cold(ctx, x, _top, bottom, dot) {
        ctx.setLineDash([]);
        ctx.beginPath();
        ctx.arc(x, bottom - 5 * dot, 4 * dot, 0, 2 * Math.PI);
        ctx.fill();
    },
};
