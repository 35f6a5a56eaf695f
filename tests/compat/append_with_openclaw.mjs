// Appends messages to a session with OpenClaw's own code, and prints the milliseconds of each.
//
// Arguments: the directory of the package, the session's id, the number of messages, the characters
// of each. The environment names the state directory.

import { pathToFileURL } from "node:url";
import { join } from "node:path";

const [home, sessionId, count, size] = process.argv.slice(2);
const module = join(home, "dist/plugin-sdk/session-transcript-runtime.js");
const { appendSessionTranscriptMessageByIdentity: append } = await import(pathToFileURL(module));
const text = "words of a message ".repeat(Math.ceil(Number(size) / 19)).slice(0, Number(size));
const identity = { agentId: "main", sessionKey: `agent:main:${sessionId}`, sessionId };
const times = [];
for (let number = 0; number < Number(count); number += 1) {
  const began = performance.now();
  const message = { role: "user", content: `${number} ${text}`, timestamp: Date.now() };
  await append({ ...identity, message });
  times.push(performance.now() - began);
}
process.stdout.write(JSON.stringify(times), () => process.exit(0));
