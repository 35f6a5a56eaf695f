// The head of a session: its details, and the operations on the whole session.

import { query } from "./api.js";
import { button, copyButton, fill, h } from "./dom.js";
import { exportDialog } from "./export.js";
import { bytes, count, number, span } from "./format.js";
import { excludeButton, pauseButton } from "./leaving_out.js";
import { deleteDialog, extractDialog, historyDialog, summaryDialog } from "./operations.js";
import { badges } from "./session_row.js";
import { forgetList } from "./sessions.js";
import { timingWords } from "./timing.js";
import { addressOf, facts, linkTo, when } from "./widgets.js";

/** Fill `head` with the facts of a session; `view` has its name, its page and `refreshAll`. */
export function drawHead(head, info, view) {
    const { session } = view;
    document.title = `${info.title || info.label || info.id} · bsd`;
    head.classList.add("session-head");
    fill(
        head,
        h(
            "p",
            { class: "crumb" },
            h("a", { href: "#/sessions" }, "Sessions"),
            " / ",
            h("a", { href: `#/sessions${query({ agent: info.agent })}` }, info.agent),
        ),
        h(
            "div",
            { class: "title" },
            h("h1", { title: info.title }, info.title || info.label || info.id),
            h("span", { class: "badges" }, badges(info)),
            unfoldButton(head),
        ),
        h(
            "p",
            { class: "row-id" },
            session,
            " ",
            copyButton(session, "Copy", "session name"),
            info.resume && [" ", copyButton(info.resume, "Copy command", "the command that continues it")],
        ),
        facts(known(info)),
        operations(info, view),
    );
}

/** Shown only on phones, where details, operations and context are folded at first. */
function unfoldButton(head) {
    const isOpen = () => head.classList.contains("unfolded");
    const name = () => (isOpen() ? "Less" : "Details and actions");
    return h(
        "button",
        {
            type: "button",
            class: "small unfold",
            "data-focus": "unfold",
            "aria-expanded": String(isOpen()),
            onclick: ({ currentTarget: pressed }) => {
                head.classList.toggle("unfolded");
                pressed.setAttribute("aria-expanded", String(isOpen()));
                pressed.textContent = name();
            },
        },
        name(),
    );
}

function known(info) {
    const children = (info.children ?? []).map((child) => (typeof child === "string" ? child : child.session));
    const { extracted_bytes: away, extracted_entries: entries } = info;
    return [
        ["Size", bytes(info.size)],
        ["Saved", info.saved_bytes > 0 ? bytes(info.saved_bytes) : null],
        ["Taken out", away ? `${bytes(away)} in ${count(entries, "entry", "entries")}` : "nothing"],
        ["Changed", when(info.updated)],
        ["Messages", typeof info.messages === "number" ? number(info.messages) : null],
        ["Tool calls", typeof info.tool_calls === "number" ? number(info.tool_calls) : null],
        [info.models?.length > 1 ? "Models" : "Model", models(info)],
        ["Tokens", spent(info.tokens)],
        ["Prompt cache", timingWords(info)],
        ["Cost", h("a", { href: addressOf(info.session, "cost"), "data-focus": "cost" }, "Call by call")],
        ["Duration", info.duration_minutes ? span(info.duration_minutes * 60) : null],
        ["Parent", info.parent && linkTo(`${info.agent}/${info.parent}`, { class: "mono" })],
        [
            children.length > 1 ? "Children" : "Child",
            children.length ? children.map((child) => [linkTo(child, { class: "mono" }), " "]) : null,
        ],
    ];
}

function models({ models: all, model }) {
    if (!all?.length) return model;
    if (all.length < 3) return all.join(", ");
    return h("span", { title: all.join(", ") }, `${all[0]} and ${all.length - 1} more`);
}

function spent(tokens) {
    const parts = Object.entries(tokens ?? {});
    if (!parts.length) return null;
    const title = parts.map(([name, value]) => `${name.replace("_", " ")} ${number(value)}`).join(", ");
    return h("span", { title }, number(tokens.total ?? (tokens.input ?? 0) + (tokens.output ?? 0)));
}

function operations(info, view) {
    const { session, page } = view;
    const again = () => view.refreshAll();
    const remove = async () => {
        if (!(await deleteDialog(info))) return;
        forgetList();
        location.hash = "#/sessions";
    };
    return h(
        "div",
        { class: "buttons start" },
        button("Extract now…", () => extractDialog(session, again), {
            class: "writes",
            "data-focus": "extract",
        }),
        button("History…", () => historyDialog(session, page.readonly(), again), { "data-focus": "history" }),
        button("Summary…", () => summaryDialog(session), { "data-focus": "summary" }),
        button("Export…", () => exportDialog(session), { "data-focus": "export" }),
        pauseButton(session, () => {}, { "data-focus": "pause" }),
        excludeButton(session, () => (location.hash = "#/sessions"), { "data-focus": "exclude" }),
        button("Delete…", remove, { class: "danger writes", "data-focus": "delete" }),
    );
}
