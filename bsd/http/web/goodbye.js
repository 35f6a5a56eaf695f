// Leaving bsd: the command, since it ends the page's server, too.

import { copyButton, h } from "./dom.js";

const OPTIONS = [
    [" --dry-run", "says what it would do"],
    ["", "puts everything back and ends bsd"],
    [" --purge", "also deletes what bsd keeps, after a question"],
];

/** `command`: `bsd leave`, with the options that it needs here. */
export function leaveCard(command) {
    return h(
        "section",
        { class: "card", "aria-label": "Leave bsd" },
        h("h2", null, "Leave bsd"),
        h(
            "p",
            null,
            "Every value comes back into its session, the agents are turned off, and the service is removed. The page ends with it, so this is done in a terminal.",
        ),
        OPTIONS.map(([option, does]) =>
            h(
                "p",
                { class: "command" },
                h("code", null, command + option),
                " ",
                copyButton(command + option, "Copy", `the command that ${does}`),
                h("span", { class: "note" }, ` ${does}`),
            ),
        ),
    );
}
