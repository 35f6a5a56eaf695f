// The view of a session: its details, and its entries as a conversation.

import { get, query, sessionPath } from "./api.js";
import { ContextBar } from "./context_bar.js";
import { Contents } from "./contents.js";
import { Conversation } from "./conversation.js";
import { button, copy, dialog, fill, h, isTyping, problem, toast } from "./dom.js";
import { count, span } from "./format.js";
import { Hits } from "./hits.js";
import { paced } from "./live.js";
import { drawHead } from "./session_head.js";
import { Subagents } from "./subagents.js";
import { addressOf, table } from "./widgets.js";

const RUNNING_MS = 10 * 60 * 1000; // a session that was written to so lately is opened at its end
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
const KEYS = [
    ["↑ ↓", "the previous entry, the next entry"],
    ["Home End", "the first entry, the last entry"],
    ["Enter", "fold or unfold the entry"],
    ["f", "questions and their last answers only"],
    ["r", "show as plain text: this entry, or all"],
    ["n p", "the next extracted entry, the previous"],
    ["s", "find words in this session"],
    ["h H", "the next hit, the previous hit"],
    ["c", "copy the address of the entry"],
    ["/ Ctrl-K", "search in all sessions"],
    ["?", "these keys"],
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
        this.stale = false;
        this.refresh = paced(() => this.renew());
        this.refreshOutline = paced(() => this.loadOutline(), 3000);
        this.line = 0;
    }

    get isFocus() {
        return Boolean(this.values.focus);
    }

    async start() {
        this.head = h("section", { class: "card", "aria-label": "Session" });
        this.note = h("p", { class: "note", role: "status" });
        this.state = h("p", { class: "note", hidden: true });
        this.bar = new ContextBar();
        this.contents = new Contents(this.session, (line) => this.goTo(line));
        this.info = await get(sessionPath(this.session) + query({ limit: 0 }));
        const only = this.isFocus ? focused(await this.askOutline()) : null;
        this.conversation = new Conversation(this.session, this.page, {
            filter: this.filter(),
            only,
            told: (answer) => this.onAnswer(answer),
            seen: (line) => this.onSeen(line),
            changed: ({ isEmpty }) => this.drawNote(isEmpty),
        });
        this.subagents = new Subagents(this.conversation);
        this.conversation.subagents = this.subagents;
        this.conversation.refreshAll = () => this.refreshAll();
        this.conversation.info = this.info;
        this.hits = new Hits(this.conversation, this.session, (q) => {
            if (q !== (this.values.q ?? "")) this.remember({ q, at: null });
        });
        this.draw();
        document.addEventListener("keydown", (event) => this.onKey(event), { signal: this.page.signal });
        await this.showFirst();
        this.loadOutline().catch((error) => error.status === 404 || toast(error.message, "bad"));
    }

    leave() {
        this.left = true;
        this.refresh.cancel();
        this.refreshOutline.cancel();
        this.hits.leave();
        this.subagents.leave();
        this.conversation.leave();
    }

    onEvent(event) {
        const ours = event.type === "session" && event.session === this.session;
        const blind =
            event.type === "again" || event.type === "lost" || (event.type === "tick" && !event.connected);
        // bsd may change any entry; the program only appends entries.
        if (blind || (ours && event.status !== "unchanged")) this.stale = true;
        if (!ours && !blind) return;
        this.refresh();
        this.refreshOutline();
    }

    draw() {
        const { conversation } = this;
        const reading = h(
            "div",
            { class: "reading-main" },
            this.head,
            this.bar.element,
            this.toolbar(),
            this.state,
            this.note,
            conversation.element,
            this.subagents.loose,
        );
        this.tell("Loading…");
        drawHead(this.head, this.info, this);
        fill(this.page.main, h("div", { class: "reading" }, reading, this.contents.element));
        for (const above of [this.head, this.bar.element, this.state, this.note]) conversation.list.observe(above);
    }

    /** Show the entry in the URL, else the end of a running session, else the beginning. */
    async showFirst() {
        const { q } = this.values;
        try {
            const at = await this.wantedLine();
            await this.conversation.start(at ?? (this.isRunning() ? Infinity : null));
            // The entry is already shown; the other hits load later.
            const hits = q ? this.hits.set(q, at) : null;
            if (at === null) await hits;
            else hits?.catch((error) => this.left || toast(error.message, "bad"));
        } catch (error) {
            if (!this.left) this.tell(problem(error, () => this.showFirst()));
        }
    }

    isRunning() {
        return this.info.status === "running" || Date.now() - Date.parse(this.info.updated) < RUNNING_MS;
    }

    /** The line that the URL names by number or entry id; null if the URL names no line. */
    async wantedLine() {
        const { at } = this.values;
        if (!at) return null;
        if (/^\d+$/.test(at)) return Number(at);
        try {
            return (await get(sessionPath(this.session, "entries", at, "meta"))).index;
        } catch (error) {
            if (error.status !== 404) throw error;
            toast(`The session no longer contains the entry ${at}.`);
            return null;
        }
    }

    // --- the bar above the entries ---

    toolbar() {
        const kind = h(
            "select",
            { name: "type", "aria-label": "Show", onchange: (event) => this.go({ type: event.target.value, focus: null }) },
            KINDS.map(([value, label]) => h("option", { value, selected: value === (this.values.type ?? "") }, label)),
        );
        const away = this.info.extracted_entries > 0;
        const toggle = (label, on, work, title, name) =>
            button(label, work, { class: "small", "aria-pressed": String(on), title, "data-focus": name });
        this.rawButton = toggle("As text", false, () => this.flipRaw(), "Plain text (r)", "raw");
        return h(
            "div",
            { class: "reading-bar", role: "group", "aria-label": "Reading" },
            button("Prompts", () => this.contents.openDialog(), { class: "small prompts-open", "data-focus": "prompts" }),
            kind,
            toggle("Focus", this.isFocus, () => this.flipFocus(), "Questions and their last answers only (f)", "focus"),
            this.rawButton,
            away && [
                button("Extracted ↑", () => this.nextExtracted(-1), { class: "small", title: "The previous extracted entry (p)", "data-focus": "p" }),
                button("Extracted ↓", () => this.nextExtracted(1), { class: "small", title: "The next extracted entry (n)", "data-focus": "n" }),
            ],
            this.hits.element,
            button("End", () => this.conversation.goToEnd(), { class: "small quiet", "data-focus": "end" }),
            button("?", keysDialog, { class: "small quiet", "aria-label": "Keys", "data-focus": "keys" }),
        );
    }

    filter() {
        const { type } = this.values;
        if (this.isFocus) return { type: "user,assistant" };
        if (type === "extracted") return { extracted: true };
        return type ? { type } : {};
    }

    flipFocus() {
        this.go({ focus: this.isFocus ? null : "yes", type: null });
    }

    flipRaw() {
        this.rawButton.setAttribute("aria-pressed", String(this.conversation.flipAllRaw()));
    }

    async nextExtracted(step) {
        if (!(await this.conversation.nextExtracted(step)))
            toast(step > 0 ? "No further extracted entry." : "No earlier extracted entry.");
    }

    async nextHit(step) {
        if (!(await this.hits.step(step))) toast(this.hits.q ? "No hit." : "No words to find. Press s to enter some.");
    }

    /** Copy the URL of the current entry. */
    async copyAddress() {
        const { active } = this.conversation;
        if (active) await copy(this.conversation.linkOf(active.row), "link copied");
        else toast("No entry is selected.");
    }

    onKey(event) {
        const typing = isTyping(event);
        if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
        const card = event.target.closest(".entry") && this.conversation.active;
        const work = {
            f: () => this.flipFocus(),
            r: () => (card ? this.conversation.flipRaw(card) : this.flipRaw()),
            n: () => this.nextExtracted(1),
            p: () => this.nextExtracted(-1),
            s: () => this.hits.input.focus(),
            h: () => this.nextHit(1),
            H: () => this.nextHit(-1),
            c: () => this.copyAddress(),
            "?": keysDialog,
        }[event.key];
        if (!work) return;
        event.preventDefault();
        Promise.resolve(work()).catch((error) => toast(error.message, "bad"));
    }

    /** Change which entries are shown, as a step in the browser's history. The position stays. */
    go(values) {
        const [where] = location.hash.split("?");
        const at = this.line > 0 ? this.line : null;
        location.hash = where + query({ ...this.values, at, ...values });
    }

    /** Write the current state into the URL, without a step in the browser's history. */
    remember(values) {
        Object.assign(this.values, values);
        const [where] = location.hash.split("?");
        this.page.remember(where + query(this.values));
    }

    async goTo(line) {
        this.remember({ at: line });
        await this.conversation.goTo(line);
    }

    // --- details of the session ---

    async renew() {
        const { stale } = this;
        this.stale = false;
        try {
            const [info] = await Promise.all([
                get(sessionPath(this.session) + query({ limit: 0 })),
                this.conversation.refresh({ stale }),
            ]);
            if (this.left) return;
            if (JSON.stringify(info) !== JSON.stringify(this.info)) {
                this.info = this.conversation.info = info;
                drawHead(this.head, info, this);
            }
        } catch (error) {
            this.stale ||= stale;
            if (!this.left && error.status === 404) this.tell(problem(error));
        }
    }

    refreshAll() {
        this.stale = true;
        this.refreshOutline();
        return this.renew();
    }

    askOutline() {
        return get(sessionPath(this.session, "outline"));
    }

    async loadOutline() {
        const outline = await this.askOutline();
        if (this.left) return;
        this.bar.set(outline, (line) => this.goTo(line));
        this.contents.set(outline.prompts);
        this.contents.mark(this.line);
        if (this.subagents.set(outline.subagents)) this.conversation.redraw();
    }

    onSeen(line) {
        this.line = line;
        this.contents.mark(line);
    }

    onAnswer({ damaged, left_alone: leftAlone, begins_in: begins, error }) {
        if (error) {
            this.tell(problem(error, () => this.conversation.build()));
            return;
        }
        const told = leftAlone ? [`bsd does not edit this session: ${leftAlone}.`] : [];
        if (damaged?.count) {
            const lines = damaged.lines.map((line) => line.index).join(", ");
            const more = damaged.count > damaged.lines.length ? ", …" : "";
            told.push(`${count(damaged.count, "damaged line")} (${lines}${more}), kept as ${damaged.count === 1 ? "it is" : "they are"}.`);
        }
        const link = begins?.session && h("a", { href: addressOf(begins.session) }, begins.session);
        fill(this.state, told.join(" "), begins && [" It begins in ", link || `${begins.id}, which is gone`, "."]);
        this.state.hidden = !told.length && !begins;
    }

    drawNote(isEmpty) {
        const filtered = Boolean(this.values.type) || this.isFocus;
        const words = filtered ? "This session has no entry of this kind." : "This session has no entries yet.";
        this.tell(isEmpty && words);
    }

    tell(words) {
        fill(this.note, words);
        this.note.hidden = !words;
    }
}

/** The entries of focus mode; each counts the entries between the question and its answer. */
function focused({ prompts }) {
    const only = new Map();
    for (const { index, last_answer: answer, entries, seconds } of prompts) {
        only.set(index, null);
        if (answer === null) continue;
        const passed = typeof seconds === "number" && seconds >= 1 ? `, ${span(seconds)}` : "";
        only.set(answer, `${count(entries, "entry", "entries")}${passed}`);
    }
    return only;
}

function keysDialog() {
    const { body } = dialog("Keys");
    const rows = KEYS.map(([key, does]) => [h("kbd", null, key), does]);
    fill(body, table("Keys", [["Key", null], ["Does", null]], rows));
}
