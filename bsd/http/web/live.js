// The stream of the daemon's events. EventSource cannot send the API key, so fetch reads the stream.

import { ApiError, hasReadData, send } from "./api.js";

const SILENCE_MS = 60000; // the server sends at least a comment every 20 s
const HIDDEN_MS = 30000; // a page hidden for this time closes its connection
const LONGEST_PAUSE_MS = 30000;

/** Listens while the page is visible. Calls `told(event)`, and `changed(state)`: live, waiting, lost. */
export class Live {
    constructor(told, changed) {
        this.told = told;
        this.changed = changed;
        this.connected = false;
        this.failures = 0;
        this.refreshMs = 10000;
        this.timer = null;
        document.addEventListener("visibilitychange", () => this.seen());
    }

    start() {
        this.started = true;
        this.listen();
        this.tick();
    }

    /** Reconnect at once, since another request has just succeeded. */
    retry() {
        if (!this.started || this.connected || document.hidden) return;
        this.failures = 0;
        this.listen();
    }

    /** The interval in which views poll without events; 0: never. */
    setRefresh(ms) {
        this.refreshMs = ms;
    }

    tick() {
        const pause = this.refreshMs > 0 ? Math.max(1000, this.refreshMs) : 60000;
        setTimeout(() => {
            if (!document.hidden && this.refreshMs > 0)
                this.told({ type: "tick", connected: this.connected });
            this.tick();
        }, pause);
    }

    seen() {
        clearTimeout(this.hiding);
        if (document.hidden) this.hiding = setTimeout(() => this.stop?.abort(), HIDDEN_MS);
        else this.retry();
    }

    async listen() {
        clearTimeout(this.timer);
        this.stop?.abort();
        const stop = (this.stop = new AbortController());
        try {
            const answer = await send("GET", "events", { signal: stop.signal });
            this.become(true);
            await this.read(answer.body.getReader(), stop);
        } catch {
            // Any error: try again; until then, views keep their data.
        }
        if (stop !== this.stop) return;
        this.become(false);
        if (!document.hidden) this.timer = setTimeout(() => this.listen(), this.pause());
    }

    pause() {
        this.failures += 1;
        return Math.min(LONGEST_PAUSE_MS, 500 * 2 ** this.failures);
    }

    become(connected) {
        // Usually views read their data after the first connection: then they need no reload.
        const again = connected && !this.connected && hasReadData();
        this.connected = connected;
        this.changed(connected ? "live" : document.hidden ? "waiting" : "lost");
        if (connected) this.failures = 0;
        if (again) this.told({ type: "again" }); // events may have been missed
    }

    async read(reader, stop) {
        const decoder = new TextDecoder();
        let rest = "";
        let silence = null;
        try {
            for (;;) {
                clearTimeout(silence);
                silence = setTimeout(() => stop.abort(), SILENCE_MS);
                const { done, value } = await reader.read();
                if (done) return;
                const parts = (rest + decoder.decode(value, { stream: true })).split("\n\n");
                rest = parts.pop();
                for (const part of parts) this.take(part);
            }
        } finally {
            clearTimeout(silence);
        }
    }

    take(part) {
        const data = part.split("\n").filter((line) => line.startsWith("data: "));
        if (data.length) this.told(JSON.parse(data.map((line) => line.slice(6)).join("\n")));
    }
}

/**
 * Throttle a repeated action: at most a tenth of the time, and at most once a second, but no pause is
 * longer than 30 s. Calls in between are merged into one.
 */
export function paced(work, least = 1000) {
    let timer = null;
    let running = false;
    let wanted = false;
    let last = 0;
    let pause = 0;
    const run = async () => {
        timer = null;
        running = true;
        wanted = false;
        const began = performance.now();
        try {
            await work();
        } catch (error) {
            // Keep the view as it is; the top bar shows the state of the connection.
            if (!(error instanceof ApiError)) throw error;
        } finally {
            last = performance.now();
            pause = Math.min(LONGEST_PAUSE_MS, Math.max(least, 9 * (last - began)));
            running = false;
            if (wanted) again();
        }
    };
    const again = () => {
        wanted = true;
        if (running || timer !== null) return;
        timer = setTimeout(run, Math.max(50, last + pause - performance.now()));
    };
    again.cancel = () => {
        clearTimeout(timer);
        timer = null;
        wanted = false;
    };
    return again;
}

/** Load data by `ask`, and draw it by `draw`, unless a later call has begun: its data is newer. */
export function newest(ask, draw) {
    let calls = 0;
    return async () => {
        const call = ++calls;
        const data = await ask();
        if (call === calls) draw(data);
    };
}

/** The event handlers of a view that loads its data again, throttled, at each event. */
export function following(load) {
    const refresh = paced(() => load().catch(() => {}), 2000);
    return {
        onEvent: (event) => event.type !== "session" && refresh(),
        leave: () => refresh.cancel(),
    };
}
