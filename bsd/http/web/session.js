// One session: what is known of it, and its entries page by page.

import { entryPath, get, query, sessionPath } from "./api.js";
import { button, copyButton, fill, h, problem } from "./dom.js";
import { EntryItem } from "./entry.js";
import { bytes, count, number, span } from "./format.js";
import { excludeButton, pauseButton } from "./leaving_out.js";
import { paced } from "./live.js";
import { deleteDialog, extractDialog, historyDialog, summaryDialog } from "./operations.js";
import { badges } from "./session_row.js";
import { forgetList } from "./sessions.js";
import { facts, linkTo, when } from "./widgets.js";

const LAST_LINE = 10 ** 9;
const SHOWN = 100;
const MOST_SHOWN = 200; // with what arrives while somebody looks
const KINDS = [
    ["", "All entries"],
    ["user", "User"],
    ["assistant", "Assistant"],
    ["tool_result", "Tool results"],
    ["tool_call", "Tool calls"],
    ["thinking", "Thinking"],
    ["system", "System"],
    [
        "custom,custom_message,model_change,thinking_level_change,compaction,label,session_info",
        "Custom and notes",
    ],
    ["extracted", "Extracted"],
];

export async function sessionView(page) {
    const view = new SessionView(page);
    await view.start();
    return view;
}

class SessionView {
    constructor(page) {
        this.page = page;
        this.session = page.parts.slice(1).length ? `${page.parts[0]}/${page.parts.slice(1).join("/")}` : "";
        this.values = page.values;
        this.items = new Map();
        this.turn = 0;
        this.refresh = paced(() => this.renew());
    }

    get newestFirst() {
        return this.values.order !== "oldest";
    }

    /** Whether what arrives belongs on this page. */
    get atTheEnd() {
        return this.newestFirst ? !this.values.before && !this.values.from : this.next === null;
    }

    async start() {
        this.head = h("section", { class: "card", "aria-label": "Session" });
        this.pager = h("div", { class: "pager" });
        this.pagerBelow = h("div", { class: "pager" });
        this.note = h("p", { class: "note", role: "status" });
        this.state = h("p", { class: "note", hidden: true });
        this.list = h("ol", { class: "entries", "aria-label": "Entries" });
        this.list.addEventListener("keydown", (event) => this.onKey(event));
        await this.loadHead();
        fill(this.page.main, this.head, this.toolbar(), this.state, this.note, this.list, this.pagerBelow);
        await this.load();
    }

    leave() {
        this.refresh.cancel();
        this.turn += 1;
        for (const item of this.items.values()) item.leave();
    }

    onEvent(event) {
        const ours = event.type === "session" && event.session === this.session;
        const blind =
            event.type === "again" || event.type === "lost" || (event.type === "tick" && !event.connected);
        if (ours || blind) this.refresh();
    }

    async loadHead() {
        this.info = await get(sessionPath(this.session) + query({ limit: 0 }));
        this.drawHead();
    }

    drawHead() {
        const { info } = this;
        document.title = `${info.title || info.label || info.id} · bsd`;
        const spent = Object.entries(info.tokens ?? {}).map(
            ([name, value]) => `${name.replace("_", " ")} ${number(value)}`,
        );
        const tokens = spent.length
            ? h(
                  "span",
                  { title: spent.join(", ") },
                  number(info.tokens.total ?? (info.tokens.input ?? 0) + (info.tokens.output ?? 0)),
              )
            : null;
        const children = (info.children ?? []).map((child) =>
            typeof child === "string" ? child : child.session,
        );
        fill(
            this.head,
            h(
                "p",
                { class: "crumb" },
                h("a", { href: "#/" }, "Sessions"),
                " / ",
                h("a", { href: `#/${query({ agent: info.agent })}` }, info.agent),
            ),
            h("div", { class: "title" }, h("h1", null, info.title || info.label || info.id), badges(info)),
            h(
                "p",
                { class: "row-id" },
                this.session,
                " ",
                copyButton(this.session, "Copy", "session name"),
                info.resume && [
                    " ",
                    copyButton(info.resume, "Copy command", "the command that continues it"),
                ],
            ),
            facts([
                ["Size", bytes(info.size)],
                ["Saved", info.saved_bytes > 0 ? bytes(info.saved_bytes) : null],
                [
                    "Taken out",
                    info.extracted_bytes
                        ? `${bytes(info.extracted_bytes)} in ${count(info.extracted_entries, "entry", "entries")}`
                        : "nothing",
                ],
                ["Changed", when(info.updated)],
                ["Messages", typeof info.messages === "number" ? number(info.messages) : null],
                ["Tool calls", typeof info.tool_calls === "number" ? number(info.tool_calls) : null],
                [
                    info.models?.length > 1 ? "Models" : "Model",
                    info.models?.length ? info.models.join(", ") : info.model,
                ],
                ["Tokens", tokens],
                ["Duration", info.duration_minutes ? span(info.duration_minutes * 60) : null],
                ["Parent", info.parent && linkTo(`${info.agent}/${info.parent}`, { class: "mono" })],
                [
                    children.length > 1 ? "Children" : "Child",
                    children.length ? children.map((child) => [linkTo(child, { class: "mono" }), " "]) : null,
                ],
            ]),
            h(
                "div",
                { class: "buttons start" },
                button("Extract now…", () => extractDialog(this.session, () => this.refreshAll()), {
                    class: "primary writes",
                    "data-focus": "extract",
                }),
                button(
                    "History…",
                    () => historyDialog(this.session, this.page.readonly(), () => this.refreshAll()),
                    { "data-focus": "history" },
                ),
                button("Summary…", () => summaryDialog(this.session), { "data-focus": "summary" }),
                pauseButton(this.session, () => {}, { "data-focus": "pause" }),
                excludeButton(this.session, () => (location.hash = "#/"), { "data-focus": "exclude" }),
                button("Delete…", () => this.remove(), { class: "danger writes", "data-focus": "delete" }),
            ),
        );
    }

