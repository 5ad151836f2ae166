"""An MCP server of the 2025 protocol whose tools misbehave, each in a way of its own.

Plain Python, so that it starts at once. `hostile.py [BEHAVIOUR]`: what it does before it serves.
"""

import json
import os
import random
import subprocess
import sys
import time

OUT = sys.stdout.buffer


def send(message: object) -> None:
    raw(json.dumps(message).encode() + b"\n")


def raw(data: bytes) -> None:
    OUT.write(data)
    OUT.flush()


def result(number: object, value: object) -> None:
    send({"jsonrpc": "2.0", "id": number, "result": value})


def text(number: object, said: object) -> None:
    result(number, {"content": [{"type": "text", "text": said}]})


def noise(seed: int, length: int) -> bytes:
    return random.Random(seed).randbytes(length).replace(b"\n", b" ")


def garbage(number: object, seed: int) -> None:
    """Noise, then an answer that is nearly one."""
    pick = random.Random(seed)
    raw(noise(seed, pick.randrange(2000)) + b"\n")
    value = pick.choice(
        [
            [], "x", 1, None, True, {"content": 3}, {"content": [3]}, {"content": [{}]},
            {"content": [{"type": "text"}]}, {"content": [{"type": "text", "text": 7}]},
            {"content": [{"type": "image", "data": 1, "mimeType": "image/png"}]},
            {"content": [{"type": "nonsense", "text": "x"}]}, {"isError": "perhaps"},
            {"content": {"type": "text", "text": "x"}}, {"structuredContent": [1]},
            {"content": [], "structuredContent": 1},
            {"content": [{"type": "resource", "resource": {"uri": 3}}]},
            {"resultType": "input_required"}, {"content": [], "isError": 17},
        ]
    )  # fmt: skip
    pick.choice([result, lambda n, v: send({"jsonrpc": "2.0", "id": n, "error": v})])(number, value)


def mutated(number: object, seed: int) -> None:
    """A valid answer, of which a few bytes are others."""
    pick = random.Random(seed)
    blocks = [
        {"type": "text", "text": 'a " text'},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
    ]
    answer = {"jsonrpc": "2.0", "id": number, "result": {"content": blocks, "isError": False}}
    data = bytearray(json.dumps(answer).encode())
    for _ in range(pick.randrange(1, 4)):
        at = pick.randrange(len(data))
        data[at : at + pick.randrange(3)] = pick.randbytes(pick.randrange(3))
    raw(bytes(data).replace(b"\n", b"") + b"\n")


def call(number: object, name: str, arguments: dict) -> None:  # noqa: C901 - a list of tricks
    match name:
        case "wrong_type":
            result(number, "a text")
        case "wrong_content":
            result(number, {"content": [{"type": "text", "text": 5}]})
        case "wrong_error":
            send({"jsonrpc": "2.0", "id": number, "error": "no"})
        case "wrong_version":
            send({"jsonrpc": "1.0", "id": number, "result": {"content": []}})
        case "not_utf8":
            raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"a\xff\xfeb"}]}}\n'
                % number)  # fmt: skip
        case "not_json":
            raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[\n' % number)
        case "surrogate":
            raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"\\ud800"}]}}\n'
                % number)  # fmt: skip
        case "deep":
            raw(b'{"jsonrpc":"2.0","id":%d,"result":{"structuredContent":%b1%b}}\n'
                % (number, b'{"a":' * 5000, b"}" * 5000))  # fmt: skip
        case "giant":
            text(number, "x" * int(arguments.get("characters", 2_000_000)))
        case "endless":
            while True:
                raw(b"x" * 65536)
        case "many_blocks":
            result(number, {"content": [{"type": "text", "text": "y"}] * arguments["blocks"]})
        case "many_messages":
            for _ in range(5000):
                send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            text(number, "after them")
        case "progress":
            token = arguments.get("_token", number)
            for done in ("much", -1, 1e308, None, [1]):
                note = {"progressToken": token, "progress": done, "message": 5}
                send({"jsonrpc": "2.0", "method": "notifications/progress", "params": note})
            text(number, "done")
        case "twice":
            text(number, "first")
            text(number, "second")
        case "other_id":
            text(987654, "for another request")
            text(number, "for you")
        case "sampling" | "elicitation" | "roots":
            ask_back(number, name)
        case "unknown_request":
            send({"jsonrpc": "2.0", "id": "q", "method": "no/such", "params": {}})
            text(number, json.dumps(json.loads(sys.stdin.readline())["error"]["code"]))
        case "slow":
            time.sleep(0.3)
            text(number, "at last")
        case "never":
            pass
        case "stuck":
            time.sleep(600)
        case "closes":
            OUT.close()
            os.close(1)
            time.sleep(60)
        case "exits":
            sys.stderr.write("out of ideas\n")
            os._exit(7)
        case "half":
            raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"ty' % number)
            os._exit(0)
        case "grandchild":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            text(number, str(child.pid))
        case "garbage":
            garbage(number, int(arguments["seed"]))
        case "mutated":
            mutated(number, int(arguments["seed"]))
        case "pid":
            text(number, str(os.getpid()))
        case "environment":
            text(number, json.dumps(dict(os.environ)))
        case "learn":
            TOOLS.append({"name": arguments["tool"], "inputSchema": ANY})
            text(number, "ok")
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        case _:
            text(number, "fine")


