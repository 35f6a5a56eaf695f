// Leaving out and pausing: a session, its project, or all of an agent. For menus of other views, too.

import { get, post } from "./api.js";
import { button, dialog, fill, h, problem, toast } from "./dom.js";

/** `agent/session`, `source:project` or `source`, and what it is part of: [name, words for it]. */
export function namesAbove(name) {
    const [agent, session] = name.split("/");
    const source = agent.split(":")[0];
    return [
        session && [name, "this session"],
        [agent, `all sessions of ${agent}`],
        agent !== source && [source, `all sessions of ${source}`],
    ].filter(Boolean);
}

/** A button that leaves a session, a project or an agent out; `done(name)` follows. */
export function excludeButton(name, done = () => {}, props = {}) {
    return button("Leave out…", () => excludeDialog(name, done), {
        class: "writes",
        "aria-label": `Leave out… ${name}`,
        "aria-haspopup": "dialog",
        ...props,
    });
}

/** A button that pauses a session, a project or an agent; `done(name)` follows. */
export function pauseButton(name, done = () => {}, props = {}) {
    return button("Pause…", () => pauseDialog(name, done), {
        class: "writes",
        "aria-label": `Pause… ${name}`,
        "aria-haspopup": "dialog",
        ...props,
    });
}

/** Leave something out: the list is read anew, as it may have changed. */
export async function exclude(pattern) {
    const { exclude: before } = await get("config");
    if (!before.includes(pattern)) await post("config", { exclude: [...before, pattern] });
}

/** Look at something again that was left out. */
export async function include(pattern) {
    const { exclude: before } = await get("config");
    await post("config", { exclude: before.filter((one) => one !== pattern) });
}

function excludeDialog(name, done) {
    chooseDialog({
        title: "Leave out",
        name,
        texts: [
            "bsd never looks at it from now on: it is not watched, listed, searched, copied or edited.",
            "What bsd has of it stays. The view “Agents” takes this back.",
        ],
        yes: "Leave out",
        act: async (chosen) => {
            await exclude(chosen);
            toast(`${chosen} is left out.`);
            await done(chosen);
        },
    });
}

const LENGTHS = [
    ["", "until I end it"],
    ["30m", "30 minutes"],
    ["2h", "2 hours"],
    ["1d", "a day"],
    ["1w", "a week"],
];

function pauseDialog(name, done) {
    const length = h(
        "select",
        { id: "pause-length" },
        LENGTHS.map(([value, text]) => h("option", { value }, text)),
    );
    chooseDialog({
        title: "Pause",
        name,
        texts: ["bsd does not edit it for a while; it is listed, searched and copied as before."],
        more: h("p", null, h("label", { for: "pause-length" }, "For "), length),
        yes: "Pause",
        act: async (chosen) => {
            await post("pauses", { name: chosen, length: length.value || null });
            toast(`${chosen} is paused.`);
            await done(chosen);
        },
    });
}

/** Ask which of the names above is meant, and do it. */
function chooseDialog({ title, name, texts, more = null, yes, act }) {
    const { body, close } = dialog(title);
    const told = h("div", { "aria-live": "polite" });
    const choices = namesAbove(name).map(([value, words], at) => {
        const id = `leaving-out-${at}`;
        const radio = h("input", { type: "radio", name: "leaving-out", id, value, checked: at === 0 });
        return { radio, element: h("p", { class: "check" }, radio, h("label", { for: id }, words)) };
    });
    const go = button(
        yes,
        async () => {
            try {
                fill(told);
                await act(choices.find(({ radio }) => radio.checked).radio.value);
                close(true);
            } catch (error) {
                fill(told, problem(error));
            }
        },
        { class: "primary" },
    );
    fill(
        body,
        h("fieldset", { class: "choices" }, h("legend", null, "What"), choices.map((one) => one.element)),
        more,
        texts.map((text) => h("p", { class: "note" }, text)),
        told,
        h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => close() }, "Cancel"), go),
    );
    choices[0].radio.focus();
}