    async remove() {
        if (!(await deleteDialog(this.info))) return;
        forgetList();
        location.hash = "#/";
    }

    toolbar() {
        const kind = h(
            "select",
            {
                name: "type",
                "aria-label": "Show",
                onchange: (event) => this.go({ type: event.target.value, before: null, from: null }),
            },
            KINDS.map(([value, label]) =>
                h("option", { value, selected: value === (this.values.type ?? "") }, label),
            ),
        );
        const order = h(
            "select",
            {
                name: "order",
                "aria-label": "Order",
                onchange: (event) => this.go({ order: event.target.value, before: null, from: null }),
            },
            h("option", { value: "" }, "Newest first"),
            h("option", { value: "oldest", selected: !this.newestFirst }, "Oldest first"),
        );
        return h("div", { class: "filters" }, kind, order, this.pager);
    }

    /** Another page or filter: a step in the history, so that “back” works. */
    go(values) {
        const all = { ...this.values, at: null, ...values };
        const [where] = location.hash.split("?");
        location.hash = where + query(all);
    }

    wanted() {
        const { type, before, from } = this.values;
        const which = type === "extracted" ? { extracted: true } : { type };
        if (from) return { ...which, from, limit: SHOWN };
        if (before) return { ...which, before, limit: SHOWN };
        return this.newestFirst
            ? { ...which, before: LAST_LINE, limit: SHOWN }
            : { ...which, from: 0, limit: SHOWN };
    }

    fetch() {
        return get(sessionPath(this.session, "entries") + query(this.wanted()));
    }

    async load() {
        const turn = ++this.turn;
        this.list.setAttribute("aria-busy", "true");
        try {
            const found = await this.fetch();
            if (turn !== this.turn) return;
            this.take(found);
            if (this.values.at) this.reveal(Number(this.values.at));
        } catch (error) {
            if (turn === this.turn)
                fill(
                    this.note,
                    problem(error, () => this.load()),
                );
        } finally {
            this.list.removeAttribute("aria-busy");
        }
    }

    async renew() {
        const turn = this.turn;
        try {
            const [found, info] = await Promise.all([
                this.fetch(),
                get(sessionPath(this.session) + query({ limit: 0 })),
            ]);
            if (turn !== this.turn) return;
            if (JSON.stringify(info) !== JSON.stringify(this.info)) {
                this.info = info;
                this.drawHead();
            }
            this.take(found);
        } catch (error) {
            if (turn === this.turn && error.status === 404) fill(this.note, problem(error));
        }
    }

    refreshAll() {
        return this.renew();
    }

