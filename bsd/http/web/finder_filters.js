// The filters of a search, as `bsd search` has them: machine, agent, role, time, place, project, file.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { hostSelect } from "./hosts.js";

/** The filters and their names in the address; all have no value at first. */
export const FILTERS = ["host", "agent", "role", "since", "until", "place", "project", "file"];
// The search index contains no text of these roles, and no extracted text.
const NOT_INDEXED = ["tool", "call", "thinking", "extracted", "archived"];

const ROLES = [
    ["", "Any role"],
    ["user", "User"],
    ["assistant", "Assistant"],
    ["tool", "Tool results"],
    ["call", "Tool calls"],
    ["thinking", "Thinking"],
];
const TIMES = [
    ["", "Any time"],
    ["24h", "Last 24 hours"],
    ["7d", "Last 7 days"],
    ["30d", "Last 30 days"],
];
const PLACES = [
    ["", "Anywhere"],
    ["live", "Live"],
    ["extracted", "Extracted"],
    ["archived", "Archived"],
    ["gone", "Gone sessions"],
];
const PLACE_TITLE =
    "Live: text in sessions. Extracted: in the store. Archived: extracted, in the archive. " +
    "Gone: in sessions that their program has deleted.";
const MORE = ["since", "until", "project", "file"];
const OLD_PLACES = { live: "live", archived: "gone" }; // values of `in` in old URLs
const WAIT = 400; // milliseconds after the last key
const DAY = /^\d{4}-\d{2}-\d{2}$/;

/** The filters in a URL. */
export function filtersOf({ in: old, ...values }) {
    const named = Object.fromEntries(FILTERS.map((name) => [name, values[name] ?? ""]));
    return { ...named, place: named.place || (OLD_PLACES[old] ?? "") };
}

/** True if the index contains no text of the chosen role and place: only “Search everything” does. */
export function needsAll({ host, role, place }) {
    if (host) return false; // the catalogue has all entries
    return NOT_INDEXED.includes(role) || NOT_INDEXED.includes(place);
}

export class Filters {
    /** `choose(name, value)` is called when a filter changes. */
    constructor(values, choose, id) {
        this.values = values;
        this.choose = choose;
        this.agents = this.select("agent", "Agent", [["", "All agents"]]);
        this.time = this.select("since", "Time", TIMES);
        this.projects = h("datalist", { id: `${id}-projects` });
        this.since = this.date("since", "From");
        this.element = h(
            "div",
            { class: "finder-filters", role: "group", "aria-label": "Filters" },
            hostSelect(values.host, (host) => this.set("host", host)),
            this.agents,
            this.select("role", "Role", ROLES),
            this.time,
            this.select("place", "Where", PLACES, PLACE_TITLE),
            h(
                "details",
                { class: "finder-details", open: MORE.some((name) => this.isTyped(name)) },
                h("summary", null, "More filters"),
                h(
                    "div",
                    { class: "finder-fields" },
                    this.since,
                    this.date("until", "Until"),
                    this.text("project", "Project", "Its directory, or an agent", {
                        list: `${id}-projects`,
                        onfocus: () => this.fillProjects(),
                    }),
                    this.text("file", "File touched", "src/auth.py"),
                    this.projects,
                ),
            ),
        );
        this.fillAgents().catch(() => {});
    }

    /** True if a filter under “More filters” has a value. */
    isTyped(name) {
        const value = this.values[name];
        return Boolean(value) && !TIMES.some(([known]) => known === value);
    }

    select(name, label, choices, title = null) {
        const onchange = (event) => this.set(name, event.target.value);
        const element = h("select", { "aria-label": label, name, title, onchange });
        fill(element, options(choices, this.values[name]));
        return element;
    }

    date(name, label) {
        const value = DAY.test(this.values[name]) ? this.values[name] : "";
        const onchange = (event) => this.set(name, event.target.value);
        return h("label", null, label, h("input", { type: "date", name, value, onchange }));
    }

    text(name, label, placeholder, more = {}) {
        let typing = null;
        const now = (field) => {
            clearTimeout(typing);
            this.set(name, field.value.trim());
        };
        const props = {
            type: "text",
            name,
            placeholder,
            value: this.values[name],
            maxlength: 900,
            autocomplete: "off",
            spellcheck: "false",
            oninput: (event) => {
                clearTimeout(typing);
                typing = setTimeout(() => now(event.target), WAIT);
            },
            onchange: (event) => now(event.target),
            ...more,
        };
        return h("label", null, label, h("input", props));
    }

    set(name, value) {
        this.choose(name, value);
        if (name !== "since") return;
        // The list of times and the date field set the same filter.
        fill(this.time, options(TIMES, value));
        this.since.querySelector("input").value = DAY.test(value) ? value : "";
    }

    async fillAgents() {
        const { agents } = await get("agents");
        const names = new Set([...agents.map(({ name }) => name), this.values.agent].filter(Boolean));
        const choices = [["", "All agents"], ...[...names].map((name) => [name, name])];
        fill(this.agents, options(choices, this.values.agent));
    }

    /** Load the names of projects when the field is first used. */
    async fillProjects() {
        if (this.asked) return;
        this.asked = true;
        const { agents } = await get("overview").catch(() => ({ agents: [] }));
        const titles = new Set(agents.flatMap(({ projects }) => projects.map(({ title }) => title)));
        fill(this.projects, [...titles].filter(Boolean).map((value) => h("option", { value })));
    }
}

function options(choices, chosen) {
    const known = choices.some(([value]) => value === chosen) ? choices : [...choices, [chosen, chosen]];
    return known.map(([value, label]) => h("option", { value, selected: value === chosen }, label));
}
