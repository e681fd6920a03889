/**
 * Consume events from a queue of this service's own.
 *
 * Before: a delivery that is not acknowledged. After: the inbox knows the event and its effect is
 * committed with it; then it is acknowledged. May happen twice: the inbox lets the second one go.
 * What cannot be read, or has failed too often, goes to Filaviva's dead letters.
 */

import { setTimeout as pause } from "node:timers/promises";

import {
  type Channel,
  type ChannelModel,
  type ConsumeMessage,
  type RecoveringChannelModel,
  connect,
} from "amqplib";
import type { Pool, PoolClient } from "pg";

import type { Content } from "./content.ts";
import type { Contracts } from "./contracts.ts";
import type { Event } from "./event.ts";
import { parse } from "./exact.ts";
import { enter } from "./inbox.ts";
import { type Reading, judged, read } from "./reading.ts";
import { transact } from "./transaction.ts";

/** The effect of an event; what it writes through `client` commits with the inbox. */
export type Handler = (event: Event, client: PoolClient) => Promise<void>;

export interface Settings {
  broker: string;
  database: Pool;
  contracts: Contracts;
  /** The queue, and the name of its inbox. */
  queue: string;
  /** Exchange and routing key of what it wants. */
  bindings: [exchange: string, key: string][];
  /** Where to look for data that was too large for its message. */
  content?: Content;
  /** How many are handled at once. */
  prefetch?: number;
  /** How long to wait before each further try, in milliseconds. */
  pauses?: number[];
}

type Verdict = "ack" | "reject" | "leave";

const DEAD_LETTERS = "filaviva.dead";

export class Consumer {
  readonly #settings: Settings;
  readonly #handle: Handler;
  readonly #running = new Set<Promise<void>>();
  #connection: RecoveringChannelModel | undefined;
  #channel: Channel | undefined;
  #tag: string | undefined;
  #stopping = false;

  constructor(settings: Settings, handle: Handler) {
    this.#settings = settings;
    this.#handle = handle;
  }

  /** Resolve once it consumes; after a loss of the connection it comes back by itself. */
  async start(): Promise<void> {
    const setup = (model: ChannelModel): Promise<void> => this.#consume(model);
    const recovery = { initialMaxRetries: 5, setup };
    this.#connection = await connect(this.#settings.broker, { recovery });
    this.#connection.on("error", (error) => console.error("broker:", error.message));
  }

  /** Take nothing more, and let what runs end. */
  async stop(): Promise<void> {
    this.#stopping = true;
    if (this.#channel && this.#tag) await this.#channel.cancel(this.#tag);
    await Promise.allSettled(this.#running);
    await this.#connection?.close();
  }

  async #consume(model: ChannelModel): Promise<void> {
    const channel = await model.createChannel();
    channel.on("error", (error) => console.error("channel:", error.message));
    await this.#declare(channel);
    await channel.prefetch(this.#settings.prefetch ?? 20);
    const taken = (delivery: ConsumeMessage | null): void => {
      if (delivery === null) {
        // The queue was deleted: come back with a new channel, which declares it again.
        void model.close().catch(() => {});
        return;
      }
      const running = this.#take(channel, delivery).finally(() => this.#running.delete(running));
      this.#running.add(running);
    };
    this.#tag = (await channel.consume(this.#settings.queue, taken)).consumerTag;
    this.#channel = channel;
  }

  async #declare(channel: Channel): Promise<void> {
    const queue = this.#settings.queue;
    // At-least-once needs all of these; with less, a dead letter may be lost on its way.
    const options = {
      "x-queue-type": "quorum",
      "x-dead-letter-exchange": DEAD_LETTERS,
      "x-dead-letter-strategy": "at-least-once",
      "x-overflow": "reject-publish",
      "x-delivery-limit": 20,
    };
    await channel.assertQueue(queue, { durable: true, arguments: options });
    for (const [exchange, key] of this.#settings.bindings) {
      await channel.bindQueue(queue, exchange, key);
    }
  }

  async #take(channel: Channel, delivery: ConsumeMessage): Promise<void> {
    const verdict = await this.#settle(delivery).catch((error: unknown): Verdict => {
      console.error("to the dead letters:", error);
      return "reject";
    });
    try {
      if (verdict === "ack") channel.ack(delivery);
      if (verdict === "reject") channel.reject(delivery, false);
    } catch {
      // The channel is gone: the broker gives it out again, and the inbox knows it.
    }
  }

  async #settle(delivery: ConsumeMessage): Promise<Verdict> {
    const { contentType, headers } = delivery.properties;
    const found = read({ body: delivery.content, contentType, headers }, this.#settings.contracts);
    return "because" in found ? refused(found) : this.#repeated(found.event);
  }

  /** Try again after a pause; while the database is away that is no failure of the event. */
  async #repeated(event: Event): Promise<Verdict> {
    const pauses = [...(this.#settings.pauses ?? [1_000, 5_000, 20_000])];
    while (!this.#stopping) {
      try {
        return await this.#once(event);
      } catch (error) {
        const wait = away(error) ? 1_000 : pauses.shift();
        if (wait === undefined) throw error;
        console.error(`${event.id} again in ${wait} ms:`, error);
        await pause(wait);
      }
    }
    return "leave"; // closing the connection gives it back
  }

  async #once(event: Event): Promise<Verdict> {
    const found = await this.#whole(event);
    return "because" in found ? refused(found) : this.#effect(found.event);
  }

  async #whole(event: Event): Promise<Reading> {
    const { dataref, ...rest } = event;
    if (dataref === undefined) return { verdict: "accepted", event };
    const data = await this.#settings.content?.(dataref);
    if (data === undefined) return { verdict: "invalid_input", because: `nothing is at ${dataref}` };
    return judged({ ...rest, data: parse(data) }, this.#settings.contracts);
  }

  async #effect(event: Event): Promise<Verdict> {
    return transact(this.#settings.database, async (client) => {
      const entered = await enter(client, this.#settings.queue, event);
      if (entered === "first") await this.#handle(event, client);
      return entered === "id_reused" ? "reject" : "ack";
    });
  }
}

function refused({ verdict, because }: Reading & { because: string }): Verdict {
  console.error(`to the dead letters: ${verdict}: ${because}`);
  return "reject";
}

/** Tell whether an error says that the database cannot be reached, or that it ends or starts. */
function away(error: unknown): boolean {
  const code = (error as { code?: unknown }).code;
  if (typeof code === "string") return /^(08|57P|E[A-Z]+$)/.test(code);
  return error instanceof Error && /connection (terminated|timeout)/i.test(error.message);
}
