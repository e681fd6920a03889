// Says what AsyncAPI's own parser finds wrong with documents; exits with 1 if it is anything.
import { readFileSync } from "node:fs";

import { Parser } from "@asyncapi/parser";

let wrong = 0;
for (const path of process.argv.slice(2)) {
  const { document, diagnostics } = await new Parser().parse(readFileSync(path, "utf8"));
  for (const { code, message, path: place } of diagnostics) {
    console.log(`${path}: ${code}: ${place.join("/")}: ${message}`);
    wrong += 1;
  }
  if (document === undefined) wrong += 1;
}
process.exitCode = wrong ? 1 : 0;
