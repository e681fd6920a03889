/** JSON without a loss: exact numbers, and nothing that could not be kept as it came. */

const DEEPEST = 100;
const LONGEST_WHOLE = 4300;
const LARGEST_EXPONENT = 1000;

const SPACE = /[ \t\n\r]*/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const NUMBER = /(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?/y;
const WORD = /true|false|null/y;
const HALF_A_PAIR = /\p{Surrogate}/u;

export class Malformed extends Error {}

/** A number as it was written: JavaScript's own would lose digits. */
export class Numeral {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  /** One form for every way to write it: 10, 10.0 and 1e1 are the same. */
  get meaning(): string {
    NUMBER.lastIndex = 0;
    const [, sign, whole = "", fraction = "", exponent = "0"] = NUMBER.exec(this.text) ?? [];
    const digits = (whole + fraction).replace(/^0+/, "");
    const bare = digits.replace(/0+$/, "");
    if (bare === "") return "0";
    const power = BigInt(exponent) - BigInt(fraction.length) + BigInt(digits.length - bare.length);
    return `${sign}${bare}e${power}`;
  }
}

export type Json = null | boolean | string | Numeral | Json[] | Map<string, Json>;

/** Parse JSON text, or say why it is none. */
export function parse(text: string): Json {
  const reader = new Reader(text);
  const value = reader.value(1);
  reader.end();
  return value;
}

/** Parse JSON bytes. */
export function parseBytes(bytes: Uint8Array): Json {
  return parse(decoded(bytes));
}

export function decoded(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Malformed("it is not UTF-8");
  }
}

/** Write it as short as can be, with every digit. */
export function write(value: Json): string {
  return written(value, (number) => number.text, (names) => names);
}

/** Write what it means: neither the order of members nor 1.0 for 1 makes a difference. */
export function canonical(value: Json): string {
  return written(value, (number) => number.meaning, (names) => names.sort());
}

/** Give the usual JavaScript value; numbers lose the digits that JavaScript cannot hold. */
export function plain(value: Json): unknown {
  return JSON.parse(write(value));
}

function written(
  value: Json,
  number: (value: Numeral) => string,
  order: (names: string[]) => string[],
): string {
  if (value instanceof Numeral) return number(value);
  if (Array.isArray(value)) return `[${value.map((one) => written(one, number, order)).join()}]`;
  if (value instanceof Map) {
    const members = order([...value.keys()]).map(
      (name) => `${JSON.stringify(name)}:${written(value.get(name) ?? null, number, order)}`,
    );
    return `{${members.join()}}`;
  }
  return JSON.stringify(value);
}

class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  value(depth: number): Json {
    this.#take(SPACE);
    switch (this.#text[this.#at]) {
      case "{":
        return this.#object(depth);
      case "[":
        return this.#array(depth);
      case '"':
        return this.#string();
      default:
        return this.#wordOrNumber();
    }
  }

  end(): void {
    this.#take(SPACE);
    if (this.#at < this.#text.length) this.#fail();
  }

  #object(depth: number): Map<string, Json> {
    const members = new Map<string, Json>();
    this.#several("}", depth, () => {
      const name = this.#string();
      if (members.has(name)) throw new Malformed(`the member '${name.slice(0, 100)}' appears twice`);
      if (!this.#sign(":")) this.#fail();
      members.set(name, this.value(depth + 1));
    });
    return members;
  }

  #array(depth: number): Json[] {
    const items: Json[] = [];
    this.#several("]", depth, () => items.push(this.value(depth + 1)));
    return items;
  }

  #several(end: string, depth: number, one: () => void): void {
    if (depth > DEEPEST) throw new Malformed(`it is nested deeper than ${DEEPEST} levels`);
    this.#at += 1;
    if (this.#sign(end)) return;
    do {
      this.#take(SPACE);
      one();
    } while (this.#sign(","));
    if (!this.#sign(end)) this.#fail();
  }

  #string(): string {
    const text: string = JSON.parse(this.#take(STRING) ?? this.#fail());
    if (text.includes("\0")) throw new Malformed("it contains a NUL character");
    if (HALF_A_PAIR.test(text)) throw new Malformed("it contains half of a surrogate pair");
    return text;
  }

  #wordOrNumber(): null | boolean | Numeral {
    const word = this.#take(WORD);
    if (word !== undefined) return JSON.parse(word);
    for (const name of ["NaN", "Infinity", "-Infinity"]) {
      if (this.#text.startsWith(name, this.#at)) throw new Malformed(`${name} is not JSON`);
    }
    const number = new Numeral(this.#take(NUMBER) ?? this.#fail());
    refuseBoundless(number.text);
    return number;
  }

  #sign(sign: string): boolean {
    this.#take(SPACE);
    if (this.#text[this.#at] !== sign) return false;
    this.#at += 1;
    return true;
  }

  #take(form: RegExp): string | undefined {
    form.lastIndex = this.#at;
    const found = form.exec(this.#text)?.[0];
    this.#at += found?.length ?? 0;
    return found;
  }

  #fail(): never {
    throw new Malformed(`it is not JSON: unexpected at character ${this.#at}`);
  }
}

function refuseBoundless(text: string): void {
  const [digits = "", exponent = "0"] = text.toLowerCase().split("e");
  if (/^-?[0-9]+$/.test(text)) {
    if (digits.length > LONGEST_WHOLE) {
      throw new Malformed("it has a number with thousands of digits");
    }
  } else if (digits.length + Math.abs(Number(exponent)) > LARGEST_EXPONENT) {
    throw new Malformed(`the number ${text.slice(0, 40)} has more than ${LARGEST_EXPONENT} digits`);
  }
}
