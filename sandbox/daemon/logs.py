"""One JSON object a line on stderr. No parameters, no outputs, no source: names and numbers."""

import json
import sys
import time


def log(event: str, **facts: object) -> None:
    line = json.dumps({"at": round(time.time(), 3), "event": event, **facts})
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