def ask_back(number: object, name: str) -> None:
    """Ask the client for something in mid call, and tell what it said."""
    asked = {
        "sampling": (
            "sampling/createMessage",
            {
                "messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}],
                "maxTokens": 5,
            },
        ),
        "elicitation": (
            "elicitation/create",
            {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}},
        ),
        "roots": ("roots/list", {}),
    }
    method, params = asked[name]
    send({"jsonrpc": "2.0", "id": "back", "method": method, "params": params})
    answer = json.loads(sys.stdin.readline())
    text(number, json.dumps(answer.get("result") or answer.get("error")))


NAMES = (
    *("wrong_type", "wrong_content", "wrong_error", "wrong_version", "not_utf8", "not_json"),
    *("surrogate", "deep", "giant", "endless", "many_blocks", "many_messages", "progress", "twice"),
    *("other_id", "sampling", "elicitation", "roots", "unknown_request", "slow", "never", "stuck"),
    *("closes", "exits", "half", "grandchild", "garbage", "fine", "pid", "environment", "learn"),
    "mutated",
)
ANY = {"type": "object"}
TOOLS = [{"name": name, "inputSchema": ANY} for name in NAMES]
BAD_TOOLS = [
    {"name": "bad schema", "inputSchema": {"type": "array"}},
    {"name": "bad type", "inputSchema": {"type": "object", "properties": {"a": {"type": "no"}}}},
    {"name": "big schema", "inputSchema": {"type": "object", "description": "x" * 100_000}},
    {"name": "", "inputSchema": ANY, "description": "no name"},
    {"name": "x" * 500, "inputSchema": ANY, "description": "d" * 100_000},
    {"name": "délicieux!", "inputSchema": ANY},
    {"name": "delicieux!", "inputSchema": ANY},
    {
        "name": "slow_pattern",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}},
            "patternProperties": {"^(b+)+$": {"type": "string"}},
        },
    },
]


def serve(line: str, extra: list) -> None:
    message = json.loads(line)
    number, method = message.get("id"), message["method"]
    match method:
        case "initialize":
            info = {"name": "hostile", "version": "1"}
            able = {"tools": {"listChanged": True}}
            version = message["params"]["protocolVersion"]
            result(number, {"protocolVersion": version, "capabilities": able, "serverInfo": info})
        case "tools/list":
            result(number, {"tools": TOOLS + extra})
        case "tools/call":
            params = message["params"]
            call(number, params["name"], {"blocks": 20_000} | (params.get("arguments") or {}))
        case _ if number is not None:
            send({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "no"}})


def main() -> None:
    behaviour = sys.argv[1] if len(sys.argv) > 1 else ""
    match behaviour:
        case "silent":
            time.sleep(600)
        case "garbage":
            for seed in range(200):
                raw(noise(seed, 500) + b"\n")
        case "exit":
            sys.exit("no licence")
        case "deaf":
            sys.stdin.readline()
            os.close(0)
            time.sleep(600)
        case "stubborn":
            import signal

            signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        serve(line, BAD_TOOLS if behaviour == "tools" else [])
    if behaviour == "stubborn":
        time.sleep(600)


if __name__ == "__main__":
    main()
