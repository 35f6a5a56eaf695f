// Bytes that left sessions, over time: a plain SVG, and the same as a table.

import { describe, fill, h } from "./dom.js";
import { bytes } from "./format.js";
import { savedWords, table } from "./widgets.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 240;
const EDGE = { left: 64, right: 12, top: 12, bottom: 26 };
const HOUR = 3600000;
const RANGES = [
    ["day", "24 hours", 24 * HOUR],
    ["week", "7 days", 7 * 24 * HOUR],
    ["month", "30 days", 30 * 24 * HOUR],
    ["all", "all", Infinity],
];

function svg(tag, props, ...children) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(props ?? {})) element.setAttribute(name, value);
    element.append(...children);
    return element;
}

export class Plot {
    constructor() {
        this.points = [];
        this.width = 0;
        this.range = "week";
        this.title = h("h2", { id: "plot-title" }, "What left sessions");
        this.figure = h("div", { class: "plot" });
        this.readout = h("p", { class: "note plot-readout" });
        this.numbers = h("details", null, h("summary", null, "As a table"));
        const choices = RANGES.map(([name, label]) => {
            const input = h("input", {
                type: "radio",
                name: "plot-range",
                id: `plot-${name}`,
                value: name,
                checked: name === this.range,
            });
            input.addEventListener("change", () => {
                this.range = name;
                this.draw();
            });
            return h("span", { class: "check" }, input, h("label", { for: input.id }, label));
        });
        this.element = h(
            "section",
            { class: "card", "aria-labelledby": "plot-title" },
            h(
                "div",
                { class: "title" },
                this.title,
                h("div", { class: "segments", role: "radiogroup", "aria-label": "Time shown" }, choices),
            ),
            this.figure,
            this.readout,
            this.numbers,
        );
        this.observer = new ResizeObserver(() => {
            if (this.points.length && this.figure.clientWidth !== this.width) this.draw();
        });
        this.observer.observe(this.figure);
        this.figure.addEventListener("pointermove", (event) => this.point(event));
        this.figure.addEventListener("pointerleave", () => this.sum());
    }

    leave() {
        this.observer.disconnect();
    }

    fail(error) {
        fill(this.figure, h("p", { class: "empty" }, describe(error)));
    }

    /** `disk`: what is saved now, of sessions that are there; `points` tell of all that ever were. */
    show(points, disk) {
        this.disk = disk;
        this.points = points.map((one) => ({
            at: Date.parse(one.at),
            saved: one.saved,
            back: one.given_back,
        }));
        this.draw();
    }

    /** The sum after each hour, within the range; it begins with what was saved before. */
    curve(now) {
        const length = RANGES.find(([name]) => name === this.range)[2];
        const begin = Math.max(now - length, (this.points[0]?.at ?? now) - HOUR);
        let sum = 0;
        const curve = [];
        for (const { at, saved, back } of this.points) {
            const before = sum;
            sum += saved - back;
            if (at + HOUR <= begin) continue;
            if (!curve.length) curve.push({ at: begin, sum: before });
            curve.push({ at: Math.max(at, begin), sum: before });
            curve.push({ at: Math.min(now, at + HOUR), sum });
        }
        if (!curve.length) curve.push({ at: begin, sum });
        curve.push({ at: now, sum });
        return curve;
    }

