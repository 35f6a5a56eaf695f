// The gateway's side of the session lock, for tests, after the table in its documentation.
//
//   node gateway.mjs hold  RULES SESSION [TIMEOUT_MS]      takes the lock, holds it until stdin ends
//   node gateway.mjs count RULES SESSION COUNTER MS        adds one under the lock, for MS ms
//
// RULES is a version: 2.12, 3.13, 5.28 or 7.35. To look like OpenClaw to others of its kind it
// wants the word `openclaw` among its arguments, at the end. Each thing it does is a line of JSON.

import fs from "node:fs";
import path from "node:path";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";

const MINUTE = 60_000;

// unusable: how old an empty or broken lock must be (ms); tooOld: a lock of this age is stale
// although its owner lives; starttime: compared and written; argv: the owner must look like us.
const VERSIONS = {
  "2.12": { unusable: 0, tooOld: 30 * MINUTE, starttime: false, argv: false, maxHold: false },
  "3.13": { unusable: 30 * MINUTE, tooOld: 30 * MINUTE, starttime: true, argv: false, maxHold: false },
  "5.28": { unusable: 5_000, tooOld: 30 * MINUTE, starttime: true, argv: true, maxHold: true },
  "7.35": { unusable: 30_000, tooOld: Infinity, starttime: true, argv: true, maxHold: true },
};

const say = (event, more = {}) => fs.writeSync(1, `${JSON.stringify({ event, ...more })}\n`);

function lives(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false; // any error, as the gateway has it
  }
}

function starttimeOf(pid) {
  try {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, "utf8");
    return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]);
  } catch {
    return null;
  }
}

function looksLikeOpenClaw(pid) {
  let argv;
  try {
    argv = fs.readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
  } catch {
    return true; // cannot be told: honoured
  }
  return argv.some((word) => word === "openclaw" || word.endsWith("/openclaw"));
}

function staleReason(lock, rules) {
  const text = fs.readFileSync(lock, "utf8");
  const age = Date.now() - fs.statSync(lock).mtimeMs;
  let words;
  try {
    words = JSON.parse(text);
  } catch {
    words = null;
  }
  if (!Number.isInteger(words?.pid) || words.pid <= 0) return age >= rules.unusable ? "unusable" : null;
  if (!lives(words.pid)) return "dead-pid";
  if (rules.starttime && Number.isInteger(words.starttime)) {
    const now = starttimeOf(words.pid);
    if (now !== null && now !== words.starttime) return "recycled-pid";
  }
  if (Date.now() - Date.parse(words.createdAt) > rules.tooOld) return "too-old";
  if (rules.argv && !looksLikeOpenClaw(words.pid)) return "not-openclaw";
  return null;
}

function tryOnce(lock, rules) {
  try {
    const descriptor = fs.openSync(lock, "wx");
    const words = { pid: process.pid, createdAt: new Date().toISOString() };
    if (rules.starttime) words.starttime = starttimeOf(process.pid);
    if (rules.maxHold) words.maxHoldMs = 5 * MINUTE;
    fs.writeFileSync(descriptor, JSON.stringify(words, null, 2));
    fs.closeSync(descriptor);
    return true;
  } catch (error) {
    if (error.code !== "EEXIST") throw error;
  }
  try {
    const reason = staleReason(lock, rules);
    if (reason !== null) {
      fs.rmSync(lock, { force: true });
      say("removed", { reason });
      return tryOnce(lock, rules);
    }
  } catch (error) {
    if (error.code !== "ENOENT") throw error; // gone while we looked
  }
  return false;
}

async function acquire(lock, rules, timeout) {
  const end = Date.now() + timeout;
  for (let attempt = 1; !tryOnce(lock, rules); attempt += 1) {
    if (Date.now() >= end) return false;
    await sleep(Math.min(1000, 50 * attempt, Math.max(0, end - Date.now())));
  }
  return true;
}

const [what, version, session, ...rest] = process.argv.slice(2);
const rules = VERSIONS[version];
const lock = path.join(fs.realpathSync(path.dirname(session)), `${path.basename(session)}.lock`);

if (what === "hold") {
  if (await acquire(lock, rules, Number(rest[0] ?? 10_000))) {
    say("acquired");
    for await (const chunk of process.stdin) void chunk;
    fs.rmSync(lock, { force: true });
    say("released");
  } else {
    say("timeout", JSON.parse(fs.readFileSync(lock, "utf8")));
  }
} else if (what === "count") {
  const [counter, duration] = rest;
  const end = Date.now() + Number(duration);
  let rounds = 0;
  while (Date.now() < end) {
    if (!(await acquire(lock, rules, 60_000))) throw new Error("no lock for a minute");
    const before = Number(fs.readFileSync(counter, "utf8"));
    await sleep(1);
    fs.writeFileSync(counter, String(before + 1));
    fs.rmSync(lock, { force: true });
    rounds += 1;
    await sleep(2);
  }
  say("counted", { rounds });
}
