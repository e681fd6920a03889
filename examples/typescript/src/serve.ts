/**
 * Do the work of a job over HTTP: Filaviva's handler calls, and brings its idempotency key.
 *
 * The answer is kept with the effect, so that a call that comes again is answered the same.
 * 429 and 5xx mean "later": Filaviva tries again after a pause. 4xx means "never".
 */

import { type IncomingMessage, type ServerResponse, createServer } from "node:http";

import pg from "pg";

import { asked, setting } from "./environment.ts";
import { transact } from "./transaction.ts";

const TABLES = `
CREATE TABLE IF NOT EXISTS answers (key text PRIMARY KEY, answer jsonb);
CREATE TABLE IF NOT EXISTS receipts (number text PRIMARY KEY)`;

interface Answer {
  status: number;
  body: unknown;
}

const database = new pg.Pool({ connectionString: setting("DATABASE") });
database.on("error", (error) => console.error("database:", error.message));
await database.query(TABLES);

async function receipt(request: IncomingMessage): Promise<Answer> {
  const key = request.headers["idempotency-key"];
  if (request.method !== "POST" || typeof key !== "string") {
    return { status: 400, body: { detail: "expected POST with an Idempotency-Key" } };
  }
  const { orderId } = JSON.parse(await bodyOf(request));
  if (orderId === "") return { status: 422, body: { detail: "there is no such order" } };
  return { status: 200, body: await once(key, `R-${orderId}`) };
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

function respond(response: ServerResponse, { status, body }: Answer): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}

const server = createServer((request, response) => {
  receipt(request).then(
    (answer) => respond(response, answer),
    (error) => {
      console.error(error);
      respond(response, { status: 503, body: { detail: "try again" } });
    },
  );
});
server.listen(Number(setting("PORT")), "127.0.0.1", () => console.log("ready"));
await asked();
server.close();
await database.end();
