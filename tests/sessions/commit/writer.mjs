// Appends to sessions in bursts, flat out, as owners do; told by lines on stdin.
//
//   node writer.mjs NAME MODE        MODE: reopen (every line), hold (300 ms of every 400)
//
// "go PATH" begins to write there, "stop" ends that and answers with the number of lines written.

import fs from "node:fs";
import process from "node:process";
import readline from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const [, , name, mode] = process.argv;
let path = null;
let number = 0;

function line() {
  const id = `${name}-${number}`;
  number += 1;
  const content = [{ type: "text", text: "y".repeat(number % 5 ? 120 : 1500) }];
  const message = { role: "toolResult", toolCallId: id, content };
  return `${JSON.stringify({ type: "message", id, parentId: null, message })}\n`;
}

async function reopening(target) {
  for (let i = 0; i < 20 && path === target; i += 1) fs.appendFileSync(target, line());
  await sleep(20 + Math.random() * 200); // without rests no plan would ever still hold
}

async function holding(target) {
  const fd = fs.openSync(target, "a");
  const end = Date.now() + 300;
  while (Date.now() < end && path === target) {
    for (let i = 0; i < 5; i += 1) fs.writeSync(fd, line());
    await sleep(20);
  }
  fs.closeSync(fd);
  await sleep(100);
}

async function work(target) {
  while (path === target) await (mode === "hold" ? holding(target) : reopening(target));
  fs.writeSync(1, `${number}\n`);
}

readline.createInterface({ input: process.stdin }).on("line", (command) => {
  if (command === "stop") {
    path = null;
  } else {
    path = command.slice("go ".length);
    work(path);
  }
}).on("close", () => process.exit(0));
