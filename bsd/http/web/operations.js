// Operations on a whole session, each in a dialog: extract, undo, summarize, delete.

import { get, post, query, remove, sessionPath } from "./api.js";
import { button, describe, dialog, fill, h, problem, toast } from "./dom.js";
import { bytes, count, howLongKept, number } from "./format.js";
import { SHORT_REASONS, costWords } from "./timing.js";
import { offerUndo } from "./undoing.js";
import { badge, facts, table, when } from "./widgets.js";

const REASONS = {
    extract: "leave",
    type_not_matched: "of another type",
    too_recent: "too recent",
    values_too_small: "too small",
    turn_open: "in the latest turn",
    pinned: "pinned",
    already_extracted: "extracted already",
    undone: "undone by the user",
    recently_restored: "restored recently",
    prefix_bound: "covered by a later signature",
    too_young: "too young",
    cache_warm: "their prompt cache is warm",
    disabled: "switched off",
    no_entry_id: "without an id",
    unsafe_entry_id: "with an id that a placeholder cannot contain",
    duplicate_entry_id: "with an id that another entry also has",
    not_sent: "no longer sent, in a file that keeps its size",
    too_large_in_memory: "with more values than fit into memory",
};

/** Show what an extraction would do, and do it. */
export async function extractDialog(session, done) {
    const { body, close } = dialog("Extract now", { wide: true });
    const outcome = h("div", { "aria-live": "polite" });
    const recent = numberField("Messages to keep", "keep_recent");
    const smallest = numberField("Smallest value, in characters", "min_value_length");
    const go = button("Extract", () => run(), { class: "primary", disabled: true });
    const where = sessionPath(session, "extract");
    const status = await get("status").catch(() => null);

    const overrides = () => {
        const wanted = {};
        for (const { input, name } of [recent, smallest])
            if (input.value.trim())
                wanted[name] = /^\d+$/.test(input.value.trim()) ? Number(input.value) : input.value;
        return wanted;
    };
    const told = (error) => {
        for (const field of [recent, smallest])
            field.tell(error?.errors?.find((one) => one.field === field.name)?.message);
        fill(outcome, error && problem(error));
    };
    const preview = async () => {
        go.disabled = true;
        try {
            const plan = await post(`${where}?dry_run=true`, overrides());
            told(null);
            const leaves = plan.status === "extracted";
            fill(
                outcome,
                leaves ? whatLeaves(plan) : h("p", null, "No value is due with these settings."),
                leaves && plan.cache_warm_until && h("p", null, costOf(plan)),
                reasons(plan.reasons),
            );
            go.disabled = !leaves;
        } catch (error) {
            told(error);
        }
    };
    const run = async () => {
        try {
            const result = await post(where, overrides());
            toast(
                result.status === "extracted"
                    ? `${count(result.values, "value")} left the session: ${bytes(result.bytes_saved)} saved.`
                    : "No value was due any more.",
            );
            close(true);
            await done();
        } catch (error) {
            told(error);
        }
    };

    fill(
        body,
        h(
            "p",
            null,
            `Large old values move into the store and can be restored exactly. They are kept ${howLongKept(status?.retention)}. Leave a field empty to use the settings.`,
        ),
        h("div", { class: "fields" }, recent.element, smallest.element),
        h("div", { class: "buttons start" }, button("Preview", preview)),
        outcome,
        h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => close() }, "Cancel"), go),
    );
    await preview();
}

function whatLeaves(plan) {
    const share = plan.bytes_before ? Math.round((100 * plan.bytes_saved) / plan.bytes_before) : 0;
    return h(
        "p",
        null,
        h(
            "strong",
            null,
            `${count(plan.values, "value")} of ${count(plan.entries, "entry", "entries")} would leave: ${bytes(plan.bytes_before)} → ${bytes(plan.bytes_after)} (−${share} %)`,
        ),
    );
}

/** What an extraction by hand costs while the prompt cache is warm. */
const costOf = (plan) => `An extraction by hand does not wait: ${costWords(plan)}.`;

function reasons(found) {
    const rows = Object.entries(found ?? {}).sort((a, b) => b[1] - a[1]);
    return (
        rows.length > 0 &&
        h(
            "ul",
            { class: "reasons" },
            rows.map(([reason, times]) =>
                h("li", null, h("strong", null, number(times)), ` ${REASONS[reason] ?? reason}`),
            ),
        )
    );
}

function numberField(label, name) {
    const id = `override-${name}`;
    const input = h("input", {
        id,
        inputmode: "numeric",
        size: 8,
        autocomplete: "off",
        "aria-describedby": `${id}-problem`,
    });
    const told = h("p", { class: "field-error", id: `${id}-problem` });
    const tell = (text) => {
        fill(told, text);
        if (text) input.setAttribute("aria-invalid", "true");
        else input.removeAttribute("aria-invalid");
    };
    return {
        name,
        input,
        tell,
        element: h("div", { class: "field" }, h("label", { for: id }, label), input, told),
    };
}

const STATES = { done: "plain", undone: "info", partly_undone: "warn", damaged: "bad" };

