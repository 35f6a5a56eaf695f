// What needs a person, in the words of `bsd status`: below the bar at the top, until dismissed.

import { post } from "./api.js";
import { button, h, withCode } from "./dom.js";

const SHOWN = 2; // more would push the view away; all stand on the status page

const hidden = new Set(); // where the server takes no note of it: for as long as the page is open

/** The notices of a status that are still to be shown; agents that are off stand in their view. */
export function openNotices(status) {
    const inView = location.hash.startsWith("#/agents") ? "agent" : null;
    return (status?.notices ?? []).filter(
        (one) => !one.dismissed && !hidden.has(one.id) && one.about !== inView,
    );
}

/** A banner for each of the first ones; `changed` is called when one was dismissed. */
export function noticeBanners(notices, changed) {
    const more = notices.length - SHOWN;
    return [
        notices.slice(0, SHOWN).map((notice) => banner(notice, changed)),
        more > 0 &&
            h(
                "p",
                { class: "banner notice" },
                h("a", { href: "#/status" }, `${more} more on the status page`),
            ),
    ];
}

function banner(notice, changed) {
    const dismiss = async () => {
        hidden.add(notice.id);
        await post("notices/dismiss", { id: notice.id }).catch(() => {});
        await changed();
    };
    return h(
        "div",
        { class: "banner notice", role: "status" },
        h(
            "p",
            null,
            noticeText(notice),
            notice.about === "agent" && [", or see ", h("a", { href: "#/agents" }, "Agents"), "."],
        ),
        button("×", dismiss, { class: "quiet small", "aria-label": `Dismiss: ${notice.text}` }),
    );
}

/** The sentence of a notice, and what to try. */
export function noticeText({ about, text, try: remedy }) {
    // The name of a program or a session stands as it is written.
    const named = ["agent", "parked", "copies", "source"].includes(about);
    const sentence = named ? text : text.charAt(0).toUpperCase() + text.slice(1);
    return [sentence, remedy && [". Try: ", withCode(remedy)]];
}
