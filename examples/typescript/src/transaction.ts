/** One transaction: committed when the work is done, undone when it fails. */

import type { Pool, PoolClient } from "pg";

export async function transact<T>(
  database: Pool,
  work: (client: PoolClient) => Promise<T>,
): Promise<T> {
  const client = await database.connect();
  // A connection that is lost says so here as well; without a listener it would end the process.
  let lost: Error | undefined;
  const losing = (error: Error): void => {
    lost = error;
  };
  client.on("error", losing);
  try {
    await client.query("BEGIN");
    const done = await work(client);
    await client.query("COMMIT");
    return done;
  } catch (error) {
    await client.query("ROLLBACK").catch(losing);
    throw error;
  } finally {
    client.off("error", losing);
    client.release(lost);
  }
}