    take({ entries, next, previous, damaged, left_alone: leftAlone }) {
        this.drawState(damaged, leftAlone);
        const known = this.items;
        const old = [...known.values()];
        const newest = old.length ? Math.max(...old.map((item) => item.row.index)) : Infinity;
        let rows = entries;
        if (this.atTheEnd && old.length && this.newestFirst && entries.length) {
            // What somebody looks at stays when more arrives, up to a limit.
            const first = entries[0].index;
            rows = [...old.map((item) => item.row).filter((row) => row.index < first), ...entries].slice(
                -MOST_SHOWN,
            );
            if (rows.length > entries.length) previous = rows[0].index;
        }
        this.next = next;
        this.previous = previous;
        this.items = new Map();
        for (const row of rows) {
            const item = known.get(row.index) ?? new EntryItem(this, row);
            known.delete(row.index);
            item.update(row);
            item.element.classList.toggle("arrived", row.index > newest);
            this.items.set(row.index, item);
        }
        for (const item of known.values()) item.leave();
        this.pair(rows);
        this.place();
        this.drawPager(rows);
    }

    /** Say what of the session is damaged, and why bsd does not edit it. */
    drawState(damaged, leftAlone) {
        const said = leftAlone ? [`bsd does not edit this session: ${leftAlone}.`] : [];
        if (damaged?.count) {
            const lines = damaged.lines.map((line) => line.index).join(", ");
            const more = damaged.count > damaged.lines.length ? ", …" : "";
            said.push(`${count(damaged.count, "damaged line")} (${lines}${more}), kept as it stands.`);
        }
        fill(this.state, said.join(" "));
        this.state.hidden = !said.length;
    }

    place() {
        const wanted = [...this.items.values()];
        if (this.newestFirst) wanted.reverse();
        const keep = new Set(wanted.map((item) => item.element));
        for (const element of [...this.list.children]) if (!keep.has(element)) element.remove();
        wanted.forEach((item, at) => {
            if (this.list.children[at] !== item.element)
                this.list.insertBefore(item.element, this.list.children[at] ?? null);
        });
        if (!wanted.some((item) => item.isActive)) wanted[0]?.activate(true);
    }

    /** Let calls and results that are both shown name each other. */
    pair(rows) {
        const called = new Map();
        for (const row of rows) for (const call of row.calls ?? []) called.set(call.id, row.index);
        const answered = new Map(
            rows.filter((row) => row.result_of).map((row) => [row.result_of, row.index]),
        );
        for (const item of this.items.values()) item.setPartners(called, answered);
    }

    drawPager(rows) {
        const first = rows[0]?.index;
        const last = rows.at(-1)?.index;
        const older = (name) =>
            button("‹ Older", () => this.go({ before: this.previous, from: null }), {
                disabled: this.previous === null,
                "data-focus": name,
            });
        const newer = (name) =>
            button("Newer ›", () => this.go({ from: this.next, before: null }), {
                disabled: this.next === null,
                "data-focus": name,
            });
        const ends = [
            button("First", () => this.go({ from: 0, before: null }), {
                class: "quiet",
                disabled: this.previous === null,
                "data-focus": "first",
            }),
            button("Latest", () => this.go({ before: this.newestFirst ? null : LAST_LINE, from: null }), {
                class: "quiet",
                disabled: this.next === null,
                "data-focus": "latest",
            }),
        ];
        // A button that is put in anew while it is being clicked hears nothing of the click.
        const drawn = JSON.stringify([this.previous, this.next, rows.length > 20, this.newestFirst]);
        if (drawn !== this.drawn) {
            this.drawn = drawn;
            fill(this.pager, ends[0], older("older"), newer("newer"), ends[1]);
            fill(this.pagerBelow, rows.length > 20 && [older("older-below"), newer("newer-below")]);
        }
        const filtered = Boolean(this.values.type);
        fill(
            this.note,
            rows.length
                ? `Entries #${first} to #${last}${filtered ? ", filtered" : ""}`
                : filtered
                  ? "No entry of this kind here."
                  : "This session has no entries yet.",
        );
    }

    reveal(index) {
        const item = this.items.get(index);
        if (!item) return;
        item.element.scrollIntoView({ block: "center" });
        item.focus();
        item.element.classList.add("pointed");
        setTimeout(() => item.element.classList.remove("pointed"), 1600);
    }

    onKey(event) {
        const at = event.target.closest(".entry-open");
        const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
        if (!at || !step || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        const all = [...this.list.querySelectorAll(".entry-open")];
        const to = Math.min(all.length - 1, Math.max(0, all.indexOf(at) + step));
        all[to].focus();
    }

    activate(item) {
        for (const one of this.items.values()) if (one !== item && one.isActive) one.activate(false);
        item.activate(true);
    }

    pathOf(row, ...more) {
        return entryPath(this.session, row, ...more);
    }
}
