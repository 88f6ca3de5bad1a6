"""One JSON object a line on stderr. No parameters, no outputs, no source: names and numbers."""

import json
import sys
import threading
import time
import traceback


def log(event: str, **facts: object) -> None:
    line = json.dumps({"at": round(time.time(), 3), "event": event, **facts})
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def log_crash(crash: threading.ExceptHookArgs) -> None:
    """Of a thread: where and what kind, without the text, which may hold what a caller sent."""
    frames = traceback.extract_tb(crash.exc_traceback)
    where = [f"{frame.filename}:{frame.lineno}" for frame in frames]
    log("crash", kind=crash.exc_type.__name__, where=where)