/** The operations on a session, each with a button to undo it. */
export async function historyDialog(session, readonly, done) {
    const { body } = dialog("History", { wide: true });
    const list = h("div", { class: "scroll" });
    const told = h("div", { "aria-live": "polite" });
    // First show what the undo changes, with its buttons; the answer replaces them.
    const undo = (operation) =>
        offerUndo(told, session, operation, async (answer) => {
            fill(told, h("p", { class: "good" }, `Operation ${answer.undone} is undone.`));
            await load();
            await done();
        });
    const load = async () => {
        const { operations } = await get(sessionPath(session, "history"));
        const rows = operations.map((one) => [
            number(one.operation),
            [
                one.action,
                one.undoes ? ` of ${one.undoes}` : "",
                SHORT_REASONS[one.cut_reason] ? ` (${SHORT_REASONS[one.cut_reason]})` : "",
                " ",
                one.state !== "done" && badge(one.state.replace("_", " "), STATES[one.state]),
            ],
            when(one.at),
            one.actor,
            number(one.entries),
            bytes(one.bytes_after - one.bytes_before),
            !readonly &&
                one.state !== "undone" &&
                one.state !== "damaged" &&
                button("Undo…", () => undo(one.operation), {
                    class: "small",
                    "aria-label": `Undo operation ${one.operation}`,
                    "data-focus": `undo-${one.operation}`,
                }),
        ]);
        fill(
            list,
            rows.length
                ? table(
                      "Operations",
                      [
                          ["No.", "num"],
                          ["What", null],
                          ["When", null],
                          ["Who", null],
                          ["Entries", "num"],
                          ["Bytes", "num"],
                          ["", null],
                      ],
                      rows,
                  )
                : h("p", { class: "empty" }, "No operations: bsd has not changed this session, or the history has expired."),
        );
    };
    fill(body, told, list);
    await load().catch((error) => fill(list, problem(error)));
}

export async function summaryDialog(session) {
    const { body } = dialog("Summary", { wide: true });
    fill(body, h("p", { class: "note", role: "status" }, "Reading the session…"));
    await get(sessionPath(session, "summary"))
        .then((told) => fill(body, summaryOf(told.summary ?? told)))
        .catch((error) => fill(body, problem(error)));
}

const LISTS = [
    ["user_requests", "Requests"],
    ["key_actions", "Actions"],
    ["thinking_insights", "Thoughts"],
    ["files_created", "Files created"],
    ["errors", "Errors"],
];

function summaryOf(summary) {
    const joined = (list) => (list?.length ? list.join(", ") : null);
    return [
        facts([
            ["Kind", summary.session_type?.replace("_", " ")],
            [
                "Messages",
                summary.message_count === undefined
                    ? null
                    : `${number(summary.message_count)}, ${number(summary.user_messages)} of the user`,
            ],
            ["Tool calls", number(summary.tool_calls)],
            ["Duration", summary.duration_estimate],
            ["Tools", joined(summary.tools_used)],
            ["Models", joined(summary.models_used)],
            ["Git commits", summary.has_git_commits ? "yes" : "none"],
        ]),
        LISTS.filter(([name]) => summary[name]?.length).map(([name, title]) => [
            h("h3", null, title),
            h(
                "ul",
                { class: "plain" },
                summary[name].map((text) => h("li", null, text)),
            ),
        ]),
    ];
}

/** Confirm the deletion of a session and list all that is deleted with it; resolves to true if done. */
export async function deleteDialog(info) {
    const { body, close, closed } = dialog("Delete this session?");
    const children = info.children ?? [];
    const forGood = h("input", { type: "checkbox", id: "for-good" });
    const told = h("div", { "aria-live": "polite" });
    const go = button(
        "Move to the trash",
        async () => {
            try {
                const done = await remove(
                    sessionPath(info.session) + query({ permanent: forGood.checked || null }),
                );
                const more = done.children_deleted
                    ? ` and ${count(done.children_deleted, "child", "children")}`
                    : "";
                toast(
                    `${info.session}${more} ${done.moved_to_trash ? "moved to the trash" : "deleted for good"}.`,
                );
                close(true);
            } catch (error) {
                fill(told, h("p", { class: "field-error", role: "alert" }, describe(error)));
            }
        },
        { class: "danger" },
    );
    forGood.addEventListener("change", () => {
        go.textContent = forGood.checked ? "Delete for good" : "Move to the trash";
    });
    const cancel = h("button", { type: "button", onclick: () => close(false) }, "Cancel");
    const status = await get("status").catch(() => null);
    const keep = status?.retention?.trash?.keep;
    fill(
        body,
        h("p", null, h("strong", { class: "mono" }, info.session), ` — ${bytes(info.size)}`),
        h("p", null, "With it go:"),
        h(
            "ul",
            { class: "plain" },
            h(
                "li",
                null,
                `${count(info.extracted_entries ?? 0, "extracted entry", "extracted entries")} (${bytes(info.extracted_bytes ?? 0)})`,
            ),
            h(
                "li",
                null,
                children.length
                    ? [
                          `${count(children.length, "child session")}: `,
                          h("span", { class: "mono" }, children.slice(0, 12).join(", ")),
                          children.length > 12 ? " …" : "",
                      ]
                    : "no child sessions",
            ),
        ),
        h(
            "p",
            { class: "note" },
            keep === "never"
                ? "The trash keeps it until you empty it."
                : `The trash keeps it for ${keep ?? "a while"}; until then it can be brought back.`,
        ),
        h("p", { class: "check" }, forGood, h("label", { for: "for-good" }, "Delete it for good, without the trash")),
        told,
        h("div", { class: "buttons" }, cancel, go),
    );
    cancel.focus();
    return closed.then(Boolean);
}
