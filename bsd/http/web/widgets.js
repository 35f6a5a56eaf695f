// Small elements that several views use.

import { path } from "./api.js";
import { h } from "./dom.js";
import { ago, bytes, clock } from "./format.js";

export function badge(text, kind = "plain", title = null) {
    return h("span", { class: `badge ${kind}`, title }, text);
}

/** The paper clip is a picture, since not every machine has a font with this character. */
export function clipped(text, title) {
    return h("span", { class: "badge info", title }, h("span", { class: "clip" }, "📎"), ` ${text}`);
}

export function tile(name, value, more = null) {
    return h(
        "div",
        { class: "tile" },
        h("span", { class: "tile-name" }, name),
        h("strong", null, value),
        more && h("span", { class: "tile-more" }, more),
    );
}

/** A tile that links to the view with details. */
export function leads(where, shown) {
    const link = h("a", { class: "tile", href: where });
    link.append(...shown.childNodes);
    return link;
}

/** The bytes saved on disk, worded as in `bsd status`; “–” for an older daemon. */
export function savedTile(disk) {
    if (typeof disk?.kept !== "number") return tile("Saved", "–");
    return tile("Saved", disk.net < 0 ? "Not yet" : bytes(disk.net), savedWords(disk));
}

/** The bytes saved; if negative, how much more bsd stores than it has saved. */
export function balance(net) {
    return net < 0 ? `bsd takes ${bytes(-net)} more than it has saved so far` : bytes(net);
}

function savedWords({ saved, kept, net, net_when_packed: later }) {
    const sum = `${bytes(saved)} left the sessions, bsd keeps ${bytes(kept)}`;
    const words = net < 0 ? `${balance(net)}: ${sum}` : sum;
    return net < 0 && later > 0 ? `${words}; saves ${bytes(later)} once it is packed` : words;
}

/** A time as “5 min ago”; the page updates it while it is shown. */
export function when(iso) {
    return h("time", { datetime: iso, title: clock(iso), "data-ago": true }, ago(iso));
}

export function keepTrue(element) {
    for (const time of element.querySelectorAll("time[data-ago]")) {
        const text = ago(time.dateTime);
        if (time.textContent !== text) time.textContent = text;
    }
}

/** The URL of a session, in the view of sessions or another one. */
export const addressOf = (session, view = "s") => {
    const at = session.indexOf("/");
    return `#/${view}/${path(session.slice(0, at), session.slice(at + 1))}`;
};

export function linkTo(session, props, ...children) {
    return h("a", { href: addressOf(session), ...props }, children.length ? children : session);
}

/** Names and values, one below the other. */
export function facts(pairs) {
    return h(
        "dl",
        { class: "facts" },
        pairs
            .filter((pair) => pair && pair[1] !== null && pair[1] !== undefined && pair[1] !== "")
            .map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
    );
}

/** A table; `columns`: [title, kind]. Cells repeat their column's title for narrow screens. */
export function table(label, columns, rows) {
    return h(
        "table",
        { "aria-label": label },
        h(
            "thead",
            null,
            h(
                "tr",
                null,
                columns.map(([title, kind]) =>
                    h(
                        "th",
                        { scope: "col", class: kind },
                        title || h("span", { class: "offscreen" }, "Actions"),
                    ),
                ),
            ),
        ),
        h(
            "tbody",
            null,
            rows.map((cells) =>
                h(
                    "tr",
                    null,
                    cells.map((cell, at) =>
                        h(
                            "td",
                            { class: columns[at][1], "data-title": columns[at][0] },
                            h("div", null, cell),
                        ),
                    ),
                ),
            ),
        ),
    );
}
