"""Generate descriptions of the records' schema: TypeScript for the page, tables for the docs.

`python -m caesura.scheduler.records.describe` writes both files; `--check` only compares them.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from caesura.scheduler.records.parts import (
    About,
    DecisionRow,
    FeatureRecord,
    LackedSteps,
    OpeningInputs,
    PredictionRecord,
    PriceRecord,
    Record,
    SpanEvent,
    WantedRow,
)
from caesura.scheduler.records.plans import (
    OtherPlan,
    PlacementRecord,
    PlannedBlock,
    PlannedStage,
)
from caesura.scheduler.records.schema import KINDS, StepsRecord

PARTS: dict[type, str] = {
    PriceRecord: "Prices",
    OpeningInputs: "Inputs",
    LackedSteps: "Lacked",
    DecisionRow: "Decision",
    WantedRow: "Wanted",
    FeatureRecord: "Features",
    PredictionRecord: "Prediction",
    SpanEvent: "SpanEvent",
    PlacementRecord: "Placement",
    PlannedStage: "PlannedStage",
    PlannedBlock: "PlannedBlock",
    OtherPlan: "OtherPlan",
}
"""Parts of records, with their names in TypeScript."""

TYPES = {float: "number", int: "number", str: "string", bool: "boolean"}
TABLE_HEAD = ("| field | unit | what it says | read by |", "| --- | --- | --- | --- |")
BEGIN, END = "<!-- records: generated from the schema -->", "<!-- records: end -->"
HEAD = """\
// Generated from the schema of the scheduler's records by `make records`: do not edit.
// Readers ignore kinds and fields that they do not know, and do without optional ones.

export type Attribute = string | number | boolean | null | (string | number | boolean)[];
export type Attributes = Record<string, Attribute | undefined>;
"""


def typescript() -> str:
    """Return the TypeScript types of all records."""
    parts = [_interface(part, name) for part, name in PARTS.items() if is_dataclass(part)]
    parts += [_tuple(part, name) for part, name in PARTS.items() if not is_dataclass(part)]
    steps = ", ".join(f'"{each.name}"' for each in fields(StepsRecord))
    parts.append(
        "/** The columns of a `steps` record. */\n"
        f"export const STEP_COLUMNS = [{steps}] as const;\n"
        "export type StepColumn = (typeof STEP_COLUMNS)[number];\n"
    )
    kinds = [
        _steps() if kind is StepsRecord else _interface(kind, entry_name(kind))
        for kind in KINDS.values()
    ]
    union = " | ".join(entry_name(kind) for kind in KINDS.values())
    return "\n".join([HEAD, *parts, *kinds, f"export type KnownEntry = {union};\n", _shapes()])


def _shapes() -> str:
    """Return what the page checks entries against before it takes them in."""
    shapes = [f"  {name}: {_shape(part)}," for part, name in PARTS.items() if is_dataclass(part)]
    rows = [
        f"  {name}: {_row_shape(part)}," for part, name in PARTS.items() if not is_dataclass(part)
    ]
    kinds = [f"  {name}: {_shape(kind)}," for name, kind in KINDS.items()]
    return (
        "/** What fields hold; those with `!` are always there. The page limits `seconds`. */\n"
        "export const KIND_SHAPES: Record<string, Record<string, string>> = {\n"
        + "\n".join(kinds)
        + "\n};\n\n/** What parts of entries hold; of a row in the order of its columns. */\n"
        "export const PART_SHAPES: Record<string, Record<string, string>> = {\n"
        + "\n".join([*shapes, "  Attributes: {},"])
        + "\n};\nexport const ROW_SHAPES: Record<string, string[]> = {\n"
        + "\n".join(rows)
        + "\n};\n"
    )


def _row_shape(kind: Any) -> str:
    checks = (_quoted(_check(hint, needed)) for _, hint, needed in _row_fields(kind))
    return f"[{', '.join(checks)}]"


def _shape(kind: Any) -> str:
    # The page does without any column of the steps but their times.
    optional = {each.name for each in fields(kind)} - {"at"} if kind is StepsRecord else set()
    known = (
        f"{name}: {_quoted(_check(hint, needed and name not in optional))}"
        for name, hint, needed in _row_fields(kind)
    )
    return f"{{ {', '.join(known)} }}"


def _check(hint: Any, needed: bool) -> str:
    """Return a field's type as the page checks it, such as `seconds[]!`."""
    said = _type(hint)
    always = needed and not said.endswith(" | null")
    said = said.removesuffix(" | null")
    if _about(hint).unit == "s":
        said = said.replace("number", "seconds")
    return f"{said}!" if always else said


