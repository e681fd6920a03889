/** Submit a job and wait for it: node dist/src/submit.js receipt.send order-17 '{"orderId": "17"}' */

import { setting } from "./environment.ts";

const [type, key, data] = process.argv.slice(2);
if (type === undefined || key === undefined || data === undefined) {
  console.error("usage: submit TYPE KEY DATA");
  process.exit(2);
}
const api = setting("API");
const authorization = `Bearer ${setting("KEY")}`;

async function call(path: string, options: RequestInit = {}): Promise<any> {
  const headers = { authorization, ...options.headers };
  const answer = await fetch(`${api}${path}`, { ...options, headers });
  const body: any = await answer.json();
  if (!answer.ok) throw new Error(`${answer.status} ${body.code}: ${body.detail}`);
  return body;
}

// The same key is the same job, however often this runs.
const submitted = await call("/v1/jobs", {
  method: "POST",
  headers: { "content-type": "application/json", "idempotency-key": key },
  body: `{"type": ${JSON.stringify(type)}, "data": ${data}}`,
});
let job: any;
do {
  job = await call(`${submitted.statusUrl}?wait=20`);
} while (!["succeeded", "failed", "canceled"].includes(job.status));
console.log(JSON.stringify({ status: job.status, result: job.result, error: job.error }));
process.exitCode = job.status === "succeeded" ? 0 : 1;
