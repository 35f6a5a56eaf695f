// Leaving bsd: shows the command, since it also ends the server of this page.

import { copyButton, h } from "./dom.js";

const OPTIONS = [
    [" --dry-run", "only shows the changes"],
    ["", "restores everything and ends bsd"],
    [" --purge", "also deletes the data of bsd, after a question"],
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
            "The command restores every value in its session, turns the agents off and removes the service. It also ends this page, so run it in a terminal.",
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
