"""Items of responses: those that clients send, their messages for the model, and those sent.

The items of a request's input, checked and completed with type, id and status.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from caesura.runtime.run.media import Content, file_text, media_part, titled
from caesura.runtime.server.http.errors import invalid
from caesura.runtime.server.responses import ids
from caesura.runtime.server.responses.store import Item

MAX_ITEMS = 65_536
MAX_SHOWN_CHARACTERS = 40
ROLES = ("user", "assistant", "system", "developer")
STATUSES = ("in_progress", "completed", "incomplete")
REFERENCE = "item_reference"
TRIGGER = "compaction_trigger"
"""The last item of an input that asks for a compaction instead of an answer."""
LEFT_OUT = frozenset(
    {
        *("code_interpreter_call", "computer_call", "computer_call_output", "file_search_call"),
        *("ghost_snapshot", "image_generation_call", "program", "program_output"),
        "web_search_call",
    }
)
"""Types of items that are kept and not shown to the model: what OpenAI's own tools did, mostly."""
ACTIONS = {"apply_patch_call": "operation", "local_shell_call": "action", "shell_call": "action"}
"""Calls of OpenAI's own tools that clients run, and the field that tells what to do."""
_MEDIA = ("input_image", "input_audio")
_TAKEN = "text, input_image, input_audio and input_file in messages that the model did not write"


def items_of(given: object, param: str = "input") -> list[Item]:
    """Return the items of an input: a text, or a list of items. None is an empty list.

    Every item but a reference gets a type and an id; the caller resolves `item_reference`s.
    Raises `ApiError` 400, with the path of the wrong field.
    """
    if given is None:
        return []
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise invalid(f"{param} must be a text or a list of items, {_got(given)}.", param)
    if len(given) > MAX_ITEMS:
        raise invalid(f"{param} has {len(given)} items; at most {MAX_ITEMS} are allowed.", param)
    return [_item(each, f"{param}[{number}]") for number, each in enumerate(given)]


def _item(given: object, path: str) -> Item:
    if not isinstance(given, Mapping):
        raise invalid(f"{path} must be an object, {_got(given)}.", path)
    kind = given.get("type")
    if kind is None:
        kind = "message" if "role" in given else REFERENCE
    make = _KINDS.get(kind) if isinstance(kind, str) else None
    if make is None:
        field = f"{path}.type"
        raise invalid(f"{field}: items of type {_shown(kind)} are not supported.", field)
    return make(given, path)


def _message(given: Mapping[str, Any], path: str) -> Item:
    role = given.get("role")
    if role not in ROLES:
        field = f"{path}.role"
        raise invalid(f"{field} must be one of {', '.join(ROLES)}, {_got(role)}.", field)
    item = {
        "type": "message",
        "id": _id(given, path, ids.MESSAGE),
        "status": _status(given, path),
        "role": role,
        "content": _parts(given.get("content"), f"{path}.content", role == "assistant"),
    }
    if given.get("phase") is not None:
        item["phase"] = _text(given, "phase", path)
    return item


def _parts(content: object, path: str, written: bool) -> list[Item]:
    """Return the parts of a message; `written` says that the model wrote it."""
    if isinstance(content, str):
        return [_text_part(content, written)]
    if not isinstance(content, list):
        raise invalid(f"{path} must be a text or a list of parts, {_got(content)}.", path)
    return [_part(part, f"{path}[{number}]", written) for number, part in enumerate(content)]


def _part(part: object, path: str, written: bool) -> Item:
    if not isinstance(part, Mapping):
        raise invalid(f"{path} must be an object, {_got(part)}.", path)
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            return _text_part(_text(part, "text", path), written)
        case "refusal":
            return {"type": "refusal", "refusal": _text(part, "refusal", path)}
        case "input_image" | "input_audio" as kind if not written:
            return _medium(part, kind, path)
        case "input_file" if not written:
            return _file(part, path)
        case other:
            message = f"{path} is of type {_shown(other)}; {_TAKEN} are supported."
            raise invalid(message, f"{path}.type")


def _medium(part: Mapping[str, Any], kind: str, path: str) -> Item:
    """Return a picture or a sound."""
    if kind == "input_audio":
        try:
            return media_part(kind, part.get(kind), path)
        except ValueError as error:
            raise invalid(f"{error}.", f"{path}.{kind}") from None
    if part.get("file_id") is not None:
        field = f"{path}.file_id"
        raise invalid(f"{field}: files are not kept here: send the picture as image_url.", field)
    url = _name(part, "image_url", path)
    return {"type": kind, "image_url": url, "detail": str(part.get("detail") or "auto")}


def _file(part: Mapping[str, Any], path: str) -> Item:
    """Return a file of text."""
    for name in ("file_id", "file_url"):
        if part.get(name) is not None:
            field = f"{path}.{name}"
            message = "files are neither kept nor fetched here: send the text as file_data"
            raise invalid(f"{field}: {message}.", field)
    data = _name(part, "file_data", path)
    try:
        file_text(data)
    except ValueError as error:
        raise invalid(f"{path}: {error}.", f"{path}.file_data") from None
    return {"type": "input_file", "filename": str(part.get("filename") or ""), "file_data": data}


