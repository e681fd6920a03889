/** What is read, taken once and published is what ../../contracts/conformance says. */

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

import { type Options, connect } from "amqplib";
import pg from "pg";

import { Contracts } from "../src/contracts.ts";
import { decode, type Event, type Message } from "../src/event.ts";
import { canonical, parse, plain, parseBytes } from "../src/exact.ts";
import { TABLE, enter } from "../src/inbox.ts";
import { EXCHANGE, Publisher, Refused, type Statement, message } from "../src/publisher.ts";
import { read } from "../src/reading.ts";

const SET = process.env["CONFORMANCE"] ?? "../../contracts/conformance";
const { BROKER, DATABASE } = process.env;
const contracts = new Contracts(schemas(`${SET}/schemas`));

function schemas(folder: string): Record<string, object> {
  const found = readdirSync(folder).flatMap((type) =>
    readdirSync(`${folder}/${type}`).map((file): [string, object] => [
      `${type}.v${Number.parseInt(file, 10)}`,
      JSON.parse(readFileSync(`${folder}/${type}/${file}`, "utf8")),
    ]),
  );
  return Object.fromEntries(found);
}

function cases(name: string): any[] {
  return JSON.parse(readFileSync(`${SET}/${name}.json`, "utf8"));
}

function recorded(found: any): Message {
  const { contentType, headers, body, bodyBase64, padTo = 0 } = found;
  const bytes = bodyBase64 === undefined ? Buffer.from(body) : Buffer.from(bodyBase64, "base64");
  const padding = Buffer.alloc(Math.max(0, padTo - bytes.length), " ");
  return { contentType, headers, body: Buffer.concat([bytes, padding]) };
}

/** What of an event the set speaks of. */
function told(event: Event): object {
  const { time, data, traceparent = null, subject = null, dataref, ...rest } = event;
  const found = { ...rest, traceparent, subject, time: time?.getTime(), data: canonical(data) };
  return dataref === undefined ? found : { ...found, dataref };
}

for (const one of cases("reading")) {
  test(`reading: ${one.name}`, () => {
    const found = read(recorded(one.message), contracts);

    assert.equal(found.verdict, one.verdict);
    if (one.event) {
      const time = one.event.time === null ? undefined : Date.parse(one.event.time);
      const expected = { ...one.event, time, data: canonical(parse(one.event.data)) };
      assert.deepEqual(told(found.event as Event), expected);
    }
    if (one.verdict === "undecodable") assert.ok("because" in found && found.because);
  });
}

for (const one of cases("inbox")) {
  test(`inbox: ${one.name}`, { skip: DATABASE ? false : "no DATABASE" }, async () => {
    const client = new pg.Client(DATABASE as string);
    await client.connect();
    try {
      await client.query("BEGIN"); // rolled back: each case begins with nothing
      await client.query(TABLE);
      for (const { message: delivered, outcome } of one.deliveries) {
        assert.equal(await enter(client, "books", decode(recorded(delivered))), outcome);
      }
    } finally {
      await client.end();
    }
  });
}

/** Put long texts where the set only says how long they are. */
function writtenOut(data: any): any {
  if (data === null || typeof data !== "object") return data;
  if ("$repeat" in data) return data.$repeat[0].repeat(data.$repeat[1]);
  return Object.fromEntries(Object.entries(data).map(([name, one]) => [name, writtenOut(one)]));
}

function statement(event: any): Statement {
  return { ...event, time: new Date(event.time), data: writtenOut(event.data) };
}

function shown(fields: { exchange: string; routingKey: string }, used: Options.Publish, body: Buffer) {
  const { contentType, deliveryMode, messageId, type, timestamp, headers, correlationId } = used;
  const properties = { contentType, deliveryMode, messageId, type, timestamp, headers };
  return {
    exchange: fields.exchange,
    routingKey: fields.routingKey,
    properties: correlationId === undefined ? properties : { ...properties, correlationId },
    body: plain(parseBytes(body)),
  };
}

for (const one of cases("publishing")) {
  test(`publishing: ${one.name}`, () => {
    if (one.refused) {
      const expected = (error: unknown) => error instanceof Refused && error.reason === one.refused;
      assert.throws(() => message(statement(one.event), contracts), expected);
      return;
    }
    const made = message(statement(one.event), contracts);
    assert.deepEqual(shown(made, made.properties, made.body), one.message);
  });
}

test("publishing: over a broker", { skip: BROKER ? false : "no BROKER" }, async () => {
  const connection = await connect(BROKER as string);
  const channel = await connection.createChannel();
  await channel.assertExchange(EXCHANGE, "topic", { durable: true });
  const { queue } = await channel.assertQueue("", { exclusive: true });
  await channel.bindQueue(queue, EXCHANGE, "#");
  const publisher = await Publisher.open(BROKER as string, contracts);
  try {
    for (const one of cases("publishing").filter((found) => found.message)) {
      await publisher.publish(statement(one.event));
      const got = await channel.get(queue, { noAck: true });
      assert.ok(got);
      assert.deepEqual(shown(got.fields, got.properties, got.content), one.message);
    }
  } finally {
    await publisher.close();
    await connection.close();
  }
});
