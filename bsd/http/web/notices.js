// Notices that need the user's attention, worded as in `bsd status`, shown until dismissed.

import { post } from "./api.js";
import { button, h, withCode } from "./dom.js";

const SHOWN = 2; // more would hide the view; the status page lists all

const hidden = new Set(); // dismissed while the server is read-only: only until the page is closed

/** The notices of a status that are not dismissed; the view “Agents” shows agents that are off. */
export function openNotices(status) {
    const inView = location.hash.startsWith("#/agents") ? "agent" : null;
    return (status?.notices ?? []).filter(
        (one) => !one.dismissed && !hidden.has(one.id) && one.about !== inView,
    );
}

/** Banners for the first notices; `changed` is called after a notice was dismissed. */
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

/** The text of a notice, and its hint. */
export function noticeText({ about, text, try: remedy }) {
    // Do not capitalise the name of a program or a session.
    const named = ["agent", "parked", "copies", "source"].includes(about);
    const sentence = named ? text : text.charAt(0).toUpperCase() + text.slice(1);
    return [sentence, remedy && [". Try: ", withCode(remedy)]];
}
