// Finds keys and passwords in all text, page by page, shows their first characters, redacts them.

import { get, path, post, query } from "./api.js";
import { ask, button, copyButton, describe, fill, h, problem, toast } from "./dom.js";
import { bytes, count, number } from "./format.js";
import { addressOf, badge } from "./widgets.js";

const SHOWN = 20; // places of one secret
const MOST_LINES = 40; // of copies that stay
const PLACES = { extracted: "taken out", archived: "archived", copied: "in a copy or undo data" };

export async function secretsView(page) {
    const { values } = page;
    const found = new Map(); // by hash
    const unread = new Set();
    const told = h("p", { class: "note", role: "status" });
    const list = h("div", { class: "secrets", "data-focus": "secrets" });
    const outcome = h("div", { "aria-live": "polite" });
    let stop = null;

    const agents = await get("agents")
        .then((answer) => answer.agents.map((one) => one.name))
        .catch(() => []);
    const choice = h(
        "select",
        { id: "secrets-agent", "aria-label": "Agent" },
        h("option", { value: "" }, "All agents"),
        agents.filter(Boolean).map((name) => h("option", { value: name }, name)),
    );
    choice.value = values.agent ?? "";
    choice.addEventListener("change", () => page.remember(`#/secrets${query({ agent: choice.value })}`));

    const begin = () => search();
    const stopper = button("Stop", () => stop?.abort(), { "data-focus": "secrets-go" });
    const starter = button("Look for secrets", begin, { class: "primary", "data-focus": "secrets-go" });
    const buttons = h("div", { class: "buttons start" }, choice, starter);

    const merge = (answer) => {
        for (const one of answer.secrets) {
            const known = found.get(one.hash);
            if (!known) found.set(one.hash, { ...one, places: [...one.places] });
            else {
                known.count += one.count;
                known.places.push(...one.places);
            }
        }
        for (const one of answer.unread ?? []) unread.add(`${one.session}: ${one.error}`);
    };

    const sum = () => count(found.size, "secret");

    async function search() {
        stop?.abort();
        const mine = new AbortController();
        stop = mine;
        found.clear();
        unread.clear();
        fill(outcome);
        fill(list);
        fill(buttons, choice, stopper);
        stopper.focus({ preventScroll: true });
        let answer = {};
        let end = "";
        try {
            do {
                const asked = query({ agent: choice.value, cursor: answer.cursor });
                answer = await get(`secrets${asked}`, mine.signal);
                if (stop !== mine) return;
                merge(answer);
                draw();
                told.textContent = `Searched ${bytes(answer.scanned)} of ${bytes(answer.total)}: ${sum()}`;
            } while (answer.cursor && !mine.signal.aborted);
            end = answer.cursor ? "; stopped" : "";
        } catch (error) {
            end = error.name === "AbortError" ? "; stopped" : `. ${describe(error)}`;
        }
        if (stop !== mine) return;
        told.textContent = `Searched ${bytes(answer.scanned ?? 0)} of ${bytes(answer.total ?? 0)}: ${sum()}${end}`;
        if (unread.size) told.append(h("span", { class: "block" }, `Not searched: ${[...unread].join("; ")}`));
        if (!found.size && !end) fill(list, h("p", { class: "empty" }, "No secrets were found."));
        fill(buttons, choice, starter);
        if (document.activeElement === document.body) starter.focus({ preventScroll: true });
    }

    const draw = () => {
        const secrets = [...found.values()].sort((one, other) => other.count - one.count);
        const open = new Set([...list.querySelectorAll("details[open]")].map((one) => one.dataset.hash));
        fill(
            list,
            secrets.map((one) => secretCard(one, open.has(one.hash), () => redact(one))),
        );
    };

    const redact = async (one) => {
        const sessions = [...new Set(one.places.map((place) => place.session))].slice(0, 200);
        const where = `secrets/${path(one.hash)}/redact`;
        fill(outcome, h("p", { class: "note", role: "status" }, "Looking for all copies of it…"));
        let foreseen;
        try {
            foreseen = await post(`${where}?dry_run=true`, { sessions });
        } catch (error) {
            return fill(outcome, problem(error));
        }
        fill(outcome);
        const stays = copiesLeft(foreseen);
        const yes = await ask({
            title: "Replace it everywhere?",
            text: [
                `${one.masked}, found by the rule ${one.rule} in ${count(one.count, "entry", "entries")}.`,
                `Each becomes [redacted-${one.rule}]: in sessions, in values taken out of them, in the archive, and in undo data. This cannot be undone.`,
                stays.length && h("div", null, h("p", null, "These copies would stay:"), listOf(stays)),
                h(
                    "details",
                    null,
                    h("summary", null, "Places that bsd cannot search"),
                    listOf(foreseen.unreached),
                ),
                "A model provider has already received it: replace the key in any case.",
            ].filter(Boolean),
            yes: "Replace it",
            danger: true,
        });
        if (!yes) return;
        try {
            const done = await post(where, { sessions });
            if (done.complete) {
                found.delete(one.hash);
                toast("Replaced everywhere; bsd knows of no other copy.");
            }
            fill(outcome, !done.complete && remains(done));
            draw();
        } catch (error) {
            fill(outcome, problem(error));
        }
    };

    fill(
        page.main,
        h("div", { class: "title" }, h("h1", null, "Secrets")),
        h(
            "p",
            { class: "note" },
            "Keys and passwords in sessions, in values taken out of them, and in the archive, found by the rules of gitleaks. ",
            "No data leaves this machine. Of a secret, only the first characters and the length are shown.",
        ),
        buttons,
        told,
        outcome,
        list,
    );
    return { leave: () => stop?.abort() };
}

