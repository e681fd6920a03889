"""A change that passes is safe: nothing that was valid is refused. Tried on schemas at random."""

import itertools
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from filaviva.evolution.comparison import compare
from filaviva.evolution.nodes import Document
from filaviva.schemas import SchemaCheck

Schema = dict[str, Any]
Pair = tuple[Schema, Schema]

SCALARS = (None, True, False, 0, 1, -1, 2, 6, 1.5, "", "a", "ab", "bbb")
NAMES = ("a", "b")
EXTRA = "z"

small = st.none() | st.integers(0, 3)


def with_some(kind: str, **limits: Any) -> st.SearchStrategy[Schema]:
    return st.fixed_dictionaries({"type": st.just(kind)}, optional=limits)


texts = with_some(
    "string",
    minLength=st.integers(0, 3),
    maxLength=st.integers(0, 3),
    pattern=st.sampled_from(["^a", "b$"]),
)
numbers = st.sampled_from(["integer", "number"]).flatmap(
    lambda kind: with_some(
        kind,
        minimum=st.integers(-1, 2),
        exclusiveMinimum=st.integers(-1, 2),
        maximum=st.integers(0, 6),
        exclusiveMaximum=st.integers(0, 6),
        multipleOf=st.sampled_from([1, 2, 3, 0.5]),
    )
)
scalars = st.one_of(
    texts,
    numbers,
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.just({}),
    st.lists(st.sampled_from(SCALARS[5:]), min_size=1, max_size=3, unique=True).map(
        lambda values: {"enum": values}
    ),
)


@st.composite
def both(draw: st.DrawFn, one: st.SearchStrategy[Schema]) -> Pair:
    """Draw two that mostly differ in one thing, for then it matters that it is seen."""
    old, other = draw(one), draw(one)
    way = draw(st.sampled_from(["same", "less", "more", "more", "other"]))
    limits = [word for word in (old if way == "less" else other) if word != "type"]
    if way == "other" or old.get("type") != other.get("type"):
        return old, other
    if way == "same" or not limits:
        return old, old
    word = draw(st.sampled_from(limits))
    if way == "less":
        return old, {key: value for key, value in old.items() if key != word}
    return old, {**old, word: other[word]}


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    members = {name: draw(inner) for name in NAMES}
    rest = draw(inner)

    def one(side: int) -> Schema:
        known = draw(st.lists(st.sampled_from(NAMES), unique=True))
        made: Schema = {
            "type": "object",
            "properties": {name: members[name][side] for name in known},
            "required": draw(st.lists(st.sampled_from(known), unique=True)) if known else [],
        }
        others = draw(st.sampled_from([False, False, None, rest[side]]))
        return made if others is None else {**made, "additionalProperties": others}

    return one(0), one(1)


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    items = draw(inner)
    limits = with_some(
        "array",
        minItems=st.integers(0, 2),
        maxItems=st.integers(0, 2),
        uniqueItems=st.booleans(),
    )
    old, new = draw(both(limits))
    return {**old, "items": items[0]}, {**new, "items": items[1]}


@st.composite
def unions(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    branches = draw(st.lists(inner, min_size=1, max_size=3))
    old = {"anyOf": [pair[0] for pair in branches]}
    new = {"anyOf": [pair[1] for pair in draw(st.permutations(branches))]}
    return draw(st.sampled_from([(old, new), (branches[0][0], new), (old, branches[0][1])]))


pairs = st.recursive(
    both(scalars),
    lambda inner: st.one_of(objects(inner), arrays(inner), unions(inner)),
    max_leaves=6,
)


def values(*schemas: Any) -> list[Any]:
    """Give values that such schemas tell apart."""
    found: list[Any] = list(SCALARS)
    for schema in schemas:
        if isinstance(schema, dict):
            found += schema.get("enum", [])
            found += values(*schema.get("anyOf", ()))
            if schema.get("type") == "array":
                found += _lists(values(schema.get("items", {})))
            if schema.get("type") == "object":
                found += _dicts(schema)
    return found


def _lists(items: list[Any]) -> list[Any]:
    return [[], *([each] for each in items), *([each, each] for each in items[-4:]), [1, "a"]]


def _dicts(schema: Schema) -> Iterator[Any]:
    choices = [[..., *values(schema.get("properties", {}).get(name, {}))[-6:]] for name in NAMES]
    others = [..., 1, "a", *values(schema.get("additionalProperties", {}))[-3:]]
    for chosen in itertools.product(*choices, others):
        named = zip((*NAMES, EXTRA), chosen, strict=True)
        yield {name: value for name, value in named if value is not ...}


plain = st.one_of(both(texts), both(numbers), both(scalars))
quick = settings(deadline=None, suppress_health_check=list(HealthCheck))


def check_that_what_passes_refuses_nothing(old: Schema, new: Schema) -> None:
    changes = compare(old, new)
    sent_before, sent_now = SchemaCheck(old), SchemaCheck(new)
    read_before = SchemaCheck(Document(old).opened.root)
    backward = not any(change.backward for change in changes)
    forward = not any(change.forward for change in changes)

    for value in values(old, new):
        if backward and not sent_before.flaws(value):
            assert not sent_now.flaws(value), (value, changes)
        if forward and not sent_now.flaws(value):
            assert not read_before.flaws(value), (value, changes)


@settings(quick, max_examples=400)
@given(plain)
def test_limits_that_pass_refuse_nothing_that_was_taken(pair: Pair) -> None:
    check_that_what_passes_refuses_nothing(*pair)


@settings(quick, max_examples=150)
@given(st.one_of(arrays(plain), objects(plain), unions(plain), pairs))
def test_structures_that_pass_refuse_nothing_that_was_taken(pair: Pair) -> None:
    check_that_what_passes_refuses_nothing(*pair)


@settings(quick, max_examples=50)
@given(pairs)
def test_what_is_the_same_has_not_changed(pair: Pair) -> None:
    assert compare(pair[0], pair[0]) == ()
