// The runtime settings. The server validates them; its messages are shown beside the fields.

import { forgetButton, get, post } from "./api.js";
import { button, describe, fill, h, toast } from "./dom.js";
import { clock } from "./format.js";
import { newest } from "./live.js";
import { GROUPS } from "./settings_table.js"; // made by routes/page.py

export async function settingsView(page) {
    const view = new SettingsView(page);
    await view.load();
    return view;
}

class SettingsView {
    constructor(page) {
        this.page = page;
        this.fields = new Map();
    }

    leave() {}

    onEvent(event) {
        if (event.type === "again" || event.type === "config") this.renew().catch(() => {});
    }

    async load() {
        this.config = await get("config");
        this.told = h("div", { "aria-live": "polite" });
        this.draw();
    }

    /** The settings have changed elsewhere; keep the user's unsaved input. */
    renew = newest(
        () => get("config"),
        (config) => this.take(config),
    );

    take(config) {
        if (JSON.stringify(config) === JSON.stringify(this.config)) return;
        const dirty = Object.keys(this.changes()).length > 0;
        this.config = config;
        if (dirty)
            fill(
                this.told,
                h(
                    "p",
                    { class: "banner" },
                    "The settings were changed elsewhere. Your changes are still here, but not saved.",
                ),
            );
        else for (const field of this.fields.values()) field.write(config[field.name]);
        this.drawRuns();
    }

    draw() {
        const readonly = this.page.readonly();
        const form = h("form", {
            class: "settings",
            novalidate: true,
            onsubmit: (event) => event.preventDefault(),
        });
        form.append(
            ...GROUPS.map(([title, fields]) =>
                h(
                    "fieldset",
                    { class: "card", disabled: readonly },
                    h("legend", null, title),
                    fields.map((field) => this.field(field)),
                ),
            ),
        );
        this.save = button("Save", () => this.submit(), { class: "primary writes" });
        const back = button("Discard changes", () => this.discard(), { class: "quiet writes" });
        form.append(h("div", { class: "buttons sticky" }, this.told, back, this.save));
        form.addEventListener("keydown", (event) => {
            if (event.key === "Enter" && event.target.matches("input:not([type=checkbox])"))
                this.save.click();
        });
        this.runs = h("p", { class: "note" });
        this.drawRuns();
        const compare = h("p", { class: "note" }, "To compare settings by what they save: ", h("a", { href: "#/cost" }, "Cost"), ".");
        fill(this.page.main, h("h1", null, "Settings"), this.runs, compare, form, forgetButton());
    }

    drawRuns() {
        const { last_run_at: run, last_retention_run_at: retention } = this.config;
        fill(
            this.runs,
            `Last run: ${run ? clock(run) : "none yet"}. Last retention run: ${retention ? clock(retention) : "none yet"}.`,
        );
    }

    field({ name, control: kind, choices, label, help }) {
        const id = `setting-${name}`;
        const problem = h("p", { class: "field-error", id: `${id}-problem` });
        const described = { "aria-describedby": `${id}-help ${id}-problem` };
        const made = control(kind, choices, id, described, label);
        made.write(this.config[name]);
        const tell = (text) => {
            fill(problem, text);
            for (const one of made.inputs) {
                if (text) one.setAttribute("aria-invalid", "true");
                else one.removeAttribute("aria-invalid");
            }
        };
        this.fields.set(name, { name, ...made, tell });
        const note = h("p", { class: "note", id: `${id}-help` }, help);
        const caption =
            kind === "switch"
                ? null
                : kind === "types"
                  ? h("span", { class: "label" }, label)
                  : h("label", { for: id }, label);
        return h("div", { class: "field", "data-field": name }, caption, made.element, note, problem);
    }

    /** Send only the fields that differ from the current settings. */
    changes() {
        const changed = {};
        for (const { name, read } of this.fields.values()) {
            const value = read();
            if (JSON.stringify(value) !== JSON.stringify(this.config[name])) changed[name] = value;
        }
        return changed;
    }

