// The export dialog: the format of the file, and the secrets that are replaced in it.

import { get, query, send, sessionPath } from "./api.js";
import { button, dialog, fill, h, problem, toast } from "./dom.js";
import { bytes, count } from "./format.js";

const FORMS = [
    ["html", "HTML: one page to read"],
    ["md", "Markdown"],
    ["jsonl", "JSON lines, as its program wrote them"],
];

/** Ask for the format of the export, and save the file. */
export async function exportDialog(session) {
    const { body, close, element } = dialog("Export");
    const form = h(
        "select",
        { id: "export-format" },
        FORMS.map(([value, label]) => h("option", { value }, label)),
    );
    const redact = h("input", { type: "checkbox", id: "export-redact", checked: true });
    const found = h("div", { "aria-live": "polite" }, h("p", { class: "note" }, "Looking for secrets …"));
    const stop = new AbortController();
    element.addEventListener("close", () => stop.abort());

    const save = async () => {
        const wanted = { format: form.value, redact: redact.checked ? "true" : "false" };
        try {
            const answer = await send("GET", `${sessionPath(session, "export")}${query(wanted)}`, {
                signal: stop.signal,
            });
            const content = await answer.blob();
            const url = URL.createObjectURL(content);
            h("a", { href: url, download: `${session.slice(session.indexOf("/") + 1)}.${form.value}` }).click();
            setTimeout(() => URL.revokeObjectURL(url), 60000);
            close(true);
            toast(`Saved: ${bytes(content.size)}.`);
        } catch (error) {
            if (error.name !== "AbortError") fill(found, problem(error));
        }
    };

    body.append(
        h(
            "div",
            { class: "export-form" },
            h("label", { for: "export-format" }, "Form", form),
            h("label", { for: "export-redact" }, redact, "Replace keys and passwords by [redacted-…]"),
            found,
            h(
                "p",
                { class: "note" },
                "The file contains all extracted values and the sub-agents. Read the file before you share it: rules do not find every secret.",
            ),
            h(
                "div",
                { class: "buttons" },
                h("button", { type: "button", onclick: () => close() }, "Cancel"),
                button("Save", save, { class: "primary", "data-focus": "save" }),
            ),
        ),
    );
    form.focus();
    try {
        const seen = await get(sessionPath(session, "export", "preview"), stop.signal);
        fill(found, secretsIn(seen));
    } catch (error) {
        if (error.name !== "AbortError") fill(found, problem(error));
    }
}

/** The secrets in a session, by their first characters. */
function secretsIn(seen) {
    const beside = seen.sessions.length > 1 ? `, with ${count(seen.sessions.length - 1, "sub-agent")}` : "";
    return [
        h("p", null, `${count(seen.entries, "line")}${beside}: ${count(seen.secrets.length, "secret")} found.`),
        seen.secrets.length > 0 &&
            h(
                "ul",
                { class: "export-secrets", tabindex: "0", "aria-label": "Secrets" },
                seen.secrets.map((one) =>
                    h("li", null, `${one.rule}: ${one.masked}, in ${count(one.count, "entry", "entries")}`),
                ),
            ),
        seen.unavailable > 0 &&
            h("p", { class: "note" }, `${count(seen.unavailable, "value")} cannot be restored any more.`),
    ];
}