def _text_part(text: str, written: bool) -> Item:
    if written:
        return {"type": "output_text", "text": text, "annotations": []}
    return {"type": "input_text", "text": text}


def _call(given: Mapping[str, Any], path: str) -> Item:
    item = {
        "type": "function_call",
        "id": _id(given, path, ids.CALL),
        "status": _status(given, path),
        "call_id": _name(given, "call_id", path),
        "name": _name(given, "name", path),
        "arguments": _text(given, "arguments", path),
    }
    return item | _told_of_call(given, path)


def _told_of_call(given: Mapping[str, Any], path: str) -> Item:
    """Return what a call tells of its tool: a namespace, and whether the model goes on."""
    told: Item = {}
    if given.get("namespace") is not None:
        told["namespace"] = _name(given, "namespace", path)
    if given.get("async") is not None and not isinstance(given["async"], bool):
        field = f"{path}.async"
        raise invalid(f"{field} must be true or false, {_got(given['async'])}.", field)
    if given.get("async"):
        told["async"] = True
    return told


def _custom_call(given: Mapping[str, Any], path: str) -> Item:
    item = {
        "type": "custom_tool_call",
        "id": _id(given, path, ids.CUSTOM_CALL),
        "status": _status(given, path),
        "call_id": _name(given, "call_id", path),
        "name": _name(given, "name", path),
        "input": _text(given, "input", path),
    }
    return item | _told_of_call(given, path)


def _action(given: Mapping[str, Any], path: str) -> Item:
    field = ACTIONS[given["type"]]
    if not isinstance(given.get(field), Mapping):
        where = f"{path}.{field}"
        raise invalid(f"{where} must be an object, {_got(given.get(field))}.", where)
    call_id = _name(given, "call_id" if given.get("call_id") else "id", path)
    return {**_kept(given, path, ids.CALL, field), "call_id": call_id}


def _action_output(given: Mapping[str, Any], path: str) -> Item:
    call_id = _name(given, "call_id" if given.get("call_id") else "id", path)
    output = given.get("output")
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    kept = _kept(given, path, ids.CALL_OUTPUT, "max_output_length", "status")
    return {**kept, "call_id": call_id, "output": text}


def _left_out(given: Mapping[str, Any], path: str) -> Item:
    return {**given, "id": _id(given, path, ids.LEFT_OUT)}


SEARCHES = ("tool_search_call", "tool_search_output")


def is_clients_search(item: Mapping[str, Any]) -> bool:
    """Return whether a search of tools, or its output, is the client's and not OpenAI's."""
    kind = item.get("type") in SEARCHES
    return kind and item.get("execution") == "client" and bool(item.get("call_id"))


def code_result(item: Mapping[str, Any]) -> str | None:
    """Return what code wrote, or None if the item of its call does not tell it."""
    outputs, code = item.get("outputs"), item.get("code")
    if not isinstance(outputs, list) or not isinstance(code, str):
        return None
    logs = [each.get("logs") for each in outputs if isinstance(each, Mapping)]
    texts = [each for each in logs if isinstance(each, str)]
    return "\n".join(texts) if texts else None


def _tool_search(given: Mapping[str, Any], path: str) -> Item:
    if not is_clients_search(given):
        return _left_out(given, path)
    call_id = _name(given, "call_id", path)
    if given["type"] == "tool_search_call":
        kept = _kept(given, path, ids.TOOL_SEARCH_CALL, "execution")
        told = {"arguments": given.get("arguments") or {}}
    else:
        kept = _kept(given, path, ids.TOOL_SEARCH_OUTPUT, "execution")
        told = {"tools": given.get("tools") or []}
        if not isinstance(told["tools"], list):
            raise invalid(f"{path}.tools must be a list.", f"{path}.tools")
    return {**kept, "status": _status(given, path), "call_id": call_id, **told}


def _call_output(given: Mapping[str, Any], path: str) -> Item:
    output = given.get("output")
    if not isinstance(output, str):
        output = _parts(output, f"{path}.output", written=False)
    custom = given["type"] == "custom_tool_call_output"
    return {
        "type": given["type"],
        "id": _id(given, path, ids.CUSTOM_CALL_OUTPUT if custom else ids.CALL_OUTPUT),
        "status": _status(given, path),
        "call_id": _name(given, "call_id", path),
        "output": output,
    }


def _reasoning(given: Mapping[str, Any], path: str) -> Item:
    return _kept(given, path, ids.REASONING, "summary", "content", "encrypted_content")


def _list_tools(given: Mapping[str, Any], path: str) -> Item:
    return _kept(given, path, ids.LIST_TOOLS, "server_label", "tools", "error")


