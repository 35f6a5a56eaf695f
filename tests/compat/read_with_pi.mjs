// Opens session files with pi's own reader and prints, as JSON, what pi sees in each.
// Usage: node read_with_pi.mjs FILE...  (copies: pi rewrites files of older versions)
import { readFileSync } from "node:fs";
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

process.stdout.write(JSON.stringify(process.argv.slice(2).map(look)));
