"""Sealers that are killed one after another: `python -m tests.audit.sealer_kills TIMES SEED`.

Each is a fork of this process, which has no connection and no thread, so that it begins at once.
"""

import os
import random
import signal
import sys
import threading
import time

import django

django.setup()

from audit.log import seal_batches, sealer  # noqa: E402 - there are no models before


def kill_sealer_after(lives_s: float) -> None:
    pid = os.fork()
    if not pid:
        sealer.Sealer(threading.Event()).run()
        os._exit(1)
    time.sleep(lives_s)  # lint: how long it lives is drawn by lot
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def main() -> None:
    times, seed = map(int, sys.argv[1:])
    sealer.TICK_S, sealer.ACTIVE_S, seal_batches.BATCH = 0.02, 0.05, 20
    chance = random.Random(seed)
    for _ in range(times):
        kill_sealer_after(chance.uniform(0.05, 0.8))


main()
