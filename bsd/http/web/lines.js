// The loaded entries of a session: stretches of lines, with gaps between them.

const AT_ONCE = 100; // entries per request
const MOST_HELD = 3000; // entries in memory; the farthest from the viewport are dropped
const LAST_LINE = 10 ** 9;

/**
 * `ask({from|before, limit})` returns a page of entries, {entries, next, previous}. A stretch
 * is {start, end, rows}; `rows` of a gap is null. Together they cover lines 0 to `total`.
 */
export class Lines {
    constructor(ask) {
        this.ask = ask;
        this.stretches = [];
        this.total = 0;
        this.seen = 0; // the line after the last entry that was ever loaded
        this.isWhole = false; // true if the end of the file is known
    }

    /** True if a line is loaded or lies beyond the end. */
    has(line) {
        const stretch = this.stretches.find(({ start, end }) => start <= line && line < end);
        return stretch ? stretch.rows !== null : this.isWhole;
    }

    row(line) {
        for (const { start, end, rows } of this.stretches)
            if (rows && start <= line && line < end) return rows.find((row) => row.index === line) ?? null;
        return null;
    }

    get loaded() {
        return this.stretches.flatMap(({ rows }) => rows ?? []);
    }

    async loadFrom(line) {
        const answer = await this.ask({ from: line, limit: AT_ONCE });
        const { entries, next } = answer;
        if (!entries.length && next === null && line > this.total) return this.loadEnd();
        this.#take(line, next ?? Math.max(line, this.total, 1 + (entries.at(-1)?.index ?? -1)), entries);
        if (next === null) this.isWhole = true;
        return answer;
    }

    async loadBefore(line) {
        const answer = await this.ask({ before: line, limit: AT_ONCE });
        const { entries, previous } = answer;
        const end = 1 + (entries.at(-1)?.index ?? -1);
        this.#take(previous ?? 0, line < LAST_LINE ? line : Math.max(end, this.total), entries);
        return answer;
    }

    /**
     * Load the end of the session again; `arrived` are the new entries. If the file has become
     * shorter, all loaded entries are dropped.
     */
    async loadEnd() {
        const answer = await this.ask({ before: LAST_LINE, limit: AT_ONCE });
        const { entries, previous } = answer;
        const known = this.isWhole ? this.total : -1;
        const end = 1 + (entries.at(-1)?.index ?? -1);
        const shorter = end < this.seen;
        if (shorter) {
            this.stretches = [];
            this.total = 0;
            this.seen = 0;
        }
        this.#take(previous ?? 0, Math.max(end, this.total), entries);
        this.isWhole = true;
        return { ...answer, arrived: shorter || known < 0 ? [] : entries.filter((row) => row.index >= known) };
    }

    /** Load the part of a gap around this line. */
    async fill(line) {
        const gap = this.stretches.find(({ start, end, rows }) => !rows && start <= line && line < end);
        if (!gap) return null;
        const { start, end } = gap;
        if (line - start < AT_ONCE) return this.loadFrom(start);
        if (end - line <= AT_ONCE) return this.loadBefore(end);
        return this.loadFrom(Math.max(start, line - AT_ONCE / 4));
    }

    /** Load the entries between two lines again. */
    async renew(first, last) {
        let line = first;
        while (line <= last) {
            const { entries, next } = await this.ask({ from: line, limit: AT_ONCE });
            const end = next ?? this.total;
            this.#take(line, Math.max(line, end), entries);
            if (next === null) return;
            line = next;
        }
    }

    /** Drop all lines except `first` to `last` and those from `end` on; they load again on demand. */
    keepOnly(first, last, end = Infinity) {
        const kept = this.stretches
            .filter(({ rows }) => rows)
            .flatMap((one) =>
                end <= last + 1
                    ? cut(one, Math.min(first, end), Infinity)
                    : [...cut(one, first, last + 1), ...cut(one, end, Infinity)],
            );
        this.stretches = [];
        for (const one of [...kept, { start: this.total, end: this.total }]) {
            const known = this.stretches.at(-1)?.end ?? 0;
            if (known < one.start) this.stretches.push({ start: known, end: one.start, rows: null });
            if (one.rows) this.stretches.push(one);
        }
        this.#join();
    }

    /** Drop the entries farthest from the viewport, if more than MOST_HELD are loaded. */
    spare(first, last) {
        if (this.loaded.length > MOST_HELD) this.keepOnly(first - MOST_HELD / 4, last + MOST_HELD / 4);
    }

    #take(start, end, entries) {
        const rows = entries.filter(({ index }) => start <= index && index < end);
        const before = this.stretches.flatMap((one) => cut(one, 0, start));
        const after = this.stretches.flatMap((one) => cut(one, end, Infinity));
        const known = before.at(-1)?.end ?? 0;
        if (known < start) before.push({ start: known, end: start, rows: null });
        if (start < end) before.push({ start, end, rows });
        this.stretches = [...before, ...after];
        this.total = Math.max(this.total, end);
        this.seen = Math.max(this.seen, 1 + (rows.at(-1)?.index ?? -1));
        this.#join();
    }

    #join() {
        const joined = [];
        for (const one of this.stretches) {
            const last = joined.at(-1);
            if (last && (last.rows === null) === (one.rows === null) && last.end === one.start)
                joined[joined.length - 1] = {
                    start: last.start,
                    end: one.end,
                    rows: last.rows && [...last.rows, ...one.rows],
                };
            else joined.push(one);
        }
        this.stretches = joined;
    }
}

function cut(stretch, from, to) {
    const { start, end, rows } = stretch;
    if (start >= from && end <= to) return [stretch];
    const first = Math.max(start, from);
    const last = Math.min(end, to);
    if (first >= last) return [];
    return [
        { start: first, end: last, rows: rows && rows.filter(({ index }) => first <= index && index < last) },
    ];
}
