// Opens session files with pi's own reader and says what pi sees in each.
// Each line of input is a JSON list of files (copies: pi rewrites files of older versions), each
// line of output the answer to one: loading pi takes longer than reading.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { SessionManager } from "@mariozechner/pi-coding-agent";

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
  return {
    header: session.getHeader(),
    lines: lines.length,
    entries,
    tree,
    leaf: session.getLeafId(),
    context: session.buildSessionContext(),
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(JSON.parse(line).map(look))}\n`);
}
