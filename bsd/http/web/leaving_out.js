// Buttons and dialogs that exclude or pause a session, a project or an agent; used by several views.

import { get, post } from "./api.js";
import { button, dialog, fill, h, problem, toast } from "./dom.js";

/** A name (`agent/session`, `source:project`, `source`) and the names above it, as [name, words]. */
export function namesAbove(name) {
    const [agent, session] = name.split("/");
    const source = agent.split(":")[0];
    return [
        session && [name, "this session"],
        [agent, `all sessions of ${agent}`],
        agent !== source && [source, `all sessions of ${source}`],
    ].filter(Boolean);
}

/** A button that excludes a session, a project or an agent, then calls `done(name)`. */
export function excludeButton(name, done = () => {}, props = {}) {
    return button("Leave out…", () => excludeDialog(name, done), {
        class: "writes",
        "aria-label": `Leave out… ${name}`,
        "aria-haspopup": "dialog",
        ...props,
    });
}

/** A button that pauses a session, a project or an agent, then calls `done(name)`. */
export function pauseButton(name, done = () => {}, props = {}) {
    return button("Pause…", () => pauseDialog(name, done), {
        class: "writes",
        "aria-label": `Pause… ${name}`,
        "aria-haspopup": "dialog",
        ...props,
    });
}

/** Exclude a name. The list is loaded first, since it may have changed. */
export async function exclude(pattern) {
    const { exclude: before } = await get("config");
    if (!before.includes(pattern)) await post("config", { exclude: [...before, pattern] });
}

/** Stop excluding a name. */
export async function include(pattern) {
    const { exclude: before } = await get("config");
    await post("config", { exclude: before.filter((one) => one !== pattern) });
}

function excludeDialog(name, done) {
    chooseDialog({
        title: "Leave out",
        name,
        texts: [
            "bsd ignores it from now on: it is not watched, listed, searched, copied or edited.",
            "Data that bsd has already stored stays. You can undo this in the view “Agents”.",
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

/** Ask the user which of the names is meant, then call `act` with it. */
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
