/** Read a message: an event whose data fits its contract, or the reason why it is none. */

import type { Contracts } from "./contracts.ts";
import { type Event, LARGEST, type Message, Undecodable, decode } from "./event.ts";
import { plain } from "./exact.ts";

export type Reason =
  | "undecodable"
  | "oversize"
  | "unknown_type"
  | "unsupported_version"
  | "invalid_input";

export type Reading =
  | { verdict: "accepted" | "referenced"; event: Event }
  | { verdict: Reason; because: string; event?: Event };

export function read(message: Message, contracts: Contracts): Reading {
  const size = message.body.length;
  if (size > LARGEST) {
    const because = `found a message of ${size} bytes, expected ${LARGEST} at most`;
    return { verdict: "oversize", because };
  }
  try {
    return judged(decode(message), contracts);
  } catch (error) {
    if (error instanceof Undecodable) return { verdict: "undecodable", because: error.message };
    throw error;
  }
}

/** Judge an event that could be read; `referenced`: its data has to be fetched, and then judged. */
export function judged(event: Event, contracts: Contracts): Reading {
  const { type, version } = event;
  const known = contracts.versions(type);
  if (known.length === 0) {
    return { verdict: "unknown_type", because: `no contract is called ${type}` };
  }
  if (version === undefined || !known.includes(version)) {
    const because = `found version ${version} of ${type}, known is ${known.join(", ")}`;
    return { verdict: "unsupported_version", because };
  }
  if (event.dataref !== undefined) return { verdict: "referenced", event };
  const because = contracts.unfit(type, version, plain(event.data));
  return because === undefined
    ? { verdict: "accepted", event }
    : { verdict: "invalid_input", because, event };
}
