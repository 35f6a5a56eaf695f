// What happens, as it happens. EventSource cannot send the API key, so the stream is read here.

import { ApiError, send } from "./api.js";

const SILENCE_MS = 60000; // the server says something every 20 s
const HIDDEN_MS = 30000; // a page that nobody sees gives its connection back
const LONGEST_PAUSE_MS = 30000;

/** Listens for as long as the page is seen. `told(event)`; `changed(state)`: live, waiting, lost. */
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

    /** Do not wait for the next attempt: something else has just worked. */
    retry() {
        if (!this.started || this.connected || document.hidden) return;
        this.failures = 0;
        this.listen();
    }

    /** Without events, views look for themselves at this pace; 0: never. */
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
            // Whatever it was, it is tried again; views show what they have meanwhile.
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
        // Before the first connection nothing was loaded: views ask after it has been asked for.
        const again = connected && !this.connected && this.wasConnected;
        this.wasConnected ||= connected;
        this.connected = connected;
        this.changed(connected ? "live" : document.hidden ? "waiting" : "lost");
        if (again) {
            this.failures = 0;
            this.told({ type: "again" }); // much may have happened unseen
        }
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
 * Let something be done again and again, but take no more than a tenth of the server's time, and
 * at most once a second. Calls in between count as one.
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
            // What is shown stays as it was; the state of the connection is told at the top.
            if (!(error instanceof ApiError)) throw error;
        } finally {
            last = performance.now();
            pause = Math.max(least, 9 * (last - began));
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

/** How a view of things that have their own events takes part: it loads them again, at a pace. */
export function following(load) {
    const refresh = paced(() => load().catch(() => {}), 2000);
    return {
        onEvent: (event) => event.type !== "session" && refresh(),
        leave: () => refresh.cancel(),
    };
}
