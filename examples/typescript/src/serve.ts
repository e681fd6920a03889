/**
 * Do the work of a job over HTTP: Filaviva's handler calls, and brings its idempotency key.
 *
 * The answer is a line of JSON for each part that is done, and one with the result at the end. When
 * the caller hangs up (its job was canceled, or its worker is gone), no further part begins.
 * What is done is kept with the key: a call that comes again goes on where the last one stopped.
 * 429 and 5xx mean "later": Filaviva tries again after a pause. Other 4xx mean "never".
 */

import { type IncomingMessage, type ServerResponse, createServer } from "node:http";
import { setTimeout as pause } from "node:timers/promises";

import pg from "pg";

import { asked, setting } from "./environment.ts";
import { transact } from "./transaction.ts";

const TABLES = `
CREATE TABLE IF NOT EXISTS copies (key text, copy int, PRIMARY KEY (key, copy));
CREATE TABLE IF NOT EXISTS answers (key text PRIMARY KEY, answer jsonb);
CREATE TABLE IF NOT EXISTS receipts (number text PRIMARY KEY)`;
const PACE = Number(process.env["PACE"] ?? 50); // what a copy takes, in milliseconds

interface Order {
  key: string;
  orderId: string;
  copies: number;
}

interface Refusal {
  status: number;
  detail: string;
}

const database = new pg.Pool({ connectionString: setting("DATABASE") });
database.on("error", (error) => console.error("database:", error.message));
await database.query(TABLES);

async function read(request: IncomingMessage): Promise<Order | Refusal> {
  const key = request.headers["idempotency-key"];
  if (request.method !== "POST" || typeof key !== "string") {
    return { status: 400, detail: "expected POST with an Idempotency-Key" };
  }
  const { orderId, copies = 1 } = JSON.parse(await bodyOf(request));
  if (orderId === "") return { status: 422, detail: "there is no such order" };
  return { key, orderId, copies };
}

/** Print the copies, one after the other, and then the result: each is a line of the answer. */
async function* receipt(order: Order, stop: AbortSignal): AsyncGenerator<object> {
  const { key, orderId, copies } = order;
  const printed = await database.query("SELECT copy FROM copies WHERE key = $1", [key]);
  const done = new Set(printed.rows.map(({ copy }) => copy));
  for (let copy = 1; copy <= copies; copy++) {
    if (!done.has(copy)) await print(key, copy, stop);
    yield { done: copy, total: copies, message: `copy ${copy} of ${copies}` };
  }
  stop.throwIfAborted();
  yield { result: await once(key, `R-${orderId}`) };
}

async function print(key: string, copy: number, stop: AbortSignal): Promise<void> {
  await pause(PACE, undefined, { signal: stop });
  await database.query("INSERT INTO copies VALUES ($1, $2) ON CONFLICT DO NOTHING", [key, copy]);
}

/** Make the receipt and keep the answer in one commit; a copy of the call gets the same answer. */
async function once(key: string, number: string): Promise<unknown> {
  return transact(database, async (client) => {
    const entered = await client.query(
      "INSERT INTO answers VALUES ($1, $2) ON CONFLICT DO NOTHING",
      [key, JSON.stringify({ number })],
    );
    if (entered.rowCount) await client.query("INSERT INTO receipts VALUES ($1)", [number]);
    const known = await client.query("SELECT answer FROM answers WHERE key = $1", [key]);
    return known.rows[0].answer;
  });
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
}

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const stopping = new AbortController();
  // The caller has hung up; or all is written, and nothing is left to stop.
  response.on("close", () => stopping.abort());
  const order = await read(request);
  if ("status" in order) return refuse(response, order);
  response.writeHead(200, { "content-type": "application/x-ndjson" });
  for await (const line of receipt(order, stopping.signal)) {
    response.write(`${JSON.stringify(line)}\n`);
  }
  response.end();
}

function refuse(response: ServerResponse, { status, detail }: Refusal): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify({ detail }));
}

function failed(response: ServerResponse, error: Error): void {
  if (error.name === "AbortError") return console.error("stopped: the caller has hung up");
  console.error(error);
  // Once lines are written no status can follow: an answer without its end means "later" as well.
  if (response.headersSent) response.destroy();
  else refuse(response, { status: 503, detail: "try again" });
}

const server = createServer((request, response) => {
  answer(request, response).catch((error) => failed(response, error));
});
server.listen(Number(setting("PORT")), "127.0.0.1", () => console.log("ready"));
await asked();
server.close();
server.closeAllConnections(); // what runs now is called again, and goes on where it stopped
await database.end();
