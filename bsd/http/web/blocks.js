// Groups entries into the blocks that are shown: prompts, answers, thinking, calls with their results,
// and runs of bookkeeping entries, each folded into a single line.

// Entries of all other types are internal records of a program.
const SHOWN = new Set([
    ...["user", "assistant", "thinking", "tool_call", "tool_result"],
    ...["compaction", "compacted", "branch_summary", "summary", "custom_message"],
]);
const LINE = 21; // pixels
const LETTERS = 95; // of a line, about

// What programs add in the user's name.
const ADDED =
    /^\s*(?:<(?:environment_context|user_instructions|permissions|system-reminder|local-command-\w+|task-notification|INSTRUCTIONS)\b|# AGENTS\.md instructions|Caveat: The messages below)/;

export const KINDS = {
    user: "You",
    assistant: "Assistant",
    thinking: "Thinking",
    tool_result: "Result",
    compaction: "The conversation was compacted",
    compacted: "The conversation was compacted",
    branch_summary: "Summary of a branch",
    summary: "Summary",
    custom_message: "Message of an extension",
};

/** The values of an entry that can be shown; from an older server, only the entry's beginning. */
export function textsOf(row) {
    if (row.texts) return row.texts;
    const text = row.extracted ? (row.extracted_preview ?? row.preview) : row.preview;
    const calls = (row.calls ?? []).map(({ id, name }) => ({
        ...{ path: null, type: "tool_call", text: "", length: 0, name, call: id, extracted: row.extracted },
    }));
    if (!text || (calls.length && !row.extracted && row.type !== "assistant")) return calls;
    const own = { path: null, type: row.type, text, extracted: row.extracted, unavailable: row.unavailable };
    return [{ ...own, length: text.length < 200 ? text.length : null }, ...calls];
}

/** Group successive entries into blocks; with `plain`, each entry becomes a block of its own. */
export function blocksOf(rows, { plain = false } = {}) {
    const called = new Map(); // call id: its block
    const blocks = [];
    let notes = [];
    const flush = () => {
        if (notes.length) blocks.push(notesBlock(notes));
        notes = [];
    };
    for (const row of rows) {
        const texts = textsOf(row);
        if (!plain && isNote(row, texts)) {
            notes.push(row);
            continue;
        }
        const call = !plain && row.result_of ? called.get(row.result_of) : null;
        if (call && !call.result) {
            call.result = row;
            call.estimate += LINE * 2;
            continue;
        }
        const own = ofRow(row, texts);
        // Calls and thinking do not split a run of bookkeeping: its line comes after them.
        if (!own.every(({ kind }) => kind === "call" || kind === "thinking")) flush();
        for (const block of own) {
            if (block.kind === "call" && block.call) called.set(block.call, block);
            blocks.push(block);
        }
    }
    flush();
    return blocks;
}

function isNote(row, texts) {
    if (!SHOWN.has(row.type)) return true;
    const isBlank = texts.every(({ text, media, unavailable, later }) => !text?.trim() && !media && !unavailable && !later);
    // An entry without known values may contain anything.
    if (!texts.length && (row.type === "user" || row.type === "assistant")) return false;
    return isBlank && !(row.calls ?? []).length && !row.extracted && row.type !== "compaction";
}

function notesBlock(rows) {
    const [{ index }] = rows;
    return { key: `n${index}`, kind: "notes", first: index, last: index, rows, row: rows[0], estimate: 34 };
}

/** The blocks of a single entry: its text, each run of thinking, each call. */
function ofRow(row, texts) {
    const blocks = [];
    const calls = [...(row.calls ?? [])];
    for (const text of texts) {
        if (text.display && texts.some((one) => !one.display)) continue; // a copy for the program's own page
        const kind = text.type === "tool_call" ? "call" : text.type === "thinking" ? "thinking" : "said";
        const last = blocks.at(-1);
        if (kind === "call") {
            const named = calls.findIndex(({ id }) => id === text.call);
            const [call] = calls.splice(Math.max(0, named), 1);
            const same = !call && last?.kind === "call"; // another value of the same call
            if (same) last.texts.push(text);
            else blocks.push(blockOf(row, kind, [text], call ?? { id: text.call, name: text.name }));
        } else if (last?.kind === kind) last.texts.push(text);
        else blocks.push(blockOf(row, kind, [text]));
    }
    for (const call of calls) blocks.push(blockOf(row, "call", [], call));
    if (!blocks.length) blocks.push(blockOf(row, "said", []));
    const away = blocks.find((block) => block.texts.some(({ extracted }) => extracted));
    blocks.forEach((block, at) => {
        block.key = `e${row.index}.${at}`;
        block.tellsState = block === (away ?? blocks[0]); // only one of several blocks
        block.isAdded = row.type === "user" && ADDED.test(block.texts[0]?.text ?? "");
        block.estimate = block.isAdded ? 44 : estimated(block);
    });
    return blocks;
}

function blockOf(row, kind, texts, call = null) {
    const { index } = row;
    const said = kind === "said" && row.type === "tool_result" ? "result" : kind;
    return { kind: said, first: index, last: index, row, texts, result: null, call: call?.id, tool: call?.name };
}

function estimated({ kind, texts }) {
    if (kind === "thinking" || kind === "call" || kind === "result") return 84;
    const letters = texts.reduce((sum, { text }) => sum + (text?.length ?? 0), 0);
    return 60 + LINE * Math.ceil(letters / LETTERS);
}

/** True if two blocks show the same content, so that the drawn element can be reused. */
export function isSame(one, other) {
    return signature(one) === signature(other);
}

function signature(block) {
    const state = (row) => row && [row.index, row.hash, row.unavailable];
    if (block.kind === "notes") return JSON.stringify(block.rows.map(state));
    return JSON.stringify([state(block.row), state(block.result), block.tellsState, block.step]);
}
