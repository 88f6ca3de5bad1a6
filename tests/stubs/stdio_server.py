"""An MCP server on stdin and stdout, of either era; its tools misbehave on request.

Runs as a program of its own inside the sandbox: `python -c <this file> ERA`.
"""

import json
import os
import sys

MODERN = "2026-07-28"
SPOILT = {
    "garbage": b"this is no message\n" * 10,
    "litter": b"this is no message\n" * 1_000,
    "endless": b"x" * (5 << 20),
    "deep": b"[" * 100_000 + b"\n",
    "surrogate": b'{"jsonrpc":"2.0","method":"x\\ud800"}\n',
    "chatter": b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}\n' * 1_500_000,
}


def say(message: dict) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def call(number: int, name: str, given: dict, meta: dict) -> dict | None:
    if name == "die":
        sys.stderr.write(f"fatal: {given.get('words', '')} {os.environ.get('KEY', '')}\n")
        sys.stderr.flush()
        os._exit(1)
    if name == "wait":
        return None
    if name == "progress":
        token = meta["progressToken"]
        for done in (1, 2):
            progress = {"progressToken": token, "progress": done, "message": "on it"}
            say({"method": "notifications/progress", "params": progress})
    if name in SPOILT:
        sys.stdout.buffer.write(SPOILT[name])
        sys.stdout.flush()
    words = {"echo": json.dumps(given), "key": os.environ.get("KEY"), "pid": str(os.getpid()),
             "born": BORN, "heard": json.dumps(heard)}.get(name, "done")  # fmt: skip
    return {"content": [{"type": "text", "text": words}]}


def answer(message: dict, era: str) -> dict | None:
    method, params = message["method"], message.get("params", {})
    if method == "server/discover" and era == MODERN:
        return {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}
    if method == "initialize" and era != MODERN:
        return {"protocolVersion": era, "capabilities": {"tools": {}}, "serverInfo": {}}
    if method == "tools/list":
        names = ["echo", "key", "pid", "born", "heard", "die", "wait", "progress", *SPOILT]
        return {"tools": [{"name": one, "inputSchema": {"type": "object"}} for one in names]}
    if method == "tools/call":
        meta = params.get("_meta", {})
        return call(message["id"], params["name"], params.get("arguments", {}), meta)
    say({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
    return None


def main(era: str) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        heard.append(message.get("method"))
        if "id" in message and "method" in message:
            if message["method"] == "server/discover" and era == "quits":
                os._exit(1)
            result = answer(message, "2025-11-25" if era == "quits" else era)
            if result is not None:
                result |= {"resultType": "complete"} if era == MODERN else {}
                say({"id": message["id"], "result": result})


BORN = os.urandom(8).hex()
heard: list = []
if __name__ == "__main__":
    main(sys.argv[1])
