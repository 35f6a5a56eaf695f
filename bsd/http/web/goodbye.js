// Leaving bsd: the command, since it ends the page's server, too.

import { copyButton, h } from "./dom.js";

const COMMANDS = [
    ["bsd leave --dry-run", "Say what would be done"],
    ["bsd leave", "Leave bsd"],
    ["bsd leave --purge", "Leave, and delete what bsd keeps, after a question"],
];

export function leaveCard() {
    return h(
        "section",
        { class: "card", "aria-label": "Leave bsd" },
        h("h2", null, "Leave bsd"),
        h(
            "p",
            null,
            "Every value comes back into its session, the agents are turned off, and the service is removed. That ends this page, too, so it is done in a terminal.",
        ),
        COMMANDS.map(([command, does]) =>
            h(
                "p",
                { class: "command" },
                h("code", null, command),
                " ",
                copyButton(command, "Copy", `the command ${command}`),
                h("span", { class: "note" }, ` ${does}.`),
            ),
        ),
    );
}
