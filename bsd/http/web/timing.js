// When values leave a session whose prompt cache is warm: the words of `planning/timing_words.py`.
// The functions take answers about a session, whose members are described in the API.

import { count, number } from "./format.js";
import { leads, tile } from "./widgets.js";

const DAY_MS = 24 * 3600 * 1000;
const MANY_TOKENS = 10000; // from here on written in thousands
const CENT = 0.01;

/** The reason of a cut, for a table or between parentheses. */
export const SHORT_REASONS = {
    cold: "cold cache",
    no_cache: "no cache",
    step: "price step",
    pays: "pays",
    asked: "asked for",
};

/** Why values in context leave or wait, with all figures; null if none does. */
export function timingWords(session, now = Date.now()) {
    const { tokens_rewritten: rewritten, calls_needed: needed } = session;
    if (isCut(session)) {
        const cost = rewritten ? `; it rewrites ${amount(session)}` : "";
        const wait = waits(session, now) ? `; ${waitWords(session, now)}` : "";
        return `cut because ${reasonWords(session)}${cost}${wait}`;
    }
    if (!waits(session, now)) return null;
    const expected = session.calls_expected;
    return [
        waitWords(session, now),
        rewritten > 0 && `; a cut now rewrites ${amount(session)}`,
        known(needed) && ` and pays after ${further(needed)}`,
        known(needed) && known(expected) && `, of which about ${number(expected)} are expected`,
    ]
        .filter(Boolean)
        .join("");
}

/** The wait in short: `waits: cache warm until 14:05, 38k tokens ready`. */
export function waitWords({ cache_warm_until: until, tokens_ready: tokens }, now = Date.now()) {
    return `waits: cache warm until ${clockTime(until, now)}, ${short(tokens ?? 0)} tokens ready`;
}

/** The cost of a cut now: `a cut now rewrites 31k cached tokens (about $0.12); cold at 14:05`. */
export function costWords(answer, now = Date.now()) {
    const { cache_warm_until: until, tokens_rewritten: rewritten } = answer;
    if (!until) return "no cache is warm";
    if (!rewritten) return `cache warm until ${clockTime(until, now)}`;
    return `a cut now rewrites ${amount(answer)}; cold at ${clockTime(until, now)}`;
}

/** Why values in context left, as part of a sentence. */
export function reasonWords(answer) {
    const { cut_reason: reason, calls_needed: needed, calls_expected: expected, price_step: step } = answer;
    if (reason === "no_cache") return "no cache is in use";
    if (reason === "cold") return "the cache was cold";
    if (reason === "step")
        return `it keeps the next request below ${known(step) ? `the price step at ${short(step)}` : "a price step"}`;
    if (reason === "pays")
        return `it pays after ${known(expected) ? `${number(needed ?? 0)} of about ${number(expected)} further calls` : further(needed ?? 0)}`;
    return "it was asked for";
}

/** Whether values of a session wait, perhaps after a cut that left them; `now` in milliseconds. */
export const waits = ({ cache_warm_until: until }, now = Date.now()) => Date.parse(until ?? "") > now;

/** Whether values in context left a session. */
export const isCut = ({ cut_reason: reason }) => Boolean(reason) && reason !== "warm";

/** The cuts of a daemon by reason: `3 cuts since the start (2 cold cache, 1 pays)`; empty: none. */
export function cutsText(cuts = {}) {
    const parts = Object.entries(SHORT_REASONS)
        .filter(([reason]) => cuts[reason])
        .map(([reason, text]) => `${number(cuts[reason])} ${text}`);
    const all = Object.values(cuts).reduce((sum, one) => sum + one, 0);
    return parts.length ? `${count(all, "cut")} since the start (${parts.join(", ")})` : "";
}

/** The cost of cuts in several sessions; `unpriced` of them are not in the sum. */
export function costText(dollars, unpriced) {
    if (!known(dollars)) return "prices unknown";
    return `${money(dollars)}${unpriced ? `, without ${number(unpriced)} of unknown price` : ""}`;
}

/** A tile about the sessions that wait, from the status; null if none waits. */
export function cacheTile({ sessions, tokens_ready: tokens, next_cold: cold } = {}) {
    if (!sessions) return null;
    const words = `${short(tokens)} tokens ready${cold ? `; next cold at ${clockTime(cold)}` : ""}`;
    return leads("#/status", tile("Waiting for a cold cache", count(sessions, "session"), words));
}

/** A time: `14:05`, or with its date if it is a day or more ahead. */
export function clockTime(iso, now = Date.now()) {
    const moment = new Date(iso);
    const two = (value) => String(value).padStart(2, "0");
    const time = `${two(moment.getHours())}:${two(moment.getMinutes())}`;
    if (moment.getTime() - now < DAY_MS) return time;
    return `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())} ${time}`;
}

/** A number of tokens: `9,999`, `38k`. */
export function short(tokens) {
    return tokens >= MANY_TOKENS ? `${number(Math.round(tokens / 1000))}k` : number(tokens);
}

function amount({ tokens_rewritten: tokens, cost_now: dollars }) {
    return `${short(tokens)} cached tokens (${known(dollars) ? money(dollars) : "price unknown"})`;
}

function money(dollars) {
    if (dollars < CENT) return "less than $0.01";
    return `about $${dollars.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

const further = (calls) => count(calls, "further call");
const known = (value) => typeof value === "number";