    discard() {
        for (const { name, write, tell } of this.fields.values()) {
            write(this.config[name]);
            tell("");
        }
        fill(this.told);
    }

    async submit() {
        const changed = this.changes();
        for (const { tell } of this.fields.values()) tell("");
        fill(this.told);
        if (!Object.keys(changed).length) {
            fill(this.told, h("span", { class: "note" }, "Nothing was changed."));
            return;
        }
        try {
            this.config = await post("config", changed);
            this.discard();
            toast("Saved; the settings are in force.");
        } catch (error) {
            this.refuse(error);
        }
    }

    refuse(error) {
        const unknown = [];
        let first = null;
        for (const { field, message } of error.errors ?? []) {
            const own = this.fields.get(field);
            if (own) {
                own.tell(message);
                first ??= own;
            } else unknown.push(message);
        }
        const text = first
            ? `Not saved: ${error.errors.length === 1 ? "a field is not valid" : `${error.errors.length} fields are not valid`}.`
            : `Not saved: ${describe(error)}`;
        fill(
            this.told,
            h(
                "p",
                { class: "field-error", role: "alert" },
                text,
                unknown.map((message) => ` ${message}`),
            ),
        );
        first?.inputs[0].focus();
    }
}

/** Return {element, inputs, read, write} for a field. */
function control(kind, choices, id, described, label) {
    if (kind === "switch") {
        const box = h("input", { type: "checkbox", id, ...described });
        return {
            element: h("div", { class: "check" }, box, h("label", { for: id }, label)),
            inputs: [box],
            read: () => box.checked,
            write: (value) => {
                box.checked = Boolean(value);
            },
        };
    }
    if (kind === "types") {
        const boxes = choices.map(([type]) =>
            h("input", { type: "checkbox", id: `${id}-${type}`, name: type, ...described }),
        );
        return {
            element: h(
                "div",
                { class: "checks", role: "group", "aria-label": label },
                boxes.map((box) => h("span", { class: "check" }, box, h("label", { for: box.id }, box.name))),
            ),
            inputs: boxes,
            read: () => boxes.filter((box) => box.checked).map((box) => box.name),
            write: (value) =>
                boxes.forEach((box) => {
                    box.checked = (value ?? []).includes(box.name);
                }),
        };
    }
    if (kind === "choice") {
        const select = h(
            "select",
            { id, ...described },
            choices.map(([value, text]) => h("option", { value }, text)),
        );
        return {
            element: select,
            inputs: [select],
            read: () => select.value,
            write: (value) => {
                select.value = value;
            },
        };
    }
    const long = kind === "lines" || kind === "json";
    const input = long
        ? h("textarea", {
              id,
              rows: kind === "json" ? 4 : 3,
              class: "code",
              spellcheck: "false",
              ...described,
          })
        : h("input", {
              id,
              type: "text",
              inputmode: kind === "number" ? "decimal" : null,
              autocomplete: "off",
              spellcheck: "false",
              ...described,
          });
    return {
        element: input,
        inputs: [input],
        read: () => READ[kind](input.value),
        write: (value) => {
            input.value = WRITE[kind](value);
        },
    };
}

// Send input that cannot be parsed unchanged: the server reports the error.
const READ = {
    text: (text) => text.trim(),
    number: (text) => (/^\s*-?\d+(\.\d+)?\s*$/.test(text) ? Number(text) : text.trim()),
    lines: (text) =>
        text
            .split("\n")
            .map((line) => line.trim())
            .filter(Boolean),
    json: (text) => {
        if (!text.trim()) return null;
        try {
            return JSON.parse(text);
        } catch {
            return text;
        }
    },
};
const WRITE = {
    text: (value) => value ?? "",
    number: (value) => String(value ?? ""),
    lines: (value) => (value ?? []).join("\n"),
    json: (value) => (value === null || value === undefined ? "" : JSON.stringify(value, null, 2)),
};
