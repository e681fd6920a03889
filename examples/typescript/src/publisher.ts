/** Publish events: strictly, as mandatory, and kept by the broker before it is said that they are. */

import { type ConfirmChannel, type Options, type RecoveringChannelModel, connect } from "amqplib";

import type { Contracts } from "./contracts.ts";
import { CONTENT_TYPE, type Event, LARGEST, encode, short } from "./event.ts";
import { parse, plain } from "./exact.ts";

export const EXCHANGE = "filaviva.events";

/** What a program wants to say. The id names the fact: said again, it is the same event. */
export interface Statement {
  type: string;
  version: number;
  id: string;
  source: string;
  /** JSON text, or any value that has a JSON form. */
  data: unknown;
  subject?: string;
  time?: Date;
  tenant?: string;
  correlationId?: string;
  traceparent?: string;
}

export interface Outgoing {
  exchange: string;
  routingKey: string;
  body: Buffer;
  properties: Options.Publish;
}

/** It must not leave. */
export class Refused extends Error {
  readonly reason: "invalid_input" | "oversize";

  constructor(reason: "invalid_input" | "oversize", message: string) {
    super(message);
    this.reason = reason;
  }
}

/** Make the message of a statement; Refused if the contract or the broker would not have it. */
export function message(statement: Statement, contracts: Contracts): Outgoing {
  const { type, version, data } = statement;
  const event: Event = {
    ...statement,
    tenant: statement.tenant ?? "default",
    correlationId: statement.correlationId ?? statement.id,
    time: statement.time ?? new Date(),
    data: parse(typeof data === "string" ? data : JSON.stringify(data)),
  };
  const why = contracts.refused(type, version, plain(event.data));
  if (why !== undefined) throw new Refused("invalid_input", `${type} v${version} at ${why}`);
  const body = encode(event);
  if (body.length > LARGEST) {
    const found = `found ${body.length} bytes, expected at most ${LARGEST}`;
    throw new Refused("oversize", `${found}; put large content elsewhere`);
  }
  return { exchange: EXCHANGE, routingKey: `${type}.v${version}`, body, properties: properties(event) };
}

function properties(event: Event): Options.Publish {
  const named = event.correlationId !== event.id;
  return {
    contentType: CONTENT_TYPE,
    deliveryMode: 2,
    mandatory: true,
    messageId: short(event.id),
    type: `${event.type}.v${event.version}`,
    timestamp: Math.floor((event.time ?? new Date()).getTime() / 1000),
    headers: event.traceparent === undefined ? {} : { traceparent: event.traceparent },
    ...(named ? { correlationId: short(event.correlationId) } : {}),
  };
}

/** One for each process; the connection comes back by itself. */
export class Publisher {
  readonly #connection: RecoveringChannelModel;
  readonly #contracts: Contracts;
  readonly #user: string;
  #channel: Promise<ConfirmChannel> | undefined;

  private constructor(connection: RecoveringChannelModel, contracts: Contracts, user: string) {
    this.#connection = connection;
    this.#contracts = contracts;
    this.#user = user;
  }

  static async open(url: string, contracts: Contracts): Promise<Publisher> {
    const connection = await connect(url, { recovery: { initialMaxRetries: 5 } });
    connection.on("error", () => {}); // told by what fails because of it
    const user = decodeURIComponent(new URL(url).username) || "guest";
    return new Publisher(connection, contracts, user);
  }

  /** Resolve once the broker keeps it. If it rejects, nobody knows: publish again, same id. */
  async publish(statement: Statement): Promise<void> {
    const { exchange, routingKey, body, properties } = message(statement, this.#contracts);
    // The broker vouches for it: by this Filaviva knows who names a tenant.
    const options = { ...properties, userId: this.#user };
    const channel = await this.#open();
    await new Promise<void>((resolve, reject) => {
      channel.publish(exchange, routingKey, body, options, (error) =>
        error ? reject(error) : resolve(),
      );
    });
  }

  async close(): Promise<void> {
    await this.#connection.close();
  }

  #open(): Promise<ConfirmChannel> {
    this.#channel ??= this.#connection.createConfirmChannel().then((channel) => {
      const forget = (): void => {
        this.#channel = undefined;
      };
      channel.on("error", forget);
      channel.on("close", forget);
      return channel;
    });
    return this.#channel;
  }
}
