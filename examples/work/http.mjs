// A worker over HTTP with Node alone, and promises: a pattern for other languages. TASKLEDGER_URL is the address of
// taskledger serve, TASKLEDGER_TOKEN a token with the role worker. work is yours; after a lost process or a lost answer
// it may run again.

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

const kind = "coupon.print", slots = 4, session = randomBytes(16).toString("hex");
const { TASKLEDGER_URL: url, TASKLEDGER_TOKEN: token } = process.env;
const held = new Set(); // tasks at work, each with over, an AbortController that is aborted when the attempt is over
const unsent = new Map(); // outcomes by offer, until they are recorded, or 30 s after their refusal
const stopping = new AbortController(), ended = new AbortController();
let beatEvery = 10, beats, refusal, wake = () => {};

/** Thrown by work: a call and its body, such as new Outcome("fail", { error: "no address", permanent: true }). */
class Outcome { constructor(verb, body) { Object.assign(this, { verb, body }); } }
/** The server refuses a call. */
class Refused extends Error {
  constructor(status, problem) {
    super(`${status} ${problem.detail}`);
    Object.assign(this, { status, code: problem.code });
  }
}

async function work(task, over) {
  console.log("a coupon for", task.args.to);
  return { printed: true };
}

/** Repeats a call until the server has answered it. Throws Refused, or the reason of over. */
async function call(verb, body, over) {
  for (let pause = 100; ; pause = Math.min(5000, 2 * pause)) {
    let wait = pause * (0.5 + Math.random());
    try {
      const answer = await fetch(`${url}/v1/work${verb}`, {
        method: "POST", body: JSON.stringify(body), signal: AbortSignal.any([over, AbortSignal.timeout(60_000)]),
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      });
      const value = await answer.json();
      if (answer.ok) return value;
      if (answer.status < 500 && ![408, 429].includes(answer.status)) throw new Refused(answer.status, value);
      wait = 1000 * answer.headers.get("retry-after") || wait;
    } catch (error) {
      if (error instanceof Refused || over.aborted) throw error;
    }
    await sleep(wait, undefined, { signal: over });
  }
}

const attemptOf = ({ kind, biz_id, attempt, fence }) => ({ kind, biz_id, attempt, fence });
const offerOf = (task) => JSON.stringify([task.kind, task.biz_id, task.version, task.available_at]);

async function end(verb, task, body) {
  for (;;) {
    const { fence } = task;
    try {
      await call(`:${verb}`, { ...attemptOf(task), ...body }, task.over.signal);
      return unsent.delete(offerOf(task));
    } catch (error) {
      if (error.code !== "attempt_ended") throw error;
      if (task.fence === fence) return; // otherwise it was given again meanwhile, under this fence
    }
  }
}

async function attempt(task) {
  const over = task.over.signal;
  const outcome = unsent.get(offerOf(task)) ?? await work(task, over).then(
    (result) => ({ verb: "finish", body: { result } }),
    (e) => (e instanceof Outcome ? e : { verb: "fail", body: { error: e.message || "failed", error_type: e.name } }),
  );
  if (over.aborted) return;
  unsent.set(offerOf(task), outcome); // if the offer comes again, it is not begun again
  const { verb, body } = outcome;
  await end(verb, task, body).catch((error) => {
    if (![400, 413].includes(error.status)) throw error;
    return end("fail", task, { error: `${verb} was refused: ${error.message}` });
  });
}

function begin(task) {
  const same = [...held].find((t) => offerOf(t) === offerOf(task) && !t.over.signal.aborted);
  if (same) return Object.assign(same, task); // it is at work, and was given again, perhaps under a newer fence
  task.over = new AbortController();
  held.add(task);
  attempt(task).catch((error) => {
    if (!task.over.signal.aborted) stop(error);
  }).finally(() => {
    held.delete(task);
    wake();
    if (unsent.has(offerOf(task))) setTimeout(() => unsent.delete(offerOf(task)), 30_000).unref();
  });
}

async function beat() {
  for (;;) {
    await sleep(1000 * beatEvery, undefined, { signal: ended.signal });
    if (held.size === 0) continue;
    const answer = await call(":heartbeat", { session, holds: [...held].map((t) => t.fence) }, ended.signal);
    for (const task of held) if (answer.ended.some((e) => e.fence === task.fence)) task.over.abort();
  }
}

async function ask() {
  for (let received = ""; !stopping.signal.aborted; ) {
    const limit = slots - held.size;
    if (limit === 0) {
      await new Promise((resolve) => { wake = resolve; });
      continue;
    }
    const body = { worker: hostname(), session, kinds: [kind], limit, received };
    const answer = await call("", body, stopping.signal);
    received = answer.batch;
    beatEvery = answer.heartbeat_every;
    beats ??= beat().catch((error) => ended.signal.aborted || stop(error));
    for (const { detail } of answer.unknown_kinds ?? []) console.warn(detail);
    answer.tasks.forEach(begin);
  }
}

function stop(error) {
  if (error) refusal ??= error;
  stopping.abort();
  wake();
}

for (const name of ["SIGTERM", "SIGINT"]) process.once(name, () => stop()); // a second one ends the process
await ask().catch((error) => stopping.signal.aborted || stop(error));
for (let n = 0; held.size > 0 && n < 100; n++) await sleep(100);
const holds = [...held].map((task) => task.fence);
for (const { over } of held) over.abort();
for (const body of holds.length > 0 ? [{ session, holds }, { session }] : [{ session }]) {
  await call(":release", body, AbortSignal.timeout(5000)).catch(stop);
}
ended.abort();
if (refusal) console.error(refusal.message);
process.exit(refusal ? 1 : 0);
