"""The calls of the Berkeley Function-Calling Leaderboard, as its files have them."""

import ast
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.formats.rendering import Call

# The leaderboard's names of types, as its own handlers translate them.
TYPES = {
    **dict.fromkeys(("dict", "HashMap", "Hashtable"), "object"),
    **dict.fromkeys(("tuple", "Array", "ArrayList", "list", "Queue", "Stack", "Set"), "array"),
    **dict.fromkeys(("float", "double"), "number"),
    **dict.fromkeys(("long", "short", "byte", "Bigint"), "integer"),
    **dict.fromkeys(("any", "Any", "char", "String", ""), "string"),
    **dict.fromkeys(("bool", "Boolean"), "boolean"),
}


@dataclass(frozen=True)
class Turn:
    """Calls that one turn makes, and the tools on offer."""

    id: str
    calls: tuple[Call, ...]
    tools: tuple[dict[str, Any], ...]


def files_in(path: Path) -> dict[str, bytes]:
    """The files below a folder or in an archive, by their paths from `data/` on."""
    found: dict[str, bytes] = {}
    archive = path if path.is_file() else next(iter(path.glob("*.tar.gz")), None)
    if archive is None:
        found = {file.as_posix(): file.read_bytes() for file in path.rglob("*.json")}
    else:
        with tarfile.open(archive) as tar:
            for member in tar:
                content = tar.extractfile(member) if member.name.endswith(".json") else None
                if content is not None:
                    found[member.name] = content.read()
    return {name.rpartition("bfcl_eval/data/")[2]: data for name, data in found.items()}


def lines_of(data: bytes) -> list[dict[str, Any]]:
    """JSON lines."""
    return [json.loads(line) for line in data.splitlines() if line.strip()]


def schema(given: Any) -> Any:
    """A parameter's schema with JSON Schema's names of types."""
    if isinstance(given, list):
        return [schema(each) for each in given]
    if not isinstance(given, dict):
        return given
    kept = {key: schema(value) for key, value in given.items()}
    if isinstance(given.get("type"), str):
        kept["type"] = TYPES.get(given["type"], given["type"])
    return kept


def first(value: Any) -> Any:
    """An acceptable value: alternatives are lists, of objects' values too."""
    if isinstance(value, dict):
        return {
            key: first(options[0])
            for key, options in value.items()
            if isinstance(options, list) and options and options[0] != ""
        }
    if isinstance(value, list):
        return [first(each) for each in value]
    return value


def call_of(truth: Any, names: Mapping[str, Sequence[str]]) -> Call:
    """Read a call; `names` are the parameters of tools whose calls are written as Python.

    Raises `ValueError` for values that are no literals.
    """
    if isinstance(truth, dict):
        ((name, options),) = truth.items()
        return Call(name, first(options))
    tree = ast.parse(truth, mode="eval").body
    if not isinstance(tree, ast.Call):
        raise ValueError("no call")
    name = ast.unparse(tree.func)
    positional = dict(zip(names.get(name, ()), map(ast.literal_eval, tree.args), strict=False))
    if len(positional) < len(tree.args):
        raise ValueError("more values than parameters")
    keyword = {str(key.arg): ast.literal_eval(key.value) for key in tree.keywords}
    return Call(name, json.loads(json.dumps({**positional, **keyword})))


def turns_of(files: Mapping[str, bytes]) -> Iterator[Turn | str]:
    """All turns with calls; a text says what could not be read."""
    documents = [
        doc for name, data in files.items() if "func_doc/" in name for doc in lines_of(data)
    ]
    for name, data in sorted(files.items()):
        folder, found, file = name.rpartition("possible_answer/")
        if not found:
            continue
        question = f"{folder}{'question/' if folder else ''}{file}"
        functions = {
            entry["id"]: entry.get("function") for entry in lines_of(files.get(question, b""))
        }
        for answer in lines_of(data):
            truth = answer["ground_truth"]
            offered = functions.get(answer["id"]) or documents
            tools = offered if isinstance(offered, list) else [offered]
            turns = truth if isinstance(truth, list) else []
            if not any(isinstance(turn, list) for turn in turns):
                turns = [turns]
            for index, turn in enumerate(turns):
                yield from read_turn(f"{answer['id']}.{index}", turn, tools)


def read_turn(
    id_: str, truth: Sequence[Any], functions: Sequence[Mapping[str, Any]]
) -> Iterator[Turn | str]:
    """One turn with its calls and the tools that they use; other tools would only take time."""
    if any(isinstance(each, str) and "(" not in each for each in truth):
        return  # an answer in words, to a question about memory or the web
    parameters = {each["name"]: list(each["parameters"]["properties"]) for each in functions}
    calls = []
    for each in truth:
        try:
            calls.append(call_of(each, parameters))
        except (ValueError, SyntaxError) as error:
            yield f"{id_}: {each}: {error}"
    used = {call.name for call in calls}
    tools = [
        {"type": "function", "function": {**each, "parameters": schema(each["parameters"])}}
        for each in functions
        if each["name"] in used
    ]
    if calls:
        yield Turn(id_, tuple(calls), tuple(tools))


SAMPLE = Path(__file__).parent / "data" / "bfcl_sample.jsonl"


def sample() -> list[Turn]:
    lines = [json.loads(line) for line in SAMPLE.read_text().splitlines()]
    return [
        Turn(line["id"], tuple(Call(**call) for call in line["calls"]), tuple(line["tools"]))
        for line in lines
    ]
