// Putting extracted values back.

import { post } from "./api.js";
import { button, toast } from "./dom.js";

/** The buttons of an entry whose values were taken out. */
export function restoreButtons(view, row) {
    return [
        button("Restore", () => restore(view, row), {
            class: "small writes",
            "data-focus": `restore-${row.index}`,
            disabled: Boolean(row.unavailable),
        }),
    ];
}

async function restore(view, row) {
    const done = await post(view.pathOf(row, "restore"));
    const lost = Object.entries(done.unavailable ?? {});
    if (lost.length) toast(lost.map(([key, why]) => `${key}: ${why}`).join("; "), "bad");
    else toast(`Restored ${done.keys_restored.join(", ")}.${done.suggestion ? ` ${done.suggestion}` : ""}`);
    await view.refreshAll();
}