    draw() {
        const now = Date.now();
        if (!this.points.length) {
            fill(
                this.figure,
                h(
                    "p",
                    { class: "empty" },
                    this.disk?.saved
                        ? `${bytes(this.disk.net)} saved: ${savedWords(this.disk)}. The audit log does not tell when.`
                        : "Nothing has left the sessions yet. The first extraction begins this curve.",
                ),
            );
            this.readout.textContent = "";
            this.numbers.hidden = true;
            return;
        }
        this.width = Math.max(240, this.figure.clientWidth);
        const curve = (this.drawn = this.curve(now));
        const begin = curve[0].at;
        const most = nice(Math.max(1, ...curve.map((one) => one.sum)));
        const inner = { width: this.width - EDGE.left - EDGE.right, height: HEIGHT - EDGE.top - EDGE.bottom };
        const x = (at) => EDGE.left + ((at - begin) / Math.max(1, now - begin)) * inner.width;
        const y = (sum) => EDGE.top + inner.height - (Math.max(0, sum) / most) * inner.height;
        this.scale = { x, y, begin, now };
        const line = curve.map((one) => `${x(one.at).toFixed(1)},${y(one.sum).toFixed(1)}`).join(" L");
        const ground = EDGE.top + inner.height;
        const gained = curve.at(-1).sum - curve[0].sum;
        const present = this.disk ? `${bytes(this.disk.net)} now: ${savedWords(this.disk)}; ` : "";
        const label = `Bytes saved: ${present}${bytes(gained)} left in the time shown`;
        const drawing = svg("svg", {
            viewBox: `0 0 ${this.width} ${HEIGHT}`,
            role: "img",
            "aria-label": label,
        });
        for (let part = 0; part <= 4; part += 1) {
            const value = (most * part) / 4;
            drawing.append(
                svg("line", {
                    class: "grid",
                    x1: EDGE.left,
                    x2: this.width - EDGE.right,
                    y1: y(value),
                    y2: y(value),
                }),
                svg(
                    "text",
                    { class: "tick", x: EDGE.left - 8, y: y(value) + 4, "text-anchor": "end" },
                    bytes(value),
                ),
            );
        }
        const marks = Math.max(1, Math.floor(inner.width / 140));
        for (let part = 0; part <= marks; part += 1) {
            const at = begin + ((now - begin) * part) / marks;
            const anchor = part === 0 ? "start" : part === marks ? "end" : "middle";
            drawing.append(
                svg(
                    "text",
                    { class: "tick", x: x(at), y: HEIGHT - 8, "text-anchor": anchor },
                    moment(at, now - begin),
                ),
            );
        }
        this.mark = svg(
            "g",
            { class: "mark", visibility: "hidden" },
            svg("line", { y1: EDGE.top, y2: ground }),
            svg("circle", { r: 4 }),
        );
        drawing.append(
            svg("path", { class: "area", d: `M${x(begin)},${ground} L${line} L${x(now)},${ground} Z` }),
            svg("path", { class: "curve", d: `M${line}` }),
            this.mark,
        );
        this.figure.replaceChildren(drawing);
        this.told = label.replace("Bytes saved: ", "");
        this.sum();
        this.tell();
    }

    sum() {
        this.mark?.setAttribute("visibility", "hidden");
        this.readout.textContent = this.told ?? "";
    }

    point(event) {
        if (!this.scale) return;
        const box = this.figure.getBoundingClientRect();
        const at =
            this.scale.begin +
            ((((event.clientX - box.left) / box.width) * this.width - EDGE.left) /
                (this.width - EDGE.left - EDGE.right)) *
                (this.scale.now - this.scale.begin);
        const after = this.drawn.findIndex((one) => one.at >= at);
        if (after < 0 || at < this.scale.begin) return;
        const right = this.drawn[after];
        const left = this.drawn[Math.max(0, after - 1)];
        const share = right.at === left.at ? 1 : (at - left.at) / (right.at - left.at);
        const sum = left.sum + share * (right.sum - left.sum);
        const [line, circle] = this.mark.children;
        const x = this.scale.x(at);
        line.setAttribute("x1", x);
        line.setAttribute("x2", x);
        circle.setAttribute("cx", x);
        circle.setAttribute("cy", this.scale.y(sum));
        this.mark.setAttribute("visibility", "visible");
        this.readout.textContent = `${new Date(at).toLocaleString()}: ${bytes(Math.round(sum))} saved`;
    }

    /** By day, the newest first. */
    tell() {
        const days = new Map();
        for (const { at, saved, back } of this.points) {
            const day = new Date(at).toLocaleDateString();
            const sum = days.get(day) ?? { saved: 0, back: 0 };
            days.set(day, { saved: sum.saved + saved, back: sum.back + back });
        }
        const rows = [...days]
            .reverse()
            .slice(0, 60)
            .map(([day, { saved, back }]) => [day, bytes(saved), bytes(back)]);
        this.numbers.hidden = false;
        this.numbers.replaceChildren(
            this.numbers.firstChild,
            table(
                "Bytes saved by day",
                [
                    ["Day", null],
                    ["Saved", "num"],
                    ["Put back", "num"],
                ],
                rows,
            ),
        );
    }
}

function nice(value) {
    const unit = 1024 ** Math.floor(Math.log(value) / Math.log(1024));
    const count = value / unit;
    return unit * [1, 2, 4, 8, 10, 20, 40, 80, 100, 200, 400, 800, 1024].find((step) => step >= count);
}

function moment(at, length) {
    const options =
        length <= 2 * 24 * HOUR ? { hour: "2-digit", minute: "2-digit" } : { month: "short", day: "numeric" };
    return new Date(at).toLocaleString(undefined, options);
}
