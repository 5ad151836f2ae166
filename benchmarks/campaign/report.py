"""What a campaign found: counts that can be added, and their report as Markdown and JSON."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KINDS = ("lost", "run twice", "leaked", "wedged", "differs", "broken")
"""Kinds of defects: a session that did not end, a call made again, something left behind, work that
stands still, an output that is not the undisturbed one, and an error or a broken invariant."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One violation: its kind, what was seen, and the command that shows it again."""

    kind: str
    seen: str
    again: str

    @property
    def last_line(self) -> str:
        """The end of what was seen, which says most of a traceback."""
        return (self.seen.strip().splitlines() or [""])[-1]


@dataclass(slots=True)
class Outcome:
    """The counts of one run, or of many."""

    sessions: int = 0
    runs: int = 0
    seconds: float = 0.0
    ends: Counter[str] = field(default_factory=Counter)
    """How sessions, or inputs, ended."""
    faults: Counter[str] = field(default_factory=Counter)
    figures: dict[str, Any] = field(default_factory=dict)
    """Further figures of a single run, such as slopes."""
    defects: list[Defect] = field(default_factory=list)
    never: list[str] = field(default_factory=list)
    """Kinds of faults that were chosen and did not happen: nothing is proven about them."""

    def add(self, other: "Outcome") -> None:
        """Add the counts of another run."""
        self.sessions += other.sessions
        self.runs += other.runs
        self.seconds += other.seconds
        self.ends.update(other.ends)
        self.faults.update(other.faults)
        self.figures.update(other.figures)
        self.defects.extend(other.defects)
        self.never.extend(other.never)

    @property
    def by_kind(self) -> dict[str, int]:
        """Return the number of defects of each kind, zeros included."""
        counts = Counter(defect.kind for defect in self.defects)
        return {kind: counts[kind] for kind in KINDS}

    def to_json(self, about: dict[str, Any]) -> dict[str, Any]:
        """Return plain data, with what the campaign was asked for."""
        return {
            **about,
            "sessions": self.sessions,
            "runs": self.runs,
            "seconds": round(self.seconds, 1),
            "ends": dict(self.ends.most_common()),
            "faults": dict(self.faults.most_common()),
            "never_happened": self.never,
            "figures": self.figures,
            "defects": self.by_kind,
            "seen": [
                {"kind": one.kind, "seen": one.seen, "again": one.again} for one in self.defects
            ],
        }


def write(folder: Path, name: str, outcome: Outcome, about: dict[str, Any]) -> tuple[Path, Path]:
    """Write both reports into a folder, which is made if it is missing; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    data = outcome.to_json(about)
    as_json, as_text = folder / f"{name}.json", folder / f"{name}.md"
    as_json.write_text(json.dumps(data, indent=1) + "\n")
    as_text.write_text(markdown(name, data))
    return as_text, as_json


def markdown(name: str, data: dict[str, Any]) -> str:
    """Return a report for people."""
    asked = ", ".join(f"{key} {data[key]}" for key in ("seed", "budget_seconds") if key in data)
    lines = [
        f"# Fault campaign: {name}",
        "",
        f"{data['sessions']} sessions or inputs in {data['runs']} runs ({asked};"
        f" {data['seconds']} s of work).",
        "",
        *_table("defects", data["defects"]),
        *_table("how they ended", data["ends"]),
        *_table("faults", data["faults"]),
    ]
    if figures := {name: one for name, one in data["figures"].items() if name != "usage"}:
        lines += _table("figures", figures)
    if data["never_happened"]:
        lines += [f"**Chosen, and never happened:** {', '.join(data['never_happened'])}.", ""]
    for one in data["seen"]:
        lines += [f"- **{one['kind']}**: `{one['again']}`", "", "  ```", *_quoted(one["seen"])]
        lines += ["  ```", ""]
    return "\n".join(lines).rstrip() + "\n"


def _table(title: str, counts: dict[str, Any]) -> list[str]:
    return [
        f"| {title} | |",
        "| --- | --- |",
        *(f"| {key} | {value} |" for key, value in counts.items()),
        "",
    ]


def _quoted(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()[-30:]]
