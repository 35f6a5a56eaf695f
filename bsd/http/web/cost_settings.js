// The settings that the view of cost compares: their form, their names, and taking over some.

import { post } from "./api.js";
import { ask, h, toast } from "./dom.js";
import { count } from "./format.js";
import { GROUPS } from "./settings_table.js"; // made by routes/page.py
import { table } from "./widgets.js";

const FIELDS = Object.fromEntries(GROUPS.flatMap(([, fields]) => fields.map((field) => [field.name, field])));
const MOMENTS = FIELDS.when.choices;
/** Settings of which the form takes several values; all combinations are compared. */
export const COMPARED = ["keep_recent", "min_value_length", "when"];
const TAKEN = [...COMPARED, "trigger_types"];

/** The values of one setting in words, as on the view of settings. */
const worded = (name, value) => {
    if (name === "when") return MOMENTS.find(([moment]) => moment === value)?.[1] ?? value;
    return [value].flat().join(", ");
};

export const columnNames = COMPARED.map((name) => FIELDS[name].label);

/** The cells of a table that name a combination of settings. */
export const settingCells = (setting) => COMPARED.map((name) => worded(name, setting[name]));

/** A combination of settings in words. */
export const settingWords = ({ keep_recent: keep, min_value_length: length, when }) =>
    `${count(keep, "message")} to keep, from ${count(length, "character")}, ${worded("when", when)}`;

/** Whether these settings are those in force. */
export const isInForce = (setting, config) => TAKEN.every((name) => same(setting[name], config[name]));

const same = (one, other) => one === undefined || JSON.stringify([one].flat().sort()) === JSON.stringify([other].flat().sort());

/** A form with the values to compare; `values` are texts such as "3,10". `ending` has the button. */
export class SettingsForm {
    constructor(values, config, run, ending) {
        this.inputs = Object.fromEntries(
            ["keep_recent", "min_value_length"].map((name) => [name, textField(name, values[name] ?? config[name])]),
        );
        const chosen = (values.when ?? config.when).split(",");
        this.moments = MOMENTS.map(([moment]) =>
            h("input", { type: "checkbox", id: `cost-when-${moment}`, name: moment, checked: chosen.includes(moment) }),
        );
        this.element = h(
            "form",
            {
                class: "card cost-form",
                "aria-label": "Settings to compare",
                onsubmit: (event) => {
                    event.preventDefault();
                    run();
                },
            },
            Object.entries(this.inputs).map(([name, input]) => [
                h("div", { class: "field" }, h("label", { for: input.id }, FIELDS[name].label), input),
            ]),
            h(
                "div",
                { class: "field" },
                h("span", { class: "label" }, FIELDS.when.label),
                h(
                    "div",
                    { class: "checks", role: "group", "aria-label": FIELDS.when.label },
                    this.moments.map((box, at) =>
                        h("span", { class: "check" }, box, h("label", { for: box.id }, MOMENTS[at][1])),
                    ),
                ),
            ),
            h("div", { class: "cost-go" }, ending),
        );
    }

    /** The values to compare, as texts of a query. */
    read() {
        const texts = Object.entries(this.inputs).map(([name, input]) => [name, input.value.replace(/\s+/g, "")]);
        const chosen = this.moments.filter((box) => box.checked).map((box) => box.name);
        return { ...Object.fromEntries(texts), when: chosen.join(",") };
    }
}

function textField(name, value) {
    return h("input", {
        id: `cost-${name}`,
        type: "text",
        inputmode: "numeric",
        autocomplete: "off",
        value: String(value).replaceAll(",", ", "),
    });
}

/** Ask with the difference, and make these settings those in force. Returns the new ones, or null. */
export async function takeOver(setting, config) {
    const changed = TAKEN.filter((name) => !same(setting[name], config[name]));
    const rows = changed.map((name) => [
        FIELDS[name].label,
        worded(name, config[name]),
        worded(name, setting[name]),
    ]);
    const text = [
        "The daemon extracts by these settings from now on:",
        table("Difference", [["Setting", null], ["Now", null], ["Then", null]], rows),
        config.trigger_rules ? "The setting “Rules” replaces messages to keep and smallest value as long as it is set." : [],
    ];
    if (!(await ask({ title: "Take over these settings?", text, yes: "Take over" }))) return null;
    const saved = await post("config", Object.fromEntries(changed.map((name) => [name, setting[name]])));
    toast("Saved; the settings are in force.");
    return saved;
}
