// The archive: find, read, bring back and forget sessions that their program has deleted.

import { get, path, post, query, remove } from "./api.js";
import { ask, attempting, button, fill, h, problem, toast } from "./dom.js";
import { ago, bytes, count, number } from "./format.js";
import { exportDialog } from "./export.js";
import { following, newest } from "./live.js";
import { showBack } from "./restoring.js";
import { undoSinceDialog } from "./undoing.js";
import { badge, table, when } from "./widgets.js";

const SHOWN = 100;
const FOUND = 50;
const ENTRIES = 200;
const BEFORE = 3; // entries shown before the requested entry

export async function archiveView(page) {
    const { main } = page;
    const list = h("div", null);
    const told = h("div", { "aria-live": "polite" });
    const content = h("div", null);
    const field = h("input", {
        id: "search",
        type: "search",
        placeholder: "Words in sessions that are gone",
        "aria-label": "Words in sessions that are gone",
    });
    let most = SHOWN;
    let text = "";

    const load = newest(
        () => get(`archive${query({ limit: most })}`),
        (found) => {
            const now = JSON.stringify([found, most]);
            if (now === text) return; // unchanged: do not redraw under the pointer
            text = now;
            draw(found);
        },
    );

    const draw = ({ keep, sessions, more, copies, prompts_only: prompts = [], prompts_only_more: morePrompts = 0 }) => {
        const kept = { never: "for ever", off: "until you forget them" }[keep] ?? keep;
        const saved = copies.ratio ? `, ${copies.ratio} to 1` : "";
        fill(
            list,
            h(
                "p",
                { class: "note" },
                keep === "off"
                    ? "bsd no longer copies sessions (archive_sessions is off). "
                    : "bsd copies sessions that have been idle for a day. ",
                `${count(copies.sessions, "copy", "copies")}: ${bytes(copies.content)} in ${bytes(copies.kept)}${saved}. `,
                `Copies of deleted sessions are kept ${kept}.`,
            ),
            sessions.length
                ? table(
                      "Sessions that are gone",
                      [
                          ["Session", null],
                          ["Updated", null],
                          ["Gone", null],
                          ["Expires", null],
                          ["Size", "num"],
                          ["", null],
                      ],
                      sessions.map((one) => row(one)),
                  )
                : h("p", { class: "empty" }, "No deleted sessions: there is no session to bring back."),
            prompts.length > 0 && h("h2", null, "Prompts only"),
            prompts.length > 0 &&
                h("p", { class: "note" }, "Their program has deleted these sessions, and there is no copy of them."),
            prompts.length > 0 &&
                table(
                    "Sessions of which only the prompts are left",
                    [
                        ["Session", null],
                        ["Project", null],
                        ["Updated", null],
                        ["Prompts", "num"],
                        ["", null],
                    ],
                    prompts.map((one) => promptsRow(one)),
                ),
            more + morePrompts > 0 &&
                button(`Show more (${number(more + morePrompts)})`, () => {
                    most += SHOWN;
                    return load();
                }),
        );
    };

    const promptsRow = (one) => [
        [
            h("span", { class: "mono" }, one.session),
            " ",
            badge("prompts only", "warn", "There is no copy of it, so it cannot be brought back"),
            one.title && h("p", { class: "note" }, one.title),
        ],
        h("span", { class: "mono" }, one.project),
        when(one.updated),
        number(one.prompts),
        button("Show", () => showPrompts(one), {
            class: "small",
            "aria-label": `Show the prompts of ${one.session}`,
            "data-focus": `prompts-${one.session}`,
        }),
    ];

    const row = (one) => [
        [
            h("span", { class: "mono" }, one.id),
            one.title && h("p", { class: "note" }, one.title),
            one.put_aside && h("p", { class: "note" }, `put aside as ${one.put_aside}`),
        ],
        when(one.updated),
        one.gone_at ? when(one.gone_at) : "just now",
        one.expires_at ? when(one.expires_at) : "never",
        bytes(one.size),
        h(
            "span",
            { class: "actions" },
            button("Show", () => show(one), {
                class: "small",
                "aria-label": `Show ${one.id}`,
                "data-focus": `show-${one.id}`,
            }),
            button("Bring back", () => bringBack(one), {
                class: "small writes",
                "aria-label": `Bring back ${one.id}`,
                "data-focus": `back-${one.id}`,
            }),
            button("Export…", () => exportDialog(one.id), {
                class: "small",
                "aria-label": `Export ${one.id}`,
                "data-focus": `export-${one.id}`,
            }),
            button("Forget…", () => forget(one), {
                class: "small danger writes",
                "aria-label": `Forget ${one.id}`,
                "data-focus": `forget-${one.id}`,
            }),
        ),
    ];

    const attempt = attempting(told, load);

    /** Show a page of a session's entries; `at`: the line of the requested entry. */
    const show = (one, at = null) =>
        attempt(async () => {
            const from = Math.max(0, (at ?? 0) - BEFORE) || null;
            const where = `archive/${path(one.agent, nameOf(one))}`;
            const found = await get(where + query({ from, limit: ENTRIES }));
            const rows = found.entries.map((entry) => [
                number(entry.index),
                h("span", { class: "mono" }, entry.id ?? ""),
                h("span", { class: "kind-word" }, entry.type),
                entry.extracted_preview ?? entry.unavailable ?? entry.preview,
            ]);
            const entries = table(
                `Entries of ${one.id}`,
                [
                    ["Index", "num"],
                    ["Id", null],
                    ["Type", null],
                    ["Text", null],
                ],
                rows,
            );
            fill(
                content,
                h("h2", null, one.title ?? one.session),
                h(
                    "div",
                    { class: "buttons start above-table" },
                    button("Bring back", () => bringBack(one), {
                        class: "primary writes",
                        "data-focus": "back-shown",
                    }),
                    button("Export…", () => exportDialog(one.id), { "data-focus": "export-shown" }),
                    from && button("From the beginning", () => show(one), { "data-focus": "from-start" }),
                ),
                entries,
                found.next !== null && h("p", { class: "note" }, "Bring it back to read the rest."),
            );
            const meant = found.entries.findIndex(({ index }) => index === at);
            const line = entries.querySelectorAll("tbody tr")[meant];
            line?.classList.add("pointed");
            (line ?? content).scrollIntoView({ block: line ? "center" : "start" });
        });

    const showPrompts = (one) =>
        attempt(async () => {
            const session = one.session.slice(one.agent.length + 1);
            const found = await get(`archive/${path(one.agent, session)}${query({ limit: ENTRIES })}`);
            fill(
                content,
                h("h2", null, one.title ?? one.session),
                table(
                    `Prompts of ${one.session}`,
                    [
                        ["Time", null],
                        ["Text", null],
                    ],
                    found.prompts.map((prompt) => [when(prompt.time), prompt.text]),
                ),
                found.next !== null && h("p", { class: "note" }, "There are more: `bsd archive show` shows all."),
            );
        });

    const bringBack = async (one) => {
        try {
            fill(told);
            const done = await post(`archive/${path(one.agent, nameOf(one))}/bring-back`);
            const lost = Object.entries(done.unavailable ?? {}).map(([what, why]) => `${what}: ${why}`);
            const amount = `${count(done.files, "file")}, ${bytes(done.bytes)}`;
            showBack(told, { ...done, amount, lost: [...lost, ...(done.left_out ?? [])] });
            fill(content);
            await load();
        } catch (error) {
            fill(told, problem(error));
        }
    };

    const forget = async (one) => {
        const yes = await ask({
            title: "Forget it?",
            text: [
                `${one.id}, used ${ago(one.updated)}, and all values extracted from it.`,
                "This cannot be undone.",
            ],
            yes: "Forget it",
            danger: true,
        });
        if (!yes) return;
        await attempt(async () => {
            const done = await remove(`archive/${path(one.agent, nameOf(one))}`);
            toast(`All data of ${one.id} is deleted.`);
            if (done.kept_by.length)
                fill(told, h("p", null, `A copy remains in ${done.kept_by.join(", ")}.`));
        });
    };

    const search = () => {
        const words = field.value.trim();
        if (!words) return fill(content);
        return attempt(async () => {
            const { results, prompts = [] } = await get(`archive/search${query({ q: words, limit: FOUND })}`);
            const rows = [
                ...results.map((hit) => [
                    h("a", { class: "mono", href: `#/archive${query({ session: hit.session, at: hit.index })}` }, hit.session),
                    number(hit.index),
                    hit.snippet,
                ]),
                ...prompts.map((hit) => [
                    [h("span", { class: "mono" }, hit.session), " ", badge("prompts only", "warn")],
                    "prompt",
                    hit.snippet,
                ]),
            ];
            fill(
                content,
                rows.length
                    ? table(
                          "Search results",
                          [
                              ["Session", null],
                              ["Index", "num"],
                              ["Text", null],
                          ],
                          rows,
                      )
                    : h("p", { class: "empty" }, "No results."),
            );
        });
    };

    /** Show the session that the URL names; links from the search and the overview use this. */
    const named = async () => {
        const name = page.values.session;
        if (!name) return;
        const at = name.indexOf("/");
        const one = { id: name, session: name, agent: name.slice(0, at), title: null };
        const found = await get(`archive/${path(one.agent, nameOf(one))}${query({ limit: 1 })}`).catch((error) => {
            fill(told, problem(error));
            return null;
        });
        if (!found) return;
        const line = page.values.at === undefined ? null : Number(page.values.at);
        await (found.prompts ? showPrompts(found.session) : show(found.session, line));
    };

    const head = h(
        "div",
        { class: "title" },
        h("h1", null, "Archive"),
        button("Undo what bsd did since…", () => undoSinceDialog(load), {
            class: "writes",
            "data-focus": "undo-since",
        }),
    );
    field.addEventListener("keydown", (event) => event.key === "Enter" && search());
    fill(main, head, h("div", { class: "filters" }, field), told, list, content);
    await load();
    await named();
    if (page.values.q) {
        field.value = page.values.q;
        await search();
    }
    if (page.values.undo && !page.signal.aborted) undoSinceDialog(load, { since: page.values.undo, agent: page.values.agent });
    return following(load);
}

/** The part of the id after the agent; it distinguishes sessions with the same name. */
function nameOf(one) {
    return one.id.slice(one.agent.length + 1);
}
