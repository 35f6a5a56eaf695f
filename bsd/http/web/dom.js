// Making and showing elements. All text is inserted as text: no function here parses markup.

/** Make an element: `on…` are listeners, `true` is an empty attribute, null and false are none. */
export function h(tag, props, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(props ?? {})) {
        if (value === null || value === undefined || value === false) continue;
        if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
        else if (name === "value") element.value = value;
        else element.setAttribute(name, value === true ? "" : String(value));
    }
    element.append(...shown(children));
    return element;
}

function shown(children) {
    return children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false);
}

/** Replace the children of an element; the focus moves to the new child with the same `data-focus`. */
export function fill(element, ...children) {
    const held = element.contains(document.activeElement) ? document.activeElement : null;
    const name = held?.closest("[data-focus]")?.dataset.focus;
    element.replaceChildren(...shown(children));
    if (held && !held.isConnected) {
        const again =
            name && [...element.querySelectorAll("[data-focus]")].find((e) => e.dataset.focus === name);
        (again || document.getElementById("main")).focus({ preventScroll: true });
    }
}

/** A button that is disabled while its action runs; an error of the action is shown. */
export function button(label, work, props = {}) {
    const element = h("button", { type: "button", ...props }, label);
    element.addEventListener("click", () => busy(element, () => work(element)));
    return element;
}

const PRESSED = "a, button, label, summary, [role=option]"; // not `select`: its release goes to its list
const LONGEST_PRESS_MS = 10000;
let press = null; // the pointer has pressed an element, and has not yet released it

document.addEventListener("pointerdown", ({ target, button: which, isPrimary }) => {
    if (press || which !== 0 || !isPrimary || !target.closest(PRESSED)) return;
    press = new Promise((resolve) => {
        const over = new AbortController();
        const end = () => {
            over.abort();
            clearTimeout(latest);
            press = null;
            setTimeout(resolve); // the click follows the release
        };
        const latest = setTimeout(end, LONGEST_PRESS_MS);
        for (const type of ["pointerup", "pointercancel", "contextmenu"])
            document.addEventListener(type, end, { signal: over.signal });
    });
});

/** Resolves when no element is pressed: a redraw between press and release would lose the click. */
export async function released() {
    await press;
}

export async function busy(element, work) {
    if (element.getAttribute("aria-disabled") === "true") return;
    element.setAttribute("aria-disabled", "true");
    element.classList.add("working");
    try {
        await work();
    } catch (error) {
        if (error.name !== "AbortError") toast(describe(error), "bad");
    } finally {
        element.removeAttribute("aria-disabled");
        element.classList.remove("working");
    }
}

/** The message of an error, and its hint. */
export function describe(error) {
    return error.hint ? `${error.message} — ${error.hint}` : error.message;
}

/** Convert a text to nodes; commands between backticks become `code` elements. */
export function withCode(text) {
    return text.split("`").map((part, at) => (at % 2 ? h("code", null, part) : part));
}

export function problem(error, again) {
    return h(
        "div",
        { class: "problem", role: "alert" },
        h("p", null, h("strong", null, withCode(error.message))),
        error.hint && h("p", null, withCode(error.hint)),
        again && button("Try again", again, { class: "quiet" }),
    );
}

/** Run actions, show their errors in `told`, and load the data again afterwards. */
export function attempting(told, load) {
    return async (work) => {
        try {
            fill(told);
            await work();
        } catch (error) {
            fill(told, problem(error));
        }
        await load();
    };
}

/** Show a short message for a few seconds. Errors stay longer. */
export function toast(text, kind = "good") {
    const place = document.getElementById("toasts");
    while (place.children.length > 3) place.firstChild.remove();
    const gone = () => element.remove();
    const element = h("div", { class: `toast ${kind}` }, h("span", null, text));
    element.append(
        h("button", { type: "button", class: "quiet", "aria-label": "Dismiss", onclick: gone }, "×"),
    );
    place.append(element);
    setTimeout(gone, kind === "bad" ? 15000 : 5000);
}

/** Return a function that focuses the element that has the focus now, even after a redraw. */
function wayBack(element) {
    const main = document.getElementById("main");
    const name = element?.dataset.focus;
    const index = element?.closest("[data-index]")?.dataset.index;
    return () => {
        if (element?.isConnected && element !== document.body) return element;
        const place = index === undefined ? main : main.querySelector(`[data-index="${index}"]`);
        return (name && place?.querySelector(`[data-focus="${name}"]`)) || main;
    };
}

let titles = 0;

/** Open a dialog; Esc closes it. Returns {element, body, close, closed}. */
export function dialog(title, { wide = false } = {}) {
    const id = `dialog-${++titles}`;
    const body = h("div", { class: "dialog-body" });
    const element = h("dialog", { class: wide ? "wide" : null, "aria-labelledby": id });
    const before = wayBack(document.activeElement);
    const close = (value) => {
        element.returned = value;
        element.close();
    };
    element.append(
        h(
            "div",
            { class: "dialog-head" },
            h("h2", { id }, title),
            h(
                "button",
                { type: "button", class: "quiet", "aria-label": "Close", onclick: () => close() },
                "×",
            ),
        ),
        body,
    );
    const closed = new Promise((resolve) => {
        element.addEventListener("close", () => {
            // The event comes a moment after closing: the user may have gone on to another element.
            const held = document.activeElement;
            const goesBack = held === document.body || element.contains(held);
            element.remove();
            if (goesBack) before().focus({ preventScroll: true });
            resolve(element.returned);
        });
    });
    element.addEventListener("click", (event) => {
        if (event.target === element) close();
    });
    document.body.append(element);
    element.showModal();
    return { element, body, close, closed };
}

/** Return whether a key belongs to a field or a dialog. A dialog that has just closed still has the focus. */
export function isTyping({ target }) {
    return Boolean(target.closest("input, textarea, select, dialog") && !target.closest("dialog:not([open])"));
}

/** Ask the user to confirm an action; resolves to true if the user confirms. */
export function ask({ title, text, yes, danger = false }) {
    const { body, close, closed } = dialog(title);
    const cancel = h("button", { type: "button", onclick: () => close(false) }, "Cancel");
    const kind = danger ? "danger" : "primary";
    const go = h("button", { type: "button", class: kind, onclick: () => close(true) }, yes);
    body.append(
        ...[text].flat().map((one) => (typeof one === "string" ? h("p", null, one) : one)),
        h("div", { class: "buttons" }, cancel, go),
    );
    (danger ? cancel : go).focus();
    return closed.then(Boolean);
}

/** Copy a text to the clipboard, also if the page is not served over HTTPS. */
export async function copy(text, what = "Copied") {
    try {
        await navigator.clipboard.writeText(text);
    } catch {
        const area = h("textarea", { class: "offscreen", "aria-hidden": "true", value: text });
        (document.querySelector("dialog[open]") ?? document.body).append(area);
        area.select();
        const done = document.execCommand("copy");
        area.remove();
        if (!done) throw new Error("the browser does not allow copying");
    }
    toast(what);
}

export function copyButton(text, label, name) {
    return button(label, () => copy(typeof text === "function" ? text() : text, `${name} copied`), {
        class: "quiet small",
        "aria-label": `Copy ${name}`,
        title: `Copy ${name}`,
    });
}

/** Offer a text as a file. */
export function download(parts, name) {
    const url = URL.createObjectURL(new Blob(parts, { type: "application/json" }));
    h("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
}
