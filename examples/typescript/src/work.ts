/** Book each invoice once, and note how jobs end: a worker on Filaviva's events, in TypeScript. */

import pg from "pg";

import { keptBy } from "./content.ts";
import { Consumer, type Handler } from "./consumer.ts";
import { asked, contracts, setting } from "./environment.ts";
import { write } from "./exact.ts";
import { TABLE } from "./inbox.ts";

const BOOKED = "CREATE TABLE IF NOT EXISTS booked (invoice text PRIMARY KEY)";
const ENDED = "CREATE TABLE IF NOT EXISTS ended (job uuid, told text, data jsonb)";

const book: Handler = async (event, client) => {
  const data = event.data as Map<string, string>;
  if (event.type === "invoice.issued") {
    await client.query("INSERT INTO booked VALUES ($1)", [data.get("number")]);
  } else {
    const values = [data.get("jobId"), event.type, write(event.data)];
    await client.query("INSERT INTO ended VALUES ($1, $2, $3)", values);
  }
};

const database = new pg.Pool({ connectionString: setting("DATABASE") });
database.on("error", (error) => console.error("database:", error.message));
for (const table of [TABLE, BOOKED, ENDED]) await database.query(table);
const consumer = new Consumer(
  {
    broker: setting("BROKER"),
    database,
    contracts: contracts(),
    queue: "books.invoices",
    bindings: [
      ["filaviva.events", "invoice.issued.v1"],
      ["filaviva.lifecycle", "job.*.v1"],
    ],
    content: keptBy(setting("API"), setting("KEY")),
    pauses: [100, 500],
  },
  book,
);
await consumer.start();
console.log("ready");
await asked();
await consumer.stop();
await database.end();
