/** Publish one event: node dist/src/produce.js invoice.issued.v1 invoice-17-issued '{"number": "17"}' */

import { contracts, setting } from "./environment.ts";
import { Publisher } from "./publisher.ts";

const [kind, id, data] = process.argv.slice(2);
const [, type, version] = /^(.+)\.v([0-9]+)$/.exec(kind ?? "") ?? [];
if (type === undefined || id === undefined || data === undefined) {
  console.error("usage: produce TYPE.vVERSION ID DATA");
  process.exit(2);
}
const publisher = await Publisher.open(setting("BROKER"), contracts());
try {
  await publisher.publish({ type, version: Number(version), id, source: "/billing", data });
  console.log(`the broker keeps ${id}`);
} finally {
  await publisher.close();
}
