"""The gate on files: what is released stays as it is and stays readable."""

import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, StringConstraints, create_model, field_serializer

from filaviva import App, Context, Contract
from filaviva.errors import ConfigurationError, Incompatible
from filaviva.evolution.catalog import Catalog, catalog
from filaviva.evolution.change import Mode
from filaviva.evolution.findings import Report
from filaviva.evolution.folder import Folder
from filaviva.evolution.gate import check
from filaviva.evolution.release import export, release, retire
from filaviva.evolution.terms import Terms, Waiver, read_terms
from filaviva.evolution.writing import write_text

Fields = dict[str, Any]

PAID: Fields = {"order_id": (str, ...), "note": (str | None, None)}


def contract(version: int, fields: Fields) -> type[Contract]:
    keywords = {"type": "order.paid", "version": version}
    made = create_model("Paid", __base__=Contract, __cls_kwargs__=keywords, **fields)
    assert issubclass(made, Contract)
    return made


def shop(*versions: type[Contract], result: Any = str, upcast: bool = False) -> App:
    app = App("shop")
    for one in versions:

        async def paid(_job: Any, _ctx: Context) -> Any:
            return None

        paid.__annotations__["return"] = result
        app.handler(one)(paid)
    if upcast:
        app.upcaster("order.paid", 1, to=2)(lambda data: {**data, "amount": 0})
    return app


class Project:
    """A folder with its code, which changes."""

    def __init__(self, root: Path, terms: Terms) -> None:
        self.root = root
        self.terms = terms

    def released(self, app: App) -> "Project":
        self.export(app)
        self.release(app)
        return self

    def check(self, app: App) -> Report:
        return check(self.catalog(app), self.folder, self.terms)

    def export(self, app: App) -> tuple[str, ...]:
        return export(self.catalog(app), self.folder, self.terms).paths

    def release(self, app: App) -> tuple[str, ...]:
        return release(self.catalog(app), self.folder, self.check(app))

    def edit(self, path: str, change: Callable[[Any], Any]) -> None:
        self.folder.write(path, change(self.folder.read(path)))

    def catalog(self, app: App) -> Catalog:
        return catalog(app)

    @property
    def folder(self) -> Folder:
        return Folder.open(self.root)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, Terms())


def found(report: Report) -> str:
    return "\n".join(f"{each.found}; {each.next_step}" for each in report.findings)


def test_a_draft_may_change_as_it_likes(project: Project) -> None:
    project.export(shop(contract(1, PAID)))

    project.export(shop(contract(1, {"total": (int, ...)})))

    schema = project.folder.read("schemas/order.paid/1.json")
    assert list(schema["properties"]) == ["total"]


def test_a_draft_that_is_not_exported_is_found(project: Project) -> None:
    project.export(shop(contract(1, PAID)))

    report = project.check(shop(contract(1, {"total": (int, ...)})))

    assert "schemas/order.paid/1.json is not what the code says" in found(report)
    assert "filaviva contracts export" in found(report)


def test_what_is_released_and_unchanged_passes(project: Project) -> None:
    app = shop(contract(1, PAID))

    report = project.released(app).check(app)

    assert report.passes
    assert not report.judged
    assert not report.drafts


def test_a_breaking_change_is_refused_with_field_reason_pointer_and_next_step(
    project: Project,
) -> None:
    project.released(shop(contract(1, PAID)))
    app = shop(contract(1, {**PAID, "amount": (int, ...)}))

    report = project.check(app)

    (refused,) = [each for each in report.judged if each.refused]
    assert not report.passes
    assert refused.change.path == "amount"
    assert refused.change.pointer == "/properties/amount"
    assert refused.against == "schemas/order.paid/1.json"
    assert refused.reasons == ("messages of before lack it, and it is required now",)
    assert str(refused.next_step).endswith("filaviva contracts new-version order.paid")
    with pytest.raises(Incompatible, match=r"order.paid v1, amount: messages of before lack it"):
        project.export(app)


def test_a_released_version_is_widened_and_what_was_released_is_kept(project: Project) -> None:
    project.released(shop(contract(1, PAID)))
    wider = shop(contract(1, {**PAID, "memo": (str | None, None)}))

    written = project.export(wider)

    assert written == ("schemas/order.paid/1.json",)
    assert "memo" not in project.folder.read("schemas/order.paid/1.r1.json")["properties"]
    assert project.check(wider).passes
    assert project.release(wider) == ("schemas/order.paid/1.json",)


