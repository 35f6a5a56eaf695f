// Requests to the daemon. The API key, if required, is kept in this tab's session storage.

import { button, dialog, h, released } from "./dom.js";

const BASE = new URL("./api/", document.baseURI);
const KEY = "bsd-api-key";

export class ApiError extends Error {
    constructor(status, told) {
        super(told?.error ?? `the server answered ${status}`);
        this.status = status;
        this.hint = told?.hint ?? "";
        this.errors = told?.errors ?? [];
    }
}

/** Encode the parts of a path; names may contain any character. */
export function path(...parts) {
    return parts.map(encodeURIComponent).join("/");
}

export const sessionPath = (session, ...more) => {
    const at = session.indexOf("/");
    return path("sessions", session.slice(0, at), session.slice(at + 1), ...more);
};

/** The name of an entry for a path: its id, or its line. */
export const entryPath = (session, row, ...more) =>
    sessionPath(session, "entries", row.id ?? `#${row.index}`, ...more);

export function query(values) {
    const wanted = Object.entries(values).filter(
        ([, value]) => value !== null && value !== undefined && value !== "",
    );
    return wanted.length ? `?${new URLSearchParams(wanted)}` : "";
}

/** Send a request, after asking for a key if needed. Throws ApiError; TypeError without connection. */
export async function send(method, where, { body, signal } = {}) {
    for (;;) {
        const key = sessionStorage.getItem(KEY);
        const headers = key ? { "X-API-Key": key } : {};
        const answer = await fetch(new URL(where, BASE), {
            method,
            headers,
            body,
            signal,
            redirect: "error",
        }).catch((error) => {
            if (error.name === "AbortError") throw error;
            throw new ApiError(0, {
                error: "bsd does not answer",
                hint: "check with `bsd status` whether it is running",
            });
        });
        if (answer.ok) return answer;
        const told = await answer.json().catch(() => null);
        const wrong = answer.status === 403 && told?.error === "Invalid API key";
        if (answer.status !== 401 && !wrong) throw new ApiError(answer.status, told);
        if (declined) throw new ApiError(401, NO_KEY);
        if (key === sessionStorage.getItem(KEY)) await askForKey(wrong ? "This key is not valid." : "");
    }
}

let hasRead = false;

/** True if a view has read data: a connection for events that opens later may have missed a change. */
export const hasReadData = () => hasRead;

async function json(method, where, body, signal) {
    const answer = await send(method, where, { body: body === undefined ? undefined : asText(body), signal });
    hasRead ||= where !== "status";
    const told = await answer.json();
    await released();
    return told;
}

const asText = (body) => (typeof body === "string" ? body : JSON.stringify(body));

export const get = (where, signal) => json("GET", where, undefined, signal);
export const post = (where, body = {}) => json("POST", where, body);
export const put = (where, body) => json("PUT", where, body);
export const remove = (where) => json("DELETE", where);

const NO_KEY = { error: "This server requires an API key", hint: "enter a key to continue" };

let asking = null;
let declined = false;

/** Ask for the key again at the next action, after the user has closed the dialog. */
export function mayAsk() {
    declined = false;
}

/** Ask the user for the key; all waiting requests share a single dialog. */
function askForKey(problem) {
    asking ??= promptForKey(problem).finally(() => {
        asking = null;
    });
    return asking;
}

async function promptForKey(problem) {
    const { element, body, close, closed } = dialog("API key");
    const field = h("input", {
        type: "password",
        name: "key",
        id: "api-key",
        autocomplete: "off",
        required: true,
        "aria-describedby": problem ? "api-key-problem" : null,
        "aria-invalid": problem ? "true" : null,
    });
    const enter = (event) => {
        event.preventDefault();
        if (!field.value) return;
        sessionStorage.setItem(KEY, field.value);
        close(true);
    };
    body.append(
        h(
            "form",
            { onsubmit: enter },
            h(
                "p",
                null,
                "This server requires one of the keys in BRAINSURGEON_API_KEYS. The key is kept until you close this tab.",
            ),
            problem && h("p", { class: "field-error", id: "api-key-problem", role: "alert" }, problem),
            h("label", { for: "api-key" }, "Key"),
            field,
            h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Enter")),
        ),
    );
    field.focus();
    element.dataset.kind = "key";
    if (await closed) return;
    declined = true;
    throw new ApiError(401, NO_KEY);
}

export function forgetKey() {
    sessionStorage.removeItem(KEY);
}

export const hasKey = () => sessionStorage.getItem(KEY) !== null;

export function forgetButton() {
    const leave = () => {
        forgetKey();
        location.reload();
    };
    return hasKey() && button("Forget the API key", leave, { class: "quiet" });
}

/**
 * Read an answer in pieces, calling `progress(read, whole)` after each. Keeps at most `most`
 * characters; `whole` in the result {text, whole} is true if no text is missing.
 */
export async function readText(where, { signal, most = Infinity, progress = () => {} } = {}) {
    const answer = await send("GET", where, { signal });
    const whole = Number(answer.headers.get("content-length")) || 0;
    const decoder = new TextDecoder();
    const reader = answer.body.getReader();
    const parts = [];
    let read = 0;
    let kept = 0;
    for (;;) {
        const { done, value } = await reader.read();
        if (done) return { text: parts.join("") + decoder.decode(), whole: true };
        read += value.length;
        const part = decoder.decode(value, { stream: true });
        parts.push(part);
        kept += part.length;
        progress(read, whole);
        if (kept > most) {
            await reader.cancel();
            return { text: parts.join("").slice(0, most), whole: false };
        }
    }
}
