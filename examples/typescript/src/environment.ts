/** What the programs are told by the environment. */

import { readFileSync } from "node:fs";

import { Contracts } from "./contracts.ts";

export function setting(name: string): string {
  const found = process.env[name];
  if (found) return found;
  console.error(`${name}: found nothing, expected it in the environment`);
  process.exit(2);
}

/** Read the contracts from the file that CONTRACTS names. */
export function contracts(): Contracts {
  return Contracts.of(JSON.parse(readFileSync(setting("CONTRACTS"), "utf8")));
}

/** Resolve once somebody asks the process to end. */
export function asked(): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => resolve());
  });
}
