// Scheduled jobs, which can also be run now, and a forecast of the next retention run.

import { get, path, post } from "./api.js";
import { ask, button, fill, h, problem, toast } from "./dom.js";
import { ago, bytes, count, howLongKept } from "./format.js";
import { following, newest } from "./live.js";
import { askTonight, tonightCard } from "./tonight.js";
import { badge, facts, table, when } from "./widgets.js";

const MEANING = {
    auto_cron: "checks the sessions that have changed",
    index: "adds new text to the search index",
    memory: "lowers the confidence of old facts, deletes expired facts",
    recover: "finishes interrupted changes",
    retention: "archives or deletes content whose retention time is over",
    keep_sessions: "copies sessions that have been idle for a day",
    scan: "finds changes that file events have missed",
    sizes: "records the disk use of sessions and of bsd once a day",
    workspace_cron: "deletes unused workspaces",
};

export async function jobsView(page) {
    const jobs = h("div", null);
    const told = h("div", { "aria-live": "polite" });
    const retention = h("section", { class: "card", "aria-labelledby": "retention-title" });
    const tonight = h("div", null);
    let before = "";

    const load = newest(
        () => Promise.all([get("jobs"), page.status(true)]),
        ([answer, status]) => {
            const now = JSON.stringify([answer.jobs, status.retention, Math.floor(Date.now() / 60000)]);
            if (now === before) return;
            before = now;
            drawJobs(answer.jobs);
            drawRetention(status.retention ?? {});
            askTonight()
                .then((found) => fill(tonight, tonightCard(found)))
                .catch((error) => fill(tonight, problem(error)));
        },
    );

    const drawJobs = (list) =>
        fill(
            jobs,
            table(
                "Jobs",
                [
                    ["Job", null],
                    ["Schedule", null],
                    ["Last run", null],
                    ["Next run", null],
                    ["", null],
                ],
                list.map((job) => [
                    [
                        h("strong", null, job.name),
                        MEANING[job.name] && h("span", { class: "note block" }, MEANING[job.name]),
                    ],
                    [
                        h("code", null, job.schedule ?? "when asked"),
                        !job.enabled && [" ", badge("off", "warn")],
                    ],
                    lastRun(job),
                    job.next_run ? when(job.next_run) : "–",
                    button(job.running ? "Running…" : "Run now", () => run(job.name), {
                        class: "small writes",
                        disabled: job.running,
                        "aria-label": `Run ${job.name} now`,
                        "data-focus": `run-${job.name}`,
                    }),
                ]),
            ),
        );

    const run = async (name) => {
        try {
            const job = await post(`jobs/${path(name)}/run`);
            const result = job.last_result;
            if (result && !result.ok) toast(`${name} failed: ${result.error}`, "bad");
            else toast(`${name} has run${result ? ` in ${result.seconds.toFixed(1)} s` : ""}.`);
        } finally {
            await load();
        }
    };

    const drawRetention = (told_) =>
        fill(
            retention,
            h("h2", { id: "retention-title" }, "Retention"),
            facts([
                ["Extracted content is kept", howLongKept(told_)],
                [
                    "The next run takes",
                    told_.files === undefined ? null : `${count(told_.files, "file")}, ${bytes(told_.bytes)}`,
                ],
                ["Retention is held", told_.held],
                ["Next run", told_.next_run ? ago(told_.next_run) : "none"],
                ["More expires", told_.next_expiry ? when(told_.next_expiry) : null],
                [
                    "The trash keeps",
                    told_.trash?.keep === "never" ? "until it is emptied" : told_.trash?.keep,
                ],
            ]),
            h(
                "div",
                { class: "buttons start" },
                button("Preview now", () => retain(true), {
                    class: "writes",
                    "data-focus": "forecast",
                }),
                button("Run retention now…", () => retain(false), {
                    class: "danger writes",
                    "data-focus": "retain",
                }),
                h("a", { href: "#/settings" }, "Change how long it is kept"),
            ),
        );

    const retain = async (dryRun) => {
        try {
            if (!dryRun) {
                const plan = await post("retention/run?dry_run=true");
                const text = [
                    `It ${moves(plan) ? "moves" : "deletes"} ${taken(plan)}.`,
                    moves(plan)
                        ? "It is compressed there, and can be restored as before."
                        : "Placeholders of deleted content stay in the sessions; the content cannot be restored any more.",
                ];
                if (!(await ask({ title: "Run retention now?", text, yes: "Run retention", danger: true })))
                    return;
            }
            const done = await post(`retention/run${dryRun ? "?dry_run=true" : ""}`);
            fill(
                told,
                h("p", { class: "good" }, `${toldAs(done, dryRun)} ${taken(done)}.`),
                done.held ? h("p", null, `Nothing more: ${done.held}.`) : null,
            );
        } catch (error) {
            fill(told, problem(error));
        }
        await load();
    };

    fill(page.main, h("h1", null, "Jobs"), told, jobs, tonight, retention);
    await load();
    return following(load);
}

// Whether extracted content goes to the archive; else it is deleted.
function moves(done) {
    return typeof done.archived_bytes === "number";
}

function toldAs(done, dryRun) {
    if (dryRun) return `Now it would ${moves(done) ? "move" : "delete"}`;
    return moves(done) ? "Moved:" : "Deleted:";
}

function taken(done) {
    const more = [
        done.archive?.cleaned && `${count(done.archive.cleaned, "pack")} of the archive`,
        done.trash?.cleaned && `${count(done.trash.cleaned, "session")} of the trash`,
        done.history?.cleaned && `${count(done.history.cleaned, "file")} of the history`,
    ].filter(Boolean);
    const files = `${count(done.cleaned, "extracted file")} (${bytes(done.bytes)})`;
    const where = moves(done) ? " into the archive" : "";
    return `${files}${where}${more.length ? `; gone for good: ${more.join(", ")}` : ""}`;
}

function lastRun(job) {
    if (!job.last_run) return "not since the start";
    const result = job.last_result;
    return [
        when(job.last_run),
        " ",
        result && badge(result.ok ? "ok" : "failed", result.ok ? "good" : "bad", result.error),
        result && !result.ok && h("span", { class: "note block" }, result.error),
    ];
}
