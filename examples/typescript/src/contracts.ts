/** The contracts that this service knows: those of Filaviva's AsyncAPI document. */

import Ajv, { type ValidateFunction } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

const NAMED = /^(.+)\.v([1-9][0-9]*)$/;
const PLACE = "#/components/schemas/";

interface Contract {
  strict: ValidateFunction;
  tolerant: ValidateFunction;
}

type Schemas = Record<string, object>;

export class Contracts {
  readonly #known = new Map<string, Map<number, Contract>>();

  /** Take every schema that is called TYPE.vVERSION; the others are parts of these. */
  constructor(schemas: Schemas) {
    const strict = compiler(schemas);
    const tolerant = compiler(opened(schemas));
    for (const name of Object.keys(schemas)) {
      const [, type, version] = NAMED.exec(name) ?? [];
      if (type === undefined) continue;
      const versions = this.#known.get(type) ?? new Map<number, Contract>();
      versions.set(Number(version), { strict: strict(name), tolerant: tolerant(name) });
      this.#known.set(type, versions);
    }
  }

  /** Read `/v1/asyncapi.json`, or what `filaviva contracts asyncapi --to` has written. */
  static of(document: { components: { schemas: Schemas } }): Contracts {
    return new Contracts(document.components.schemas);
  }

  /** Give the versions of a contract that are known; none if nobody knows it. */
  versions(type: string): number[] {
    return [...(this.#known.get(type)?.keys() ?? [])];
  }

  /** Say where data that was received does not fit; members that nobody knows are ignored. */
  unfit(type: string, version: number, data: unknown): string | undefined {
    return flaw(this.#known.get(type)?.get(version)?.tolerant, data);
  }

  /** Say why data must not be published: every member has to be one of the contract's. */
  refused(type: string, version: number, data: unknown): string | undefined {
    return flaw(this.#known.get(type)?.get(version)?.strict, data);
  }
}

function compiler(schemas: Schemas): (name: string) => ValidateFunction {
  const ajv = new Ajv.default({ strict: false });
  addFormats.default(ajv);
  ajv.addSchema({ $id: "document", components: { schemas } });
  return (name) => ajv.compile({ $ref: `document${PLACE}${name}` });
}

function flaw(check: ValidateFunction | undefined, data: unknown): string | undefined {
  if (check === undefined) return "there is no such contract";
  if (check(data)) return undefined;
  const [error] = check.errors ?? [];
  return `${error?.instancePath || "/"}: ${error?.message}`;
}

/** The published schemas are closed: what may be sent. Who reads takes what comes beside it. */
function opened(schema: unknown): any {
  if (Array.isArray(schema)) return schema.map(opened);
  if (schema === null || typeof schema !== "object") return schema;
  const members = Object.entries(schema).filter(
    ([name, value]) =>
      !(value === false && (name === "additionalProperties" || name === "unevaluatedProperties")),
  );
  return Object.fromEntries(members.map(([name, value]) => [name, opened(value)]));
}
