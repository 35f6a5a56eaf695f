// Opens session files with pi's own reader and says what pi sees in each.
// Each line of input is a JSON list of files (copies: pi rewrites files of older versions), each
// line of output the answer to one: loading pi takes longer than reading.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { SessionManager, buildSessionContext } from "@mariozechner/pi-coding-agent";

function look(file) {
  const lines = readFileSync(file, "utf8").split("\n").filter((line) => line.trim());
  const session = SessionManager.open(file);
  const entries = session.getEntries();
  const tree = [];
  const waiting = [...session.getTree()];
  while (waiting.length) {
    const { entry, children } = waiting.pop();
    tree.push([entry.id, children.map((child) => child.entry.id)]);
    waiting.push(...children);
  }
  // What pi sends is made of the entries' own messages, but for summaries and extensions' texts.
  const written = new Map(entries.map(({ id, message }) => [message, id]));
  const byId = new Map(entries.map((entry) => [entry.id, entry]));
  const branches = tree
    .filter(([, children]) => !children.length)
    .map(([leaf]) => ({
      path: session.getBranch(leaf).map((entry) => entry.id),
      sends: buildSessionContext(entries, leaf, byId).messages.map((one) => written.get(one) ?? null),
    }));
  return {
    header: session.getHeader(),
    lines: lines.length,
    entries,
    tree,
    branches,
    leaf: session.getLeafId(),
    context: session.buildSessionContext(),
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(JSON.parse(line).map(look))}\n`);
}
