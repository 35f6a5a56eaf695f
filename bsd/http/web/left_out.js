// The lists of excluded and paused names, with buttons that end each.

import { post } from "./api.js";
import { button, describe, fill, h, toast } from "./dom.js";
import { exclude, include } from "./leaving_out.js";
import { badge, when } from "./widgets.js";

/**
 * A card with both lists, and a field for a directory; `again` loads the view again. Returns
 * {element, draw}: `draw(status, config)` updates the lists and keeps the text in the field.
 */
export function leftOut(readonly, again) {
    const list = h("div");
    const element = h(
        "section",
        { class: "card", "aria-label": "Left out and paused" },
        h("h2", null, "Left out and paused"),
        list,
        !readonly && directoryForm(again),
    );
    const draw = (status, config) => {
        const patterns = status.exclude ?? [];
        const pauses = status.pauses ?? [];
        fill(
            list,
            patterns.length || pauses.length
                ? h(
                      "ul",
                      { class: "projects" },
                      patterns.map((pattern) => excluded(pattern, config, readonly, again)),
                      pauses.map((pause) => paused(pause, readonly, again)),
                  )
                : h("p", { class: "note" }, "No agent, project or session is left out or paused."),
        );
    };
    return { element, draw };
}

function excluded(pattern, config, readonly, again) {
    const fixed = !(config.exclude ?? []).includes(pattern);
    const back = async () => {
        await include(pattern);
        toast(`${pattern} is no longer left out.`);
        await again();
    };
    return row(
        pattern,
        badge("left out", "warn"),
        fixed ? "set in bsd.toml" : null,
        !fixed && !readonly && button("Look at it again", back, rowProps(`Look at ${pattern} again`)),
    );
}

function paused({ name, until }, readonly, again) {
    const end = async () => {
        await post("pauses/end", { name });
        toast(`The pause of ${name} has ended.`);
        await again();
    };
    return row(
        name,
        badge("paused", "info"),
        until ? ["ends ", when(until)] : "until you end it",
        !readonly && button("End the pause", end, rowProps(`End the pause of ${name}`)),
    );
}

const rowProps = (label) => ({ class: "small", "aria-label": label });

function row(name, kind, note, action) {
    return h(
        "li",
        null,
        h(
            "span",
            { class: "project-name" },
            h("span", { class: "mono wrap" }, name),
            h("span", { class: "note" }, kind, " ", note),
        ),
        h("span", { class: "project-buttons" }, action),
    );
}

function directoryForm(again) {
    const told = h("p", { class: "field-error", id: "leave-out-problem" });
    const field = h("input", {
        id: "leave-out",
        type: "text",
        placeholder: "~/secret",
        autocomplete: "off",
        spellcheck: "false",
        "aria-describedby": "leave-out-problem leave-out-help",
    });
    const go = button(
        "Leave out",
        async () => {
            const pattern = field.value.trim();
            if (!pattern) return;
            try {
                fill(told);
                await exclude(pattern);
                field.value = "";
                toast(`${pattern} is left out.`);
                await again();
            } catch (error) {
                fill(told, error.errors?.length ? error.errors.map((one) => one.message).join("; ") : describe(error));
            }
        },
        { class: "writes" },
    );
    field.addEventListener("keydown", (event) => {
        if (event.key === "Enter") go.click();
    });
    return h(
        "div",
        { class: "field leave-out" },
        h("label", { for: "leave-out" }, "A directory, an agent or AGENT/SESSION"),
        h("div", { class: "leave-out-line" }, field, go),
        told,
        h(
            "p",
            { class: "note", id: "leave-out-help" },
            "A directory stands for all projects in it and below it. Claude Code and pi store sessions by project; for Codex and OpenClaw, enter the agent.",
        ),
    );
}
