// The trash: deleted sessions, which can be restored until they expire.

import { get, path, post, remove, sessionPath } from "./api.js";
import { ask, attempting, button, fill, h, toast } from "./dom.js";
import { ago, bytes, count, number } from "./format.js";
import { following, newest } from "./live.js";
import { showBack } from "./restoring.js";
import { table, when } from "./widgets.js";

const SHOWN = 200;

export async function trashView(page) {
    const { main } = page;
    const list = h("div", null);
    const told = h("div", { "aria-live": "polite" });
    const head = h("div", { class: "title" });
    let most = SHOWN;
    let text = "";

    const load = newest(
        () => get("trash"),
        ({ keep, sessions }) => {
            const now = JSON.stringify([keep, sessions, most]);
            if (now === text) return; // unchanged: do not redraw under the pointer
            text = now;
            draw(keep, [...sessions].reverse());
        },
    );

    const draw = (keep, items) => {
        const size = items.reduce((sum, item) => sum + item.size + item.extracted_bytes, 0);
        fill(
            head,
            h("h1", null, "Trash"),
            items.length > 0 &&
                button("Empty the trash…", () => empty(items, size), {
                    class: "danger writes",
                    "data-focus": "empty",
                }),
        );
        if (!items.length) {
            fill(
                list,
                h(
                    "p",
                    { class: "empty" },
                    "The trash is empty. ",
                    keep === "never"
                        ? "Deleted sessions stay here until you empty the trash."
                        : `Deleted sessions stay here for ${keep}.`,
                ),
            );
            return;
        }
        const names = new Map(items.map((item) => [item.id, item.session]));
        const rows = items.slice(0, most).map((item) => [
            [
                h("span", { class: "mono" }, item.session),
                item.parent &&
                    h("span", { class: "note" }, ` child of ${names.get(item.parent) ?? item.parent}`),
                item.problem && h("p", { class: "note" }, item.problem),
            ],
            when(item.trashed_at),
            item.expires_at ? when(item.expires_at) : "never",
            number(item.entry_count),
            bytes(item.size + item.extracted_bytes),
            h(
                "span",
                { class: "actions" },
                !item.problem &&
                    button("Restore", () => restore(item), {
                        class: "small writes",
                        "aria-label": `Restore ${item.session}`,
                        "data-focus": `restore-${item.id}`,
                    }),
                button("Delete forever…", () => forget(item), {
                    class: "small danger writes",
                    "aria-label": `Delete ${item.session} forever`,
                    "data-focus": `delete-${item.id}`,
                }),
            ),
        ]);
        fill(
            list,
            h(
                "p",
                { class: "note" },
                `${count(items.length, "session")}, ${bytes(size)}; ${keep === "never" ? "kept until you empty the trash" : `kept for ${keep}`}.`,
            ),
            table(
                "Deleted sessions",
                [
                    ["Session", null],
                    ["Deleted", null],
                    ["Expires", null],
                    ["Entries", "num"],
                    ["Size", "num"],
                    ["", null],
                ],
                rows,
            ),
            items.length > most &&
                button("Show more", () => {
                    most += SHOWN;
                    return load();
                }),
        );
    };

    const attempt = attempting(told, load);

    const restore = (item) =>
        attempt(async () => {
            const done = await post(`trash/${path(item.id)}/restore`);
            const lost = Object.entries(done.not_restored ?? {}).map(([id, why]) => `${id}: ${why}`);
            const info = await get(`${sessionPath(done.session)}?limit=0`).catch(() => null);
            showBack(told, { ...done, resume: info?.resume, lost });
        });

    const forget = async (item) => {
        const yes = await ask({
            title: "Delete forever?",
            text: [
                `${item.session}, deleted ${ago(item.trashed_at)}, with ${count(item.extracted_files, "extracted file")}.`,
                "This cannot be undone.",
            ],
            yes: "Delete forever",
            danger: true,
        });
        if (yes)
            await attempt(() =>
                remove(`trash/${path(item.id)}`).then(() => toast(`${item.session} is deleted.`)),
            );
    };

    const empty = async (items, size) => {
        const yes = await ask({
            title: "Empty the trash?",
            text: `${count(items.length, "session")}, ${bytes(size)}. This cannot be undone.`,
            yes: "Empty it",
            danger: true,
        });
        if (!yes) return;
        await attempt(async () => {
            const done = await remove("trash");
            toast(`${count(done.cleaned, "session")} deleted, ${bytes(done.bytes)} freed.`);
            const failed = Object.entries(done.failed ?? {});
            if (failed.length) throw new Error(failed.map(([id, why]) => `${id}: ${why}`).join("; "));
        });
    };

    fill(main, head, told, list);
    await load();
    return following(load);
}