def test_every_release_of_a_version_counts_not_only_the_last(project: Project) -> None:
    once = {**PAID, "memo": (str, "")}
    for fields in ({"order_id": (str, ...)}, once, {**once, "tip": (int, 0)}):
        project.released(shop(contract(1, fields)))
    again = shop(contract(1, {"order_id": (str, ...), "memo": (int, 0), "tip": (int, 0)}))

    transitive = project.check(again)
    project.terms = Terms(mode=Mode.FULL)
    last = project.check(again)

    assert {each.against for each in transitive.judged if each.refused} == {
        "schemas/order.paid/1.r2.json",
        "schemas/order.paid/1.json",
    }
    assert {each.against for each in last.judged} == {"schemas/order.paid/1.json"}


def test_an_edited_schema_and_an_edited_golden_message_are_found(project: Project) -> None:
    app = shop(contract(1, PAID))
    project.released(app)
    project.edit("schemas/order.paid/1.json", lambda schema: {**schema, "description": "x"})
    project.edit("golden/order.paid/1.json", lambda event: {**event, "id": "other"})

    report = project.check(app)

    assert "schemas/order.paid/1.json is released, and was edited" in found(report)
    assert "golden/order.paid/1.json is released, and was edited" in found(report)


def test_a_released_file_that_is_gone_is_found(project: Project) -> None:
    app = shop(contract(1, PAID))
    project.released(app)
    (project.root / "golden/order.paid/1.json").unlink()

    assert "golden/order.paid/1.json is released, and gone" in found(project.check(app))


def test_a_recorded_case_is_added_and_never_changed(project: Project) -> None:
    app = shop(contract(1, PAID))
    cases = project.root / "conformance/reading.json"
    cases.parent.mkdir(parents=True)
    (cases.parent / "schemas").mkdir()
    (cases.parent / "schemas/1.json").write_text("{}")
    cases.write_text('[{"name": "one", "total": 0.10}, {"name": "two"}]')
    project.export(app)
    assert project.check(app).unfrozen == [
        "conformance/reading.json: one",
        "conformance/reading.json: two",
        "conformance/schemas/1.json",
    ]
    project.release(app)

    cases.write_text('[{"name": "three"}, {"total": 0.10, "name": "one"}, {"name": "two"}]')
    added = project.check(app)
    cases.write_text('[{"name": "one", "total": 0.1}]')
    (cases.parent / "schemas/1.json").write_text('{"type": "object"}')
    changed = project.check(app)

    assert added.passes
    assert added.unfrozen == ["conformance/reading.json: three"]
    assert [finding.found for finding in changed.findings] == [
        "conformance/reading.json: one is released, and was edited",
        "conformance/reading.json: two is released, and gone",
        "conformance/schemas/1.json is released, and was edited",
    ]


@pytest.mark.parametrize("broken", ["{}", "[{}]", "[", '[{"name": "a"}, {"name": "a"}]'])
def test_cases_that_cannot_be_told_apart_are_refused(project: Project, broken: str) -> None:
    app = shop(contract(1, PAID))
    (project.root / "conformance").mkdir(parents=True)
    (project.root / "conformance/reading.json").write_text(broken)

    with pytest.raises(ConfigurationError, match=r"reading\.json"):
        project.check(app)


def test_a_golden_message_that_its_reader_refuses_is_found(project: Project) -> None:
    # JSON Schema cannot tell: a rule of the model's own.
    project.released(shop(contract(1, {"note": (str, ...)})))

    class Paid(Contract, type="order.paid", version=1):
        note: str

        def model_post_init(self, _: Any) -> None:
            raise ValueError("found a note, expected none")

    report = project.check(shop(Paid))

    assert "golden/order.paid/1.json cannot be read any more" in found(report)
    assert "found a note, expected none" in found(report)


def test_a_golden_message_that_does_not_fit_its_schema_is_found(project: Project) -> None:
    app = shop(contract(1, PAID))
    project.export(app)
    project.edit("golden/order.paid/1.json", lambda event: {**event, "data": {"note": "x"}})
    project.edit("golden/order.paid/1.json", lambda event: {**event, "type": "order.paid.v7"})

    report = project.check(app)

    assert "/orderId: it is missing" in found(report)
    assert "has the type 'order.paid.v7', expected 'order.paid.v1'" in found(report)


def test_an_old_version_is_read_by_its_upcaster(project: Project) -> None:
    project.released(shop(contract(1, PAID)))
    second = contract(2, {**PAID, "amount": (int, ...)})

    without = project.check(shop(second))
    app = shop(second, upcast=True)
    project.export(app)

    assert "order.paid v1 is released, and nothing reads it any more" in found(without)
    assert project.check(app).passes


