/** Events as they go over the wire: CloudEvents 1.0, structured JSON out, both modes in. */

import { createHash } from "node:crypto";

import { type Json, Malformed, Numeral, canonical, parseBytes, write } from "./exact.ts";

export const CONTENT_TYPE = "application/cloudevents+json";
export const LARGEST = 64 * 1024;

const PREFIXES = ["ce-", "ce_", "cloudevents_", "cloudevents:"];
const JSON_TYPE = /^(application|text)\/(json|[\w.+-]+\+json)(;.*)?$/;
const VERSIONED = /^(.+)\.v([1-9][0-9]{0,8})$/s;
const TENANT = /^[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}$/;
const TRACEPARENT = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;
const RFC3339 = /^(\d{4}-\d{2}-\d{2})[T ]\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})?$/i;
const LONGEST_SHORT = 200; // an AMQP short string has 255 bytes

/** A message as AMQP gives it. */
export interface Message {
  body: Uint8Array;
  contentType?: string | undefined;
  headers?: Record<string, unknown> | undefined;
}

/** An event: a fact that a service states. With its source and tenant, the id names it. */
export interface Event {
  type: string;
  version: number | undefined;
  id: string;
  source: string;
  tenant: string;
  correlationId: string;
  traceparent?: string | undefined;
  subject?: string | undefined;
  time?: Date | undefined;
  /** Where the data lies, if it is too large to be in the message. */
  dataref?: string | undefined;
  data: Json;
}

/** The bytes are no event that anybody could read. */
export class Undecodable extends Error {}

/** Read an event in structured or binary mode. */
export function decode(message: Message): Event {
  const kind = (message.contentType ?? "").trim().toLowerCase();
  if (kind.startsWith("application/cloudevents-batch")) {
    throw new Undecodable("found a batch of events, expected one event");
  }
  try {
    const found = attributes(message.headers ?? {});
    const structured = kind.startsWith("application/cloudevents") || !found.has("specversion");
    return structured ? fromStructured(message.body) : fromBinary(message, found);
  } catch (error) {
    if (error instanceof Malformed) throw new Undecodable(error.message);
    throw error;
  }
}

/** Write an event as structured JSON. */
export function encode(event: Event): Buffer {
  const kind = `${event.type}.v${event.version}`;
  const head = {
    specversion: "1.0",
    id: event.id,
    source: event.source,
    type: kind,
    subject: event.subject,
    time: event.time?.toISOString().replace(".000Z", "Z"),
    datacontenttype: "application/json",
    dataschema: `/v1/contracts/${event.type}/${event.version}`,
    traceparent: event.traceparent,
    correlationid: event.correlationId === event.id ? undefined : event.correlationId,
    tenant: event.tenant === "default" ? undefined : event.tenant,
  };
  return Buffer.from(`${JSON.stringify(head).slice(0, -1)},"data":${write(event.data)}}`);
}

/** Hash what an event means: the same name with another meaning is no copy of it. */
export function meaning(event: Event): Buffer {
  const text = `${event.type}.v${event.version}\n${canonical(event.data)}`;
  return createHash("sha256").update(text).digest();
}

/** What is too long for AMQP goes as its hash. */
export function short(text: string): string {
  if (Buffer.byteLength(text) <= LONGEST_SHORT) return text;
  return createHash("sha256").update(text).digest("hex");
}

function attributes(headers: Record<string, unknown>): Map<string, Json> {
  const found = new Map<string, Json>();
  for (const [name, value] of Object.entries(headers)) {
    const lower = name.toLowerCase();
    const prefix = PREFIXES.find((one) => lower.startsWith(one));
    if (prefix !== undefined) found.set(lower.slice(prefix.length), header(value));
  }
  return found;
}

function header(value: unknown): Json {
  if (typeof value === "number") return new Numeral(String(value));
  return value instanceof Uint8Array ? Buffer.from(value).toString("utf8") : String(value);
}

function fromStructured(body: Uint8Array): Event {
  const event = parseBytes(body);
  if (!(event instanceof Map)) {
    throw new Undecodable(`found ${kindOf(event)}, expected a CloudEvents object`);
  }
  const packed = event.get("data_base64");
  return made(event, packed === undefined ? (event.get("data") ?? null) : unpacked(packed));
}

function fromBinary(message: Message, found: Map<string, Json>): Event {
  const kind = message.contentType;
  if (kind && !JSON_TYPE.test(kind.trim().toLowerCase())) {
    throw new Undecodable(`found content type '${kind.slice(0, 100)}', expected application/json`);
  }
  return made(found, parseBytes(message.body));
}

function unpacked(packed: Json): Json {
  const bytes = typeof packed === "string" ? Buffer.from(packed, "base64") : undefined;
  if (bytes?.toString("base64") !== packed) {
    throw new Undecodable("data_base64: found something else than base64");
  }
  return parseBytes(bytes);
}

function made(found: Map<string, Json>, data: Json): Event {
  if (found.get("specversion") !== "1.0") {
    throw new Undecodable("specversion: found another one, expected '1.0'");
  }
  const id = required(found, "id");
  const source = required(found, "source");
  const kind = required(found, "type");
  const traceparent = text(found, "traceparent") ?? "";
  const [, type = kind, version] = VERSIONED.exec(kind) ?? [];
  return {
    type,
    version: version === undefined ? undefined : Number(version),
    id,
    source,
    tenant: tenant(found),
    correlationId: short(text(found, "correlationid") || id),
    traceparent: TRACEPARENT.test(traceparent) ? traceparent : undefined,
    subject: text(found, "subject"),
    time: time(found),
    dataref: data === null ? text(found, "dataref") : undefined,
    data,
  };
}

function required(found: Map<string, Json>, name: string): string {
  const value = text(found, name);
  if (!value) throw new Undecodable(`${name}: found nothing, expected a non-empty string`);
  return value;
}

function text(found: Map<string, Json>, name: string): string | undefined {
  const value = found.get(name) ?? undefined;
  if (value === undefined || typeof value === "string") return value;
  throw new Undecodable(`${name}: found ${kindOf(value)}, expected a string`);
}

function tenant(found: Map<string, Json>): string {
  const value = found.get("tenant") ?? "default";
  if (typeof value === "string" && TENANT.test(value)) return value;
  throw new Undecodable(
    "tenant: found something else, expected 1 to 100 letters, digits, '.', '_' or '-'",
  );
}

function time(found: Map<string, Json>): Date | undefined {
  const value = text(found, "time");
  if (value === undefined) return undefined;
  const [, day, , zone] = RFC3339.exec(value) ?? [];
  const moment = new Date(zone ? value : `${value}Z`);
  if (day === undefined || !exists(day) || Number.isNaN(moment.getTime())) {
    throw new Undecodable(`time: found '${value.slice(0, 40)}', expected RFC 3339`);
  }
  return moment;
}

/** JavaScript takes the 30th of February for the 2nd of March. */
function exists(day: string): boolean {
  const found = new Date(`${day}T00:00:00Z`);
  return !Number.isNaN(found.getTime()) && found.toISOString().startsWith(day);
}

function kindOf(value: Json): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (value instanceof Map) return "an object";
  if (value instanceof Numeral) return "a number";
  return typeof value === "string" ? "a string" : "a boolean";
}
