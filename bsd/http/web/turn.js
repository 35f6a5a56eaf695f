// Turning an agent on or off: shows the changes of files first, then makes exactly these changes.

import { post } from "./api.js";
import { button, dialog, fill, h, problem } from "./dom.js";
import { count } from "./format.js";
import { badge } from "./widgets.js";

/** Show the changes, make them after a confirmation, then call `done(answer)`. */
export async function turnDialog(agent, done) {
    const turn = agent.on ? "off" : "on";
    const { body, close } = dialog(`Turn ${agent.title} ${turn}?`, { wide: true });
    const shown = h("div", { class: "scroll" }, h("p", { role: "status" }, "Looking at its files…"));
    const told = h("div", { "aria-live": "polite" });
    const choice = turn === "on" ? permissionBox() : forceBox();
    const where = `setup/${agent.agent}`;
    let seen = null;
    body.classList.add("turn");

    const wanted = () => ({ turn, [choice.name]: choice.box.checked });
    const look = async () => {
        go.disabled = true;
        try {
            const plan = await post(where, { ...wanted(), dry_run: true });
            seen = plan.seen;
            choice.element.hidden = !choice.matters(plan, agent);
            fill(shown, planned(plan, agent));
            fill(told);
            go.disabled = false;
        } catch (error) {
            fill(shown);
            fill(told, problem(error));
        }
    };
    const go = button(
        turn === "on" ? "Turn on" : "Turn off",
        async () => {
            try {
                const answer = await post(where, { ...wanted(), seen });
                const failed = failures(answer);
                if (!failed.length) close(true);
                else {
                    fill(shown);
                    fill(told, h("div", { class: "problem", role: "alert" }, failed));
                }
                await done(answer);
            } catch (error) {
                await look();
                fill(told, problem(error));
            }
        },
        { class: turn === "on" ? "primary" : "danger", disabled: true },
    );
    choice.box.addEventListener("change", look);
    fill(
        body,
        h("p", null, INTRO[turn](agent.title)),
        choice.element,
        shown,
        told,
        h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => close() }, "Cancel"), go),
    );
    await look();
}

const INTRO = {
    on: (title) =>
        `bsd manages ${title}'s sessions, and its agents get bsd's tools. bsd changes these files; their other content stays byte for byte the same, and turning the agent off removes all additions.`,
    off: (title) =>
        `bsd removes everything that it has added for ${title}. The sessions stay as they are.`,
};

function permissionBox() {
    const box = h("input", { type: "checkbox", id: "turn-permission", checked: true });
    return {
        name: "permission",
        box,
        // Show the box if it makes a difference, or if the user has unticked it.
        matters: (plan, agent) =>
            "permission" in agent.parts &&
            (!box.checked || plan.files.some((file) => file.parts.includes("permission"))),
        element: h(
            "p",
            { class: "check", hidden: true },
            box,
            h("label", { for: "turn-permission" }, "Its agents may call bsd's tools without asking each time"),
        ),
    };
}

function forceBox() {
    const box = h("input", { type: "checkbox", id: "turn-force" });
    return {
        name: "force",
        box,
        matters: (plan) => box.checked || plan.kept.length > 0 || plan.files.some((file) => file.problem),
        element: h(
            "p",
            { class: "check", hidden: true },
            box,
            h("label", { for: "turn-force" }, "Also remove additions that were changed later or written by hand"),
        ),
    };
}

function planned(plan, agent) {
    const changes = plan.files.filter((file) => file.action !== "keep" || file.problem);
    return [
        plan.stored_sessions > 0 &&
            h(
                "p",
                null,
                `bsd stores values of ${count(plan.stored_sessions, "session")} of ${agent.title}. They stay in the store and archive, and placeholders stay in the sessions: `,
                h("code", null, "bsd restore-all"),
                " puts the values back while the agent is on.",
            ),
        plan.turn === "on" &&
            plan.files.some((file) => file.parts.includes("source") && file.diff) &&
            h("p", { class: "note" }, "bsd then restarts to apply bsd.toml."),
        changes.length ? changes.map(fileShown) : h("p", null, "No file changes."),
        plan.kept.map((kept) =>
            h("p", { class: "note wrap" }, `${kept.part} in ${kept.path}: ${kept.why}; it stays.`),
        ),
    ];
}

const ACTIONS = { create: "new", change: "changed", delete: "removed", keep: "stays as it is" };

function fileShown(file) {
    return h(
        "details",
        { class: "file", open: true },
        h(
            "summary",
            null,
            h("span", { class: "mono wrap" }, file.path),
            " ",
            badge(ACTIONS[file.action] ?? file.action, file.problem ? "bad" : "info"),
        ),
        file.problem &&
            h("p", { class: "problem" }, file.problem, file.hint && [" Try: ", file.hint]),
        file.diff && diff(file.diff, file.path),
    );
}

/** A unified diff with coloured lines, without the file names, which are shown above. */
function diff(text, path) {
    const lines = text.replace(/\n$/, "").split("\n").slice(2);
    const kinds = { "+": "added", "-": "removed", "@": "place" };
    return h(
        "pre",
        { class: "diff", tabindex: "0", "aria-label": `Changes to ${path}` },
        lines.map((line) => h("span", { class: `diff-line ${kinds[line[0]] ?? ""}` }, `${line}\n`)),
    );
}

function failures(answer) {
    const problems = answer.files.filter((file) => file.problem).map((file) => [file.path, file.problem]);
    return [...Object.entries(answer.failed), ...problems].map(([path, why]) =>
        h("p", null, why.includes(path) ? why : `${path}: ${why}`),
    );
}
