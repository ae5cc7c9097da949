#!/usr/bin/env python3
"""Runs where udp.py says: at the near end of an emulated link, or in a network of its own.

    udp_inside.py PLAN.json FOUND.json
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "interop")]

import harness  # noqa: E402
import link_inside  # noqa: E402
import servers  # noqa: E402

# What is long enough for any of these.
LONG = 8 * harness.GIB
# Until both flows have left slow start.
SETTLE_SECONDS = 5


def udp_words(context, server, *ends):
    return [str(word) for word in context.cp_command(server, "-q", "--transport", "udp", *ends)]


def serve_udp(context):
    return servers.serve(context, "--udp", str(context.next_port + 1), "--quiet")


def speed(plan, shared, folder):
    """MB/s of each copy, by transport and way."""
    subprocess.run(["ip", "link", "set", "lo", "mtu", str(plan["mtu"]), "up"], check=True)
    context = harness.Context(Path(plan["binary"]), folder, shared, seed=0, number=1)
    try:
        server = serve_udp(context)
        source = context.file(plan["bytes"], server.here("source"))
        found = {}
        for number in range(plan["rounds"] + 1):
            for transport in ("tcp", "udp"):
                for way in ("get", "put"):
                    target = folder / "down" if way == "get" else server.here("up")
                    target.unlink(missing_ok=True)
                    ends = (server.url("source"), target) if way == "get" else (source, server.url("up"))
                    command = [str(w) for w in context.cp_command(server, "-q", "--transport", transport, "--connections", "1", *ends)]
                    start = time.monotonic()
                    subprocess.run(command, check=True, env=context.env)
                    seconds = time.monotonic() - start
                    harness.same(source, target)
                    if number > 0:
                        found.setdefault(f"{transport} {way}", []).append(plan["bytes"] / seconds / 1e6)
            print(f"  round {number}: {({key: round(values[-1]) for key, values in found.items()})}", flush=True)
        return found
    finally:
        context.close()


def allocated(path):
    """Bytes that have been written of a file, as far as blocks tell."""
    return path.stat().st_blocks * 512 if path.exists() else 0


def fair(plan, shared, folder):
    """Bytes a second of a download with the kernel's TCP and of a copy over UDP that share the link."""
    context = link_inside.FarContext(Path(plan["binary"]), folder, shared, seed=0, number=1)
    try:
        web, files = link_inside.nginx(context), serve_udp(context)
        for server in (web, files):
            with open(server.here("long"), "wb") as file:
                file.truncate(LONG)
        targets = {"https": folder / "https", "udp": folder / "udp"}
        commands = [
            ["curl", "-sSfk", "-o", str(targets["https"]), f"https://{web.host}:{web.port}/long"],
            udp_words(context, files, "--in-place", files.url("long"), targets["udp"]),
        ]
        children = [subprocess.Popen(command, env=context.env) for command in commands]
        time.sleep(SETTLE_SECONDS)
        before = {name: allocated(path) for name, path in targets.items()}
        time.sleep(plan["seconds"])
        after = {name: allocated(path) for name, path in targets.items()}
        for child in children:
            assert child.poll() is None, "both are under way to the end"
            child.terminate()
            child.wait()
        found = {name: (after[name] - before[name]) / plan["seconds"] for name in targets}
        print(f"  {({name: round(rate * 8e-6, 1) for name, rate in found.items()})} Mbit/s", flush=True)
        return found
    finally:
        context.close()


def main():
    # When the link is ended, its files go, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    plan = json.loads(Path(sys.argv[1]).read_text())
    shared = harness.make_shared_folder()
    folder = shared / "bench"
    folder.mkdir()
    harness.make_keys(shared)
    try:
        found = {"speed": speed, "fair": fair}[plan["what"]](plan, shared, folder)
    finally:
        subprocess.run(["rm", "-rf", shared], check=False)
    Path(sys.argv[2]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