def entry_name(kind: type[Record]) -> str:
    """Return a kind's name in TypeScript: `OpeningRecord` is `OpeningEntry`."""
    return kind.__name__.replace("Record", "Entry")


def _steps() -> str:
    return (
        f"{_comment(StepsRecord)}\n"
        'export type StepsEntry = { kind: "steps"; at: number[] } '
        "& Partial<Record<StepColumn, number[]>>;\n"
    )


def _interface(kind: Any, name: str) -> str:
    lines = [f"  kind: {_quoted(kind.kind)};"] if issubclass(kind, Record) else []
    for field_name, hint, needed in _row_fields(kind):
        optional = "" if needed else "?"
        lines.append(f"  /** {_sentence(_about(hint))} */")
        lines.append(f"  {field_name}{optional}: {_type(hint)};")
    return f"{_comment(kind)}\nexport interface {name} {{\n" + "\n".join(lines) + "\n}\n"


def _tuple(kind: Any, name: str) -> str:
    columns = ", ".join(
        f"{column}{'' if needed else '?'}: {_type(hint)}"
        for column, hint, needed in _row_fields(kind)
    )
    return f"{_comment(kind)}\nexport type {name} = [{columns}];\n"


def tables() -> str:
    """Return the tables of docs/reference/records.md: one for each kind, then one for each part."""
    parts = [part for part in PARTS if part is not DecisionRow]
    sections = [*map(_table, KINDS.values()), *map(_table, [DecisionRow, *parts])]
    return "\n".join(sections)


def _table(kind: Any) -> str:
    lines = [
        _title(kind),
        "",
        "| field | unit | what it says | read by |",
        "| --- | --- | --- | --- |",
    ]
    for name, hint, needed in _row_fields(kind):
        about = _about(hint)
        shown = f"`{name}`" if needed else f"`{name}`?"
        lines.append(f"| {shown} | {about.unit} | {about.says} | {about.read_by or '–'} |")
    return "\n".join(lines) + "\n"


def _title(kind: Any) -> str:
    said = _first_line(kind)
    if issubclass(kind, Record):
        return f'`"kind": "{kind.kind}"`. {said} Written by {kind.set_by}.'
    return f"`{PARTS[kind].lower()}`. {said}"


def _row_fields(kind: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield each field with its annotated type, and whether every record of the kind has it."""
    hints = get_type_hints(kind, include_extras=True)
    if is_dataclass(kind):
        for each in fields(kind):
            needed = each.default is MISSING and each.default_factory is MISSING
            yield each.name, hints[each.name], needed
    else:
        for name in kind._fields:
            yield name, hints[name], name not in kind._field_defaults


def _about(hint: Any) -> About:
    (found,) = (each for each in get_args(hint)[1:] if isinstance(each, About))
    return found


def _type(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _type(inner[0])
    if origin in (Union, UnionType):
        return " | ".join("null" if each is NoneType else _type(each) for each in inner)
    if origin in (list, tuple):
        return f"{_type(inner[0])}[]"
    return PARTS.get(hint) or TYPES.get(hint) or "Attributes"


def _sentence(about: About) -> str:
    text = f"{about.says[0].upper()}{about.says[1:]}"
    return f"{text} ({about.unit})." if about.unit else f"{text}."


def _comment(kind: Any) -> str:
    return f"/** {_first_line(kind)} */"


def _first_line(kind: Any) -> str:
    return str(kind.__doc__).strip().splitlines()[0]


def _quoted(text: str) -> str:
    return f'"{text}"'


def between(text: str, tables: str) -> str:
    """Return the page `text` with `tables` between its two markers."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{tables}\n{END}{rest.split(END)[1]}"


def main(root: Path, check: bool) -> int:
    """Write the generated files below `root`, or compare them; return the exit status."""
    page, docs = root / "ui/src/model/record-types.ts", root / "docs/reference/records.md"
    wanted = {page: typescript(), docs: between(docs.read_text(), tables())}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if check:
            print(f"{path} differs from the schema: run `make records`", file=sys.stderr)
        else:
            path.write_text(wanted[path])
            print(f"wrote {path}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--check", action="store_true", help="compare, and write nothing")
    options.add_argument("--root", type=Path, default=Path.cwd(), help="the checkout")
    given = options.parse_args()
    sys.exit(main(given.root, given.check))
