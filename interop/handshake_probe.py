#!/usr/bin/env python3
"""Near end of a link: runs each command of a list some times, and writes how long the fastest run of each took.

    handshake_probe.py LIST.json FOUND.json        [{"name": ..., "command": [...], "runs": N, "forget": PATH or null}, ...]
"""

import json
import os
import subprocess
import sys
import time


def seconds(command, forget):
    if forget and os.path.exists(forget):
        os.unlink(forget)
    started = time.monotonic()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    took = time.monotonic() - started
    if done.returncode:
        sys.exit(f"exit {done.returncode} of {command}\n{done.stderr.decode(errors='replace')}")
    return took


with open(sys.argv[1]) as file:
    entries = json.load(file)
found = {e["name"]: min(seconds(e["command"], e["forget"]) for _ in range(e["runs"])) for e in entries}
with open(sys.argv[2], "w") as file:
    json.dump(found, file)