def _server_call(given: Mapping[str, Any], path: str) -> Item:
    _name(given, "name", path)
    _text(given, "arguments", path)
    if given.get("output") is not None:
        _text(given, "output", path)
    fields = ("name", "arguments", "server_label", "output", "error", "approval_request_id")
    return _kept(given, path, ids.SERVER_CALL, *fields, "status")


def _approval_request(given: Mapping[str, Any], path: str) -> Item:
    _name(given, "id", path)
    _name(given, "name", path)
    _text(given, "arguments", path)
    return _kept(given, path, ids.APPROVAL_REQUEST, "name", "arguments", "server_label")


def _approval(given: Mapping[str, Any], path: str) -> Item:
    if not isinstance(given.get("approve"), bool):
        field = f"{path}.approve"
        raise invalid(f"{field} must be true or false, {_got(given.get('approve'))}.", field)
    item = {
        "type": "mcp_approval_response",
        "id": _id(given, path, ids.APPROVAL_RESPONSE),
        "approval_request_id": _name(given, "approval_request_id", path),
        "approve": given["approve"],
    }
    if given.get("reason") is not None:
        item["reason"] = _text(given, "reason", path)
    return item


def _compaction(given: Mapping[str, Any], path: str) -> Item:
    _text(given, "encrypted_content", path)
    return _kept(given, path, ids.COMPACTION, "encrypted_content")


def _trigger(given: Mapping[str, Any], path: str) -> Item:
    return _kept(given, path, ids.LEFT_OUT)


def _reference(given: Mapping[str, Any], path: str) -> Item:
    return {"type": REFERENCE, "id": _name(given, "id", path)}


def _kept(given: Mapping[str, Any], path: str, prefix: str, *fields: str) -> Item:
    """Return an item with those of the fields that are given, unchanged."""
    kept = {name: given[name] for name in fields if name in given}
    return {"type": given["type"], "id": _id(given, path, prefix), **kept}


_KINDS: dict[str, Callable[[Mapping[str, Any], str], Item]] = {
    "message": _message,
    "function_call": _call,
    "function_call_output": _call_output,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _call_output,
    **dict.fromkeys(ACTIONS, _action),
    **dict.fromkeys((f"{kind}_output" for kind in ACTIONS), _action_output),
    **dict.fromkeys(LEFT_OUT, _left_out),
    **dict.fromkeys(SEARCHES, _tool_search),
    "reasoning": _reasoning,
    "mcp_list_tools": _list_tools,
    "mcp_call": _server_call,
    "mcp_approval_request": _approval_request,
    "mcp_approval_response": _approval,
    "compaction": _compaction,
    TRIGGER: _trigger,
    REFERENCE: _reference,
}


def _id(given: Mapping[str, Any], path: str, prefix: str) -> str:
    """Return the item's id, or a new one; clients may leave it out or send null."""
    return ids.new_id(prefix) if given.get("id") in (None, "") else _name(given, "id", path)


def _status(given: Mapping[str, Any], path: str) -> str:
    status = given.get("status")
    if status is not None and status not in STATUSES:
        field = f"{path}.status"
        raise invalid(f"{field} must be one of {', '.join(STATUSES)}, {_got(status)}.", field)
    return status or "completed"


def _name(given: Mapping[str, Any], field: str, path: str) -> str:
    text = _text(given, field, path)
    if not text:
        raise invalid(f"{path}.{field} must not be empty.", f"{path}.{field}")
    return text


def _text(given: Mapping[str, Any], field: str, path: str) -> str:
    value, field = given.get(field), f"{path}.{field}"
    if value is None:
        raise invalid(f"{field} is missing.", field)
    if not isinstance(value, str):
        raise invalid(f"{field} must be a text, {_got(value)}.", field)
    return value


def _got(value: object) -> str:
    return f"got {_shown(value)}"


def _shown(value: object) -> str:
    """Return a value as short JSON text, for an error."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, str) and len(value) > MAX_SHOWN_CHARACTERS:
        value = f"{value[:MAX_SHOWN_CHARACTERS]}..."
    return json.dumps(value, ensure_ascii=False)


def text_of(parts: str | Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a content; line breaks join its parts."""
    if isinstance(parts, str):
        return parts
    texts = map(_text_of, parts)
    return "\n".join(str(text) for text in texts if text is not None)


def _text_of(part: Mapping[str, Any]) -> object:
    if part.get("type") == "input_file":
        return titled(part["filename"], file_text(part["file_data"]))
    return part.get("text", part.get("refusal"))


def content_of(parts: str | Sequence[Mapping[str, Any]]) -> Content:
    """Return the content of a chat message: a text, or parts if there are pictures or sounds."""
    if isinstance(parts, str) or all(part["type"] not in _MEDIA for part in parts):
        return text_of(parts)
    return [
        {"type": "image_url", "image_url": {"url": part["image_url"]}}
        if part["type"] == "input_image"
        else dict(part)
        if part["type"] in _MEDIA
        else {"type": "text", "text": text_of([part])}
        for part in parts
    ]
