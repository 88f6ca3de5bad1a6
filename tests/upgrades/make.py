"""Makes the data of an earlier release that `test_upgrade.py` starts the product on.

    python tests/upgrades/make.py CHECKOUT TARGET

CHECKOUT is a checkout of that release with its `.venv`; TARGET is a new directory. Starts that
product on a data directory in /tmp, creates an agent, a tool, calls, and a call that awaits
approval, stops it, and writes the database's dump, the keys, the anchors and a workspace. All
values are test values. `facts.json` has what the test needs to know: tokens, names, identifiers.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

SOURCE = "def main(parameters):\n    return parameters['text'].upper()\n"
TOOL = {
    "name": "shout", "type": "code", "title": "Shout", "description": "Returns text in capitals.",
    "arguments": [{"name": "text", "type": "string", "description": "Any.", "required": True}],
    "group": ["upgrade"], "implementation": {"language": "python", "source": SOURCE},
}  # fmt: skip
YEARS = 30
KEPT = ("keys", "secret_key", "anchors", "workspaces", "audit-archive", "outputs")
DUMP = """
import subprocess, sys
from pathlib import Path
from config import embedded, postgres
data, target = map(Path, sys.argv[1:])
programs = next(Path(sys.prefix).rglob("pg_dump"))
with embedded.running(data):
    subprocess.run(
        [programs, "--format=custom", "--no-owner", "--no-comments", f"--file={target}",
         f"--dbname={embedded.database_url(data)}"], check=True)
"""


def main(checkout: Path, target: Path) -> None:
    data = Path(tempfile.mkdtemp(prefix="tc-up-"))
    data.chmod(0o711)
    target.mkdir(parents=True)
    _let_approvals_wait(checkout)
    environment = os.environ | {
        "TOOLCRIB_DATA": str(data),
        "CONFIRMATION_MINUTES": str(YEARS * 365 * 24 * 60),
    }
    python = str(checkout / ".venv" / "bin" / "python")

    def manage(*words: str, text: str = "") -> str:
        done = subprocess.run(
            [python, "manage.py", *words], cwd=checkout, env=environment, input=text,
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    said = (data / "said").open("w+")
    product = subprocess.Popen(
        [python, "manage.py", "up", "--port", str(port), "--no-browser"],
        cwd=checkout, env=environment, start_new_session=True, stdout=said.fileno(),
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(lambda: _get(f"{url}/readyz") is not None)
        asking = TOOL | {"name": "shout_asking", "requires_confirmation": True}
        for tool in (TOOL, asking):
            manage("import_tools", "-", text=json.dumps(tool))
        made = json.loads(manage("create_agent", "scout", "--group", "upgrade", "--json"))
        token = made["token"]
        done = _post(url, token, "shout", {"text": "before"})
        assert done["status"] == "Success", done
        open_call = _post(url, token, "shout_asking", {"text": "approved"})
        assert open_call["status"] == "RequiresConfirmation", open_call
        time.sleep(5)  # lint: the sealer has sealed the records of an idle product by then
    finally:
        product.send_signal(signal.SIGINT)
        product.wait(60)
    subprocess.run(
        [python, "-c", DUMP, str(data), str(target / "database.dump")],
        cwd=checkout, env=environment, check=True,
    )  # fmt: skip
    for name in KEPT:
        place = data / name
        if place.is_dir():
            shutil.copytree(place, target / name)
        elif place.is_file():
            shutil.copy(place, target / name)
    said.seek(0)
    password = next(line.split()[1] for line in said if line.startswith("Password:"))
    facts = {
        "token": token, "password": password, "before": done["execution_id"],
        "open": open_call["execution_id"],
    }  # fmt: skip
    (target / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
    shutil.rmtree(data)


def _let_approvals_wait(checkout: Path) -> None:
    """For years: the release allows a week, and when a held call expires is part of its evidence,
    so no later change of the row can move it."""
    settings = checkout / "config" / "settings.py"
    bound = 'env_int("CONFIRMATION_MINUTES", 15, least=1, most='
    text = settings.read_text()
    assert bound + "10_080)" in text
    settings.write_text(text.replace(bound + "10_080)", f"{bound}{10**9})"))


def _get(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


def _post(url: str, token: str, tool: str, parameters: dict[str, Any]) -> dict[str, Any]:
    body = {"parameters": parameters, "group": ["upgrade"], "options": {"wait_s": 30}}
    request = urllib.request.Request(
        f"{url}/api/v1/tools/{tool}/execute",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def _wait(ready: Any) -> None:
    until = time.monotonic() + 300
    while not ready():
        if time.monotonic() > until:
            raise TimeoutError("the product of the earlier release did not become ready")
        time.sleep(0.5)  # lint: this makes data and is no test


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