def test_an_upcaster_that_breaks_on_an_old_message_is_found(project: Project) -> None:
    project.released(shop(contract(1, PAID)))
    app = shop(contract(2, {"amount": (int, ...)}))
    app.upcaster("order.paid", 1, to=2)(lambda data: {"amount": data["total"]})
    project.export(app)

    assert "golden/order.paid/1.json cannot be read any more" in found(project.check(app))


def test_a_version_that_nothing_reads_can_be_retired(project: Project) -> None:
    first = shop(contract(1, PAID))
    project.released(first)
    second = shop(contract(2, {"amount": (int, ...)}))
    project.export(second)

    with pytest.raises(Incompatible, match=r"order.paid.v1 is read by the code"):
        retire(project.catalog(first), project.folder, ("order.paid", 1), "none in flight")
    retire(project.catalog(second), project.folder, ("order.paid", 1), "none in flight")

    assert project.check(second).passes
    assert project.folder.retired == {"order.paid.v1": "none in flight"}


def test_a_result_is_a_contract_too(project: Project) -> None:
    project.released(shop(contract(1, PAID), result=str))

    report = project.check(shop(contract(1, PAID), result=int))

    (refused,) = [each for each in report.judged if each.refused]
    assert refused.part == "result"
    assert refused.reasons[0] == "results of before may have string, it takes integer now"
    assert refused.next_step == "keep what v1 returns, and return this from a version 2"


def test_an_optional_member_may_leave_a_result_for_it_has_no_edge(project: Project) -> None:
    wide = create_model("Result", total=(int, ...), note=(str | None, None))
    narrow = create_model("Result", total=(int, ...))
    project.released(shop(contract(1, PAID), result=wide))

    report = project.check(shop(contract(1, PAID), result=narrow))

    assert [each.reasons for each in report.judged] == [()]


def test_a_change_may_be_waived_by_name_and_with_a_reason(project: Project) -> None:
    project.released(shop(contract(1, {"code": (str, ...)})))
    app = shop(contract(1, {"code": (Annotated[str, StringConstraints(pattern="^[a-z]+$")], ...)}))

    strict = project.check(app)
    waiver = Waiver(type="order.paid", version=1, path="code", kind="pattern", reason="all are")
    project.terms = Terms(waivers=(waiver,))
    waived = project.check(app)

    assert [each.refused for each in strict.judged] == [True]
    assert [(each.refused, each.waived) for each in waived.judged] == [(False, "all are")]


@pytest.mark.parametrize(
    ("mode", "passes"),
    [
        (Mode.FULL_TRANSITIVE, False),
        (Mode.FORWARD, False),
        (Mode.BACKWARD, True),
        (Mode.NONE, True),
    ],
)
def test_the_mode_says_what_counts(project: Project, mode: Mode, passes: bool) -> None:  # noqa: FBT001 - one row
    project.released(shop(contract(1, {"size": (int, ...)})))
    project.terms = Terms(modes={"order.paid": mode})

    report = project.check(shop(contract(1, {"size": (float, ...)})))

    assert any(each.refused for each in report.judged) is not passes


def test_nothing_is_released_without_a_golden_message(project: Project) -> None:
    app = shop(contract(1, {"code": (Annotated[str, StringConstraints(pattern="^x{7}y$")], ...)}))
    project.export(app)

    with pytest.raises(Incompatible, match=r"write one to .*golden/order.paid/1.json"):
        project.release(app)


def test_terms_are_read_from_the_project(tmp_path: Path) -> None:
    text = '[tool.filaviva.contracts]\napp = "shop:app"\nmodes = {"order.paid" = "BACKWARD"}\n'
    (tmp_path / "pyproject.toml").write_text(text)

    terms = read_terms(tmp_path)

    assert terms.folder == tmp_path / "contracts"
    assert terms.mode_of("order.paid") is Mode.BACKWARD
    assert terms.mode_of("order.sent") is Mode.FULL_TRANSITIVE


def test_a_wrong_term_is_told_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.filaviva.contracts]\nmode = "SIDEWAYS"\n')

    with pytest.raises(ConfigurationError, match=r"contracts\.mode: found 'SIDEWAYS'"):
        read_terms(tmp_path)


def test_a_file_with_another_name_is_told(project: Project) -> None:
    app = shop(contract(1, PAID))
    project.export(app)
    (project.root / "golden/order.paid/first.json").write_text(json.dumps({}))

    with pytest.raises(ConfigurationError, match=r"first\.json, expected TYPE/VERSION\.json"):
        project.check(app)


