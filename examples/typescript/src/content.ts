/** Fetch data that was too large for a message. */

import { createHash } from "node:crypto";

const KEPT = /^\/v1\/contents\/sha256-([0-9a-f]{64})$/;

/** Gives the JSON text that a `dataref` leads to; undefined if there is none. */
export type Content = (dataref: string) => Promise<string | undefined>;

/** Look where Filaviva keeps it, with an API key of the tenant; nothing is fetched from elsewhere. */
export function keptBy(api: string, key: string): Content {
  return async (dataref) => {
    const [, expected] = KEPT.exec(dataref) ?? [];
    if (expected === undefined) return undefined;
    const answer = await fetch(api + dataref, { headers: { authorization: `Bearer ${key}` } });
    if (answer.status === 404) return undefined;
    if (!answer.ok) throw new Error(`${dataref}: found status ${answer.status}, expected 200`);
    const found = await answer.text();
    return createHash("sha256").update(found).digest("hex") === expected ? found : undefined;
  };
}
