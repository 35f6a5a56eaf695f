// The frame of the page: selects the view, shows notices and the state of the connection.

import { agentsView } from "./agents.js";
import { archiveView } from "./archive.js";
import { forgetButton, get, mayAsk } from "./api.js";
import { fill, h, isTyping, problem } from "./dom.js";
import { finderView, installFinder } from "./finder.js";
import { jobsView } from "./jobs.js";
import { Live } from "./live.js";
import { noticeBanners, openNotices } from "./notices.js";
import { overviewView } from "./overview.js";
import { secretsView } from "./secrets.js";
import { sessionView } from "./session.js";
import { sessionsView } from "./sessions.js";
import { settingsView } from "./settings.js";
import { statusView } from "./status.js";
import { trashView } from "./trash.js";
import { keepTrue } from "./widgets.js";

const VIEWS = {
    overview: overviewView,
    sessions: sessionsView,
    s: sessionView,
    find: finderView,
    fleet: async (page) => (await import("./fleet.js")).fleetView(page), // only where there is a catalogue
    cost: async (page) => (await import("./cost.js")).costView(page), // with its plots, behind the rest
    trash: trashView,
    archive: archiveView,
    secrets: secretsView,
    agents: agentsView,
    jobs: jobsView,
    settings: settingsView,
    status: statusView,
};
const STATES = { live: "Live", lost: "Disconnected", waiting: "Paused" };
// Views that do not need the status and do not wait for it.
const EARLY = new Set(["overview", "sessions", "s"]);
const FRESH_MS = 1000;

const main = document.getElementById("main");
const banners = document.getElementById("banners");
const shownState = document.getElementById("live");

let view = null;
let leaving = new AbortController(); // aborted when the user leaves the view that is shown or loads
let status = null;
let statusAt = -Infinity;
let statusUnderWay = null;
let remembered = "";
let missed = false; // an event arrived while a view was loading
const scrolled = new Map();

const live = new Live(
    (event) => {
        if (event.type === "config" || event.type === "again" || event.type === "state")
            loadStatus(true).catch(() => {});
        if (view) view.onEvent?.(event);
        else missed = true;
    },
    (state) => {
        shownState.dataset.state = state;
        shownState.textContent = STATES[state];
        showBanners();
    },
);

/** Return the status; a status up to a second old is reused, unless `fresh`. */
async function loadStatus(fresh = false) {
    if (status && !fresh && performance.now() - statusAt < FRESH_MS) return status;
    // An answer that is under way may be older than the change that the caller has heard of.
    if (fresh) await statusUnderWay?.catch(() => {});
    statusUnderWay ??= get("status").finally(() => {
        statusUnderWay = null;
    });
    status = await statusUnderWay;
    statusAt = performance.now();
    live.setRefresh(status.auto_refresh_ms ?? 10000);
    document.body.classList.toggle("readonly", Boolean(status.readonly));
    showBanners();
    return status;
}

function showBanners() {
    const state = shownState.dataset.state;
    const notes = [
        status?.readonly && "Read-only: this server refuses all changes.",
        status && status.enabled === false && "Extraction is switched off in the settings.",
        state === "lost" && "No connection to bsd. The page shows the last known state and tries to reconnect.",
    ];
    const text = notes.filter(Boolean);
    const notices = openNotices(status);
    const shown = JSON.stringify([text, notices]);
    if (banners.dataset.shown === shown) return;
    banners.dataset.shown = shown;
    fill(
        banners,
        text.map((note) => h("p", { class: "banner", role: "status" }, note)),
        noticeBanners(notices, () => loadStatus(true)),
    );
}

function parse(hash) {
    const [where, values] = hash.replace(/^#\/?/, "").split("?");
    const [name, ...parts] = where.split("/").map((part) => {
        try {
            return decodeURIComponent(part);
        } catch {
            return part;
        }
    });
    // Support URLs of the list from before the overview existed: `#/?agent=main`.
    const first = values ? "sessions" : "overview";
    return { name: name || first, parts, values: Object.fromEntries(new URLSearchParams(values ?? "")) };
}

async function show() {
    leaving.abort();
    leaving = new AbortController();
    const { signal } = leaving;
    mayAsk();
    const { name, parts, values } = parse(location.hash);
    if (view) {
        scrolled.set(remembered, main.scrollTop);
        if (scrolled.size > 50) scrolled.delete(scrolled.keys().next().value);
        view.leave?.();
        view = null;
    }
    for (const open of document.querySelectorAll("dialog[open]"))
        if (open.dataset.kind !== "key") open.close();
    mark(name === "s" || name === "fleet" ? "sessions" : name);
    const again = history.state?.shown === true; // reached by “back” or “forward”, not by a link
    history.replaceState({ shown: true }, "");
    remembered = location.hash;
    const page = {
        signal,
        /** Ends a view that asks for it after it was left: it must not draw over the next view. */
        get main() {
            signal.throwIfAborted();
            return main;
        },
        parts,
        values,
        status: loadStatus,
        readonly: () => Boolean(status?.readonly),
        remember: (hash) => {
            if (signal.aborted) return;
            history.replaceState(history.state, "", hash);
            remembered = location.hash;
        },
    };
    main.scrollTop = 0;
    missed = false;
    try {
        if (!VIEWS[name])
            throw Object.assign(new Error("This page does not exist"), { hint: "choose a view at the top" });
        const known = loadStatus().then(
            () => null,
            (error) => (error.status === 401 ? error : null),
        );
        const refused = EARLY.has(name) ? null : await known;
        if (signal.aborted) return;
        if (refused) throw refused;
        const opened = await VIEWS[name](page);
        const refusedLate = await known;
        if (signal.aborted || refusedLate) opened.leave?.();
        if (signal.aborted) return;
        if (refusedLate) throw refusedLate;
        view = opened;
        if (missed) view.onEvent?.({ type: "again" });
        live.retry();
        // A view reached by “back” is restored as it was; a view opened for an entry shows this entry.
        if (scrolled.has(remembered) && (again || !values.at)) main.scrollTop = scrolled.get(remembered);
    } catch (error) {
        if (!signal.aborted)
            fill(main, h("h1", null, "This view cannot be shown"), problem(error, show), forgetButton());
    }
}

function mark(name) {
    for (const link of document.querySelectorAll("nav a")) {
        const here = link.dataset.view === name;
        if (here) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
        if (!here) continue;
        document.title = `${link.textContent} · bsd`;
        link.scrollIntoView({ block: "nearest", inline: "center" }); // on a phone the bar is longer than the screen
    }
}

document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the link would change the view, which the URL names
    main.focus();
});
window.addEventListener("hashchange", () => {
    if (location.hash !== remembered) show();
});
document.addEventListener("keydown", (event) => {
    const typing = isTyping(event);
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey) return;
    const search = document.getElementById("search");
    if (search) {
        event.preventDefault();
        search.focus();
    }
});

installFinder();
setInterval(() => document.hidden || keepTrue(main), 30000);
live.start();
await show();