def test_who_sent_a_version_that_is_upcast_is_answered_as_before(project: Project) -> None:
    answer = create_model("Answer", total=(int, ...))
    other = create_model("Answer", sum=(str, ...))
    project.released(shop(contract(1, PAID), result=answer))
    second = contract(2, {**PAID, "amount": (int, ...)})

    same = project.check(shop(second, result=answer, upcast=True))
    changed = project.check(shop(second, result=other, upcast=True))

    assert not any(each.refused for each in same.judged)
    (refused,) = {each.change.path for each in changed.judged if each.refused}
    assert refused == "total"


class Amount(BaseModel):
    cents: int

    @field_serializer("cents")
    def in_words(self, cents: int) -> str:
        return f"{cents} cents"


def test_what_is_written_otherwise_than_its_schema_says_is_found(project: Project) -> None:
    app = shop(contract(1, {"amount": (Amount, ...)}))
    project.export(app)

    report = project.check(app)

    assert "an example as the code writes it, by what its schema says" in found(report)
    assert "/amount/cents" in found(report)


class Named(BaseModel):
    order: int = Field(alias="orderNumber")


def test_a_model_inside_is_written_under_the_names_that_it_is_read_under(project: Project) -> None:
    app = shop(contract(1, {"it": (Named, ...)}))
    project.export(app)

    assert project.check(app).passes


def test_numbers_of_a_golden_message_keep_every_digit(project: Project) -> None:
    app = shop(contract(1, {"amount": (Decimal, Field(max_digits=25))}))
    project.export(app)
    golden = project.root / "golden/order.paid/1.json"
    number = "12345678901234567890.12345"
    golden.write_text(re.sub(r'"amount": [^\n]+', f'"amount": {number}', golden.read_text()))

    project.release(app)

    assert project.check(app).passes
    assert number in golden.read_text()


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("[]", "names no files with their hashes"),
        ('{"files": ["schemas/order.paid/1.json"]}', "names no files with their hashes"),
        ('{"files": {"golden/order.paid/1.json": 7}}', "names no files with their hashes"),
        ('<<<<<<< HEAD\n{"files": {}}', "it is not JSON"),
        ('{"files": {"golden/a/1.json": "x", "golden/a/1.json": "y"}}', "appears twice"),
        ("[" * 200_000, "nested deeper"),
    ],
)
def test_a_broken_list_of_what_is_released_is_told(
    project: Project, broken: str, says: str
) -> None:
    app = shop(contract(1, PAID))
    project.released(app)
    (project.root / "released.json").write_text(broken)

    with pytest.raises(ConfigurationError, match=says):
        project.check(app)


def test_two_classes_for_one_version_are_told_by_name(project: Project) -> None:
    app = App("shop")
    app.upcaster(contract(1, PAID), to=2)(dict)
    handled = shop(contract(1, PAID), contract(2, PAID))
    for handler in handled.all_handlers():
        app.handler(handler.contract)(handler.function)

    with pytest.raises(ConfigurationError, match=r"both order\.paid v1, expected one class"):
        project.catalog(app)


def test_what_returns_nothing_is_released_like_any_other(project: Project) -> None:
    project.released(shop(contract(1, PAID), result=None))

    assert project.folder.read("golden/order.paid/1.result.json") is None


def test_a_list_of_what_is_released_that_is_gone_is_found_by_what_was_kept(
    project: Project,
) -> None:
    project.released(shop(contract(1, PAID)))
    app = shop(contract(1, {**PAID, "tip": (int | None, None)}))
    project.export(app)
    (project.root / "released.json").unlink()

    assert "1.r1.json was released once" in found(project.check(app))


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "contracts").write_text("a file, and no folder")
    project = Project(tmp_path / "contracts", Terms())

    with pytest.raises(ConfigurationError, match="which cannot be written"):
        project.export(shop(contract(1, PAID)))


def test_a_file_is_written_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("old")
    file.chmod(0o640)

    write_text(file, "new")

    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new", 0o640)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"tool = 5", "tool: found 5, expected a table"),
        (b"[tool.filaviva]\ncontracts = 5", "tool.filaviva.contracts: found 5, expected a table"),
        (b"\xff", "it is no TOML"),
    ],
)
def test_a_project_file_that_says_something_else_is_told(
    tmp_path: Path, content: bytes, says: str
) -> None:
    (tmp_path / "pyproject.toml").write_bytes(content)

    with pytest.raises(ConfigurationError, match=says):
        read_terms(tmp_path)
    with pytest.raises(ConfigurationError, match="expected a folder that is there"):
        read_terms(tmp_path / "elsewhere")
