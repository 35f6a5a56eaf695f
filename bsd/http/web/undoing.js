// Undo with a preview in words: of an operation, or of all that bsd did to sessions since a time.

import { get, post, sessionPath } from "./api.js";
import { button, dialog, fill, h, problem, toast } from "./dom.js";
import { bytes, count, number } from "./format.js";
import { badge, linkTo, table } from "./widgets.js";

/** The changes of an undo, in the server's words. */
export function consequence(effect) {
    return h(
        "ul",
        { class: "consequence" },
        effect.consequence.map((sentence) => h("li", null, sentence)),
    );
}

/**
 * Show in `place` the changes that undoing an operation would make, with a button to do it, which
 * then calls `done(answer)`.
 */
export async function offerUndo(place, session, operation, done) {
    const where = sessionPath(session, "undo");
    try {
        const { effect, undone, action } = await post(`${where}?dry_run=true`, { op: operation });
        const go = button(
            "Undo it",
            async () => {
                try {
                    await done(await post(where, { op: operation }));
                } catch (error) {
                    fill(place, problem(error));
                }
            },
            { class: "primary writes" },
        );
        fill(
            place,
            h(
                "section",
                { class: "card foreseen", "aria-label": `Undo of operation ${undone}` },
                h("h3", null, `If you undo operation ${undone} (${action})`),
                consequence(effect),
                h(
                    "div",
                    { class: "buttons" },
                    button("Leave it", () => fill(place)),
                    go,
                ),
            ),
        );
        go.focus();
    } catch (error) {
        fill(place, problem(error));
    }
}

const MOMENTS = [
    ["1h", "an hour ago"],
    ["today", "today, midnight"],
    ["yesterday", "yesterday, midnight"],
    ["3d", "three days ago"],
    ["1w", "a week ago"],
    ["", "another moment…"],
];
const momentsWith = (since) =>
    MOMENTS.some(([value]) => value === since) ? MOMENTS : [[since, since], ...MOMENTS];
const STATUS = {
    undone: ["undone", "good"],
    unchanged: ["whole already", "plain"],
    left: ["left as it is", "warn"],
    busy: ["in use", "warn"],
    failed: ["failed", "bad"],
};
const MOST_SHOWN = 200; // sessions

/** Undo extractions since a time; the dialog first shows the values that would be restored. */
export async function undoSinceDialog(done = async () => {}, { agent = "", since = "yesterday" } = {}) {
    const { body, close } = dialog("Undo what bsd did since…", { wide: true });
    const outcome = h("div", { class: "foreseen", "aria-live": "polite" });
    const moment = h(
        "select",
        { id: "undo-moment" },
        momentsWith(since).map(([value, words]) =>
            h("option", { value, selected: value === since }, words),
        ),
    );
    const other = h("input", { type: "datetime-local", "aria-label": "Moment", hidden: true });
    const agents = h("select", { id: "undo-agent" }, h("option", { value: "" }, "all agents"));
    const go = button("Undo", () => run(), { class: "primary writes", disabled: true });
    let turn = 0;

    const wish = () => {
        const since = moment.value || (other.value && new Date(other.value).toISOString());
        return since ? { since, ...(agents.value ? { agent: agents.value } : {}) } : null;
    };
    const preview = async () => {
        const mine = ++turn;
        go.disabled = true;
        go.textContent = "Undo";
        other.hidden = Boolean(moment.value);
        if (!wish()) return fill(outcome);
        fill(outcome, h("p", { class: "note", role: "status" }, "Checking what would come back…"));
        try {
            const answer = await post("undo", { ...wish(), dry_run: true });
            if (mine !== turn) return;
            fill(outcome, told(answer));
            go.disabled = !answer.undone;
            if (answer.undone)
                go.textContent = `Undo ${count(answer.operations, "operation")} in ${count(answer.undone, "session")}`;
        } catch (error) {
            if (mine === turn) fill(outcome, problem(error, preview));
        }
    };
    const run = async () => {
        try {
            const answer = await post("undo", wish());
            turn += 1;
            go.disabled = true;
            toast(
                `${count(answer.operations, "operation")} undone in ${count(answer.undone, "session")}.`,
                answer.sessions.some(({ status }) => status === "failed") ? "bad" : "good",
            );
            fill(outcome, told(answer));
            await done();
        } catch (error) {
            fill(outcome, problem(error));
        }
    };

    moment.addEventListener("change", preview);
    agents.addEventListener("change", preview);
    other.addEventListener("change", preview);
    fill(
        body,
        h(
            "p",
            null,
            "This undoes every extraction since then, and every other change that the daemon made by itself. Changes that you or an agent requested stay. Restored values stay in their session until you extract them by hand.",
        ),
        h(
            "div",
            { class: "fields" },
            h("div", { class: "field" }, h("label", { for: "undo-moment" }, "Since"), moment, other),
            h("div", { class: "field" }, h("label", { for: "undo-agent" }, "Agent"), agents),
        ),
        outcome,
        h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => close() }, "Close"), go),
    );
    moment.focus();
    await get("agents")
        .then(({ agents: known }) =>
            agents.append(
                ...known
                    .filter(({ sessions, name }) => sessions > 0 || name === agent)
                    .map(({ name }) => h("option", { value: name, selected: name === agent }, name)),
            ),
        )
        .catch(() => {}); // without the list, only “all agents” can be chosen
    await preview();
}

function told(answer) {
    const { sessions, total, undone, dry_run: isDry } = answer;
    const rows = sessions.slice(0, MOST_SHOWN).map((one) => {
        const [words, kind] = STATUS[one.status] ?? [one.status, "plain"];
        const { effect } = one;
        const grown = effect ? effect.bytes_after - effect.bytes_before : null;
        return [
            [
                linkTo(one.session, { class: "mono" }),
                one.reason && h("p", { class: "note wrap" }, one.reason, one.hint ? ` Try: ${one.hint}` : ""),
                one.doubt && h("p", { class: "note wrap" }, `${one.doubt}. They stay.`),
            ],
            badge(isDry && one.status === "undone" ? "would be undone" : words, kind),
            effect ? number(one.operations.length) : `${one.operations.length} of ${one.found}`,
            effect ? number(effect.values_back) : "",
            grown === null ? "" : bytes(grown),
            effect ? `${effect.tokens ? "~" : ""}${number(effect.tokens)}` : "",
        ];
    });
    return [
        undone
            ? consequence(total)
            : h("p", { class: "empty" }, "bsd has made no change since then that can still be undone."),
        rows.length > 0 &&
            h(
                "div",
                { class: "scroll" },
                table(
                    "Sessions that bsd changed since then",
                    [
                        ["Session", null],
                        ["", null],
                        ["Operations", "num"],
                        ["Values", "num"],
                        ["Grows by", "num"],
                        ["Tokens", "num"],
                    ],
                    rows,
                ),
            ),
        sessions.length > MOST_SHOWN &&
            h("p", { class: "note" }, `And ${number(sessions.length - MOST_SHOWN)} more.`),
    ];
}
