/** The inbox of this service, in its own database: each event has its effect once. */

import { createHash } from "node:crypto";

import type { ClientBase } from "pg";

import { type Event, meaning } from "./event.ts";

export const TABLE = `
CREATE TABLE IF NOT EXISTS inbox (
    consumer    text NOT NULL,
    event       bytea NOT NULL,  -- the hash of tenant, source and id, which may be long
    meaning     bytea NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    duplicates  integer NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, event)
)`;

// A second copy waits here for the first one's commit, and then counts as its duplicate.
const ENTER = `
INSERT INTO inbox AS known (consumer, event, meaning) VALUES ($1, $2, $3)
ON CONFLICT (consumer, event) DO UPDATE SET duplicates = known.duplicates + 1
RETURNING meaning, duplicates`;

export type Entered = "first" | "duplicate" | "id_reused";

/** Enter an event, in the caller's transaction; only what comes first may have an effect. */
export async function enter(client: ClientBase, consumer: string, event: Event): Promise<Entered> {
  const mine = meaning(event);
  const found = await client.query(ENTER, [consumer, name(event), mine]);
  const [known] = found.rows as { meaning: Buffer; duplicates: number }[];
  if (known === undefined || !known.meaning.equals(mine)) return "id_reused";
  return known.duplicates === 0 ? "first" : "duplicate";
}

function name(event: Event): Buffer {
  const named = JSON.stringify([event.tenant, event.source, event.id]);
  return createHash("sha256").update(named).digest();
}
