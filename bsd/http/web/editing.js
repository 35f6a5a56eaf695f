// Editing an entry: its JSON is checked during typing, and saved only if the entry has not changed.

import { put, readText } from "./api.js";
import { button, describe, dialog, fill, h, problem, toast } from "./dom.js";
import { bytes, pretty } from "./format.js";
import { entryText } from "./content.js";

const LARGEST = 1000000; // bytes; the server accepts 1 MiB

export async function editDialog(view, row) {
    const { body, close, element } = dialog(`Edit entry #${row.index}`, { wide: true });
    if (row.size > LARGEST) {
        fill(
            body,
            h("p", null, `This entry has ${bytes(row.size)}; this is too large to edit on this page.`),
            h("p", null, `Try: bsd edit ${view.session} ${row.id ?? row.index}`),
        );
        return;
    }
    const where = view.pathOf(row);
    const area = h("textarea", {
        class: "code",
        rows: 20,
        spellcheck: "false",
        "aria-label": "Entry as JSON",
        "aria-describedby": "edit-problem",
    });
    const told = h("div", { id: "edit-problem", class: "field-error", "aria-live": "polite" });
    const save = button("Save", () => submit(), { class: "primary" });
    let seen = null;

    const check = () => {
        let text = "";
        try {
            const value = JSON.parse(area.value);
            if (typeof value !== "object" || value === null || Array.isArray(value))
                text = "An entry is a JSON object {…}.";
        } catch (error) {
            text = error.message;
        }
        fill(told, text);
        if (text) area.setAttribute("aria-invalid", "true");
        else area.removeAttribute("aria-invalid");
        return !text;
    };

    const load = async () => {
        fill(body, h("p", { class: "note", role: "status" }, "Loading…"));
        try {
            const { text } = await readText(where);
            seen = JSON.parse(text).seen;
            area.value = pretty(entryText(text));
            fill(
                body,
                h(
                    "p",
                    { class: "note" },
                    "Only your changes are written; all other bytes of the line stay the same. Ids, types and extracted values cannot be changed.",
                ),
                area,
                told,
                h(
                    "div",
                    { class: "buttons" },
                    h("button", { type: "button", onclick: () => close() }, "Cancel"),
                    save,
                ),
            );
            fill(told);
            area.removeAttribute("aria-invalid");
            area.focus();
            area.setSelectionRange(0, 0);
            area.scrollTop = 0;
        } catch (error) {
            fill(body, problem(error, load));
        }
    };

    const submit = async () => {
        if (!check()) {
            area.focus();
            return;
        }
        try {
            // Send the text itself, not the parsed JSON, so that numbers keep all their digits.
            const done = await put(where, `{"seen":${JSON.stringify(seen)},"entry":${area.value}}`);
            toast(
                done.edited === false || !done.changed?.length
                    ? "Nothing was changed."
                    : `Changed ${done.changed.join(", ")}.`,
            );
            close(true);
            await view.refreshAll();
        } catch (error) {
            area.setAttribute("aria-invalid", "true");
            fill(
                told,
                h("p", null, describe(error)),
                error.errors?.length > 1 &&
                    h(
                        "ul",
                        null,
                        error.errors.map((one) => h("li", null, `${one.field}: ${one.message}`)),
                    ),
                error.status === 409 && button("Load the entry as it is now", load, { class: "small" }),
            );
            area.focus();
        }
    };

    area.addEventListener("input", check);
    element.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save.click();
    });
    await load();
}