/** A secret, with a folded list of the entries that contain it. */
function secretCard(one, open, redact) {
    const more = one.count - Math.min(one.places.length, SHOWN);
    const name = `${one.rule}, ${one.masked}`;
    return h(
        "section",
        { class: "card secret", "aria-label": name },
        h(
            "div",
            { class: "secret-head" },
            badge(one.rule, "bad"),
            h("span", { class: "mono secret-text" }, one.masked),
            h("span", { class: "note mono" }, one.hash),
            h(
                "span",
                { class: "actions" },
                copyButton(one.hash, "Copy hash", `the hash of ${name}`),
                button("Replace everywhere…", redact, {
                    class: "small danger writes",
                    "aria-label": `Replace ${name} everywhere`,
                    "data-focus": `redact-${one.hash}`,
                }),
            ),
        ),
        h(
            "details",
            { open, "data-hash": one.hash },
            h("summary", null, `in ${count(one.count, "entry", "entries")}`),
            h(
                "ul",
                { class: "secret-places" },
                one.places.slice(0, SHOWN).map((place) =>
                    h(
                        "li",
                        null,
                        ["archived", "copied"].includes(place.where)
                            ? h("a", { class: "mono", href: "#/archive" }, place.session)
                            : h(
                                  "a",
                                  { class: "mono", href: `${addressOf(place.session)}${query({ at: place.index })}` },
                                  `${place.session} #${number(place.index)}`,
                              ),
                        PLACES[place.where] && badge(PLACES[place.where], "info"),
                        h("span", { class: "note" }, place.keys.join(", ") || "in no text of the entry"),
                    ),
                ),
                more > 0 && h("li", { class: "note" }, `and ${number(more)} more`),
            ),
        ),
    );
}

/** Descriptions of the copies that a redaction could not change (or, in a dry run, would not). */
function copiesLeft(done) {
    const [left, still] = done.dry_run ? ["would be left", "would still be in"] : ["left", "still in"];
    return [
        ...done.sessions.filter((one) => one.error).map((one) => `${one.session}: ${one.error}`),
        ...done.left.map((one) =>
            [`${one.session} ${one.entry}`.trim(), `${left}: ${one.why}`].filter(Boolean).join(" "),
        ),
        ...done.still_in.map((file) => `${still} ${file}`),
    ];
}

function listOf(lines) {
    const more = lines.length - MOST_LINES;
    return h(
        "ul",
        { class: "copies-left" },
        lines.slice(0, MOST_LINES).map((line) => h("li", null, line)),
        more > 0 && h("li", { class: "note" }, `and ${number(more)} more`),
    );
}

function remains(done) {
    return h(
        "div",
        { class: "problem", role: "alert" },
        h("p", null, h("strong", null, "Some copies remain.")),
        listOf(copiesLeft(done)),
    );
}
