"""A copy in plain text over loopback, and russh's, beside fullbore's: what is left to save, and who saves more."""

import os
import statistics
import subprocess
import time
from pathlib import Path

import harness

FOLDER = Path(__file__).resolve().parent / "peers"
# CPU of both ends, at most this much more than the plain copy's.
FLOOR_CPU_MAX = 1.3


def build():
    """The two programs beside fullbore; nobody who builds fullbore builds them."""
    subprocess.run(["cargo", "build", "--release", "--quiet", "--locked"], cwd=FOLDER, check=True)
    return FOLDER / "target/release/bench-peers"


class Peer:
    """One of them as a server, with a folder of its own."""

    def __init__(self, bench, program, name):
        self.program, self.name = program, name
        self.folder = bench.folder / name
        self.folder.mkdir()
        os.link(bench.source, self.here("source"))
        self.process = harness.Process(bench.context, [program, f"{name}-serve"])
        for _ in range(100):
            if "\n" in self.process.output():
                break
            time.sleep(0.05)
        self.port = self.process.output().split()[0]

    def here(self, name):
        return self.folder / name

    def command(self, bench, way):
        ends = [self.here("source"), bench.folder / "down"] if way == "get" else [bench.source, self.here("up")]
        return [self.program, f"{self.name}-{way}", self.port, *ends]

    def close(self):
        self.process.child.kill()
        self.process.wait()


def run(bench):
    """The lines of the table, and whether the floors are kept."""
    program = build()
    _, ours = bench.servers()
    peers = [Peer(bench, program, name) for name in ("floor", "russh")]
    plans = {"fullbore": lambda way: (ours, bench.cp(ours, way))}
    plans |= {peer.name: lambda way, peer=peer: (peer, peer.command(bench, way)) for peer in peers}
    rows = {}
    try:
        for number in range(bench.args.rounds + 1):
            for name, plan in plans.items():
                for way in ("get", "put"):
                    found = bench.measure(way, *plan(way))
                    if number == 0:
                        continue  # warms the caches
                    rows.setdefault(f"{name} {way}", []).append(found)
                    print(f"round {number} {name:10} {way}: {found['speed']:7.0f} MB/s {found['cpu']:5.2f} s/GiB", flush=True)
    finally:
        for peer in peers:
            peer.close()
    return table({key: {k: statistics.median(r[k] for r in found) for k in found[0]} for key, found in rows.items()})


NAMES = {
    "floor": "plain TCP, 256 KiB reads and writes",
    "fullbore": "`fullbore cp` - `fullbore serve`",
    "russh": "russh 0.65, tuned, a bare channel",
}


def table(medians):
    lines = ["| pair | get MB/s | get CPU s/GiB | put MB/s | put CPU s/GiB |", "|---|---|---|---|---|"]
    for name, title in NAMES.items():
        get, put = medians[f"{name} get"], medians[f"{name} put"]
        lines.append(f"| {title} | {get['speed']:,.0f} | {get['cpu']:.2f} | {put['speed']:,.0f} | {put['cpu']:.2f} |")
    lines += ["", "| figure | measured | floor | kept |", "|---|---|---|---|"]
    all_kept = True
    for way in ("get", "put"):
        ours, floor, russh = (medians[f"{name} {way}"] for name in ("fullbore", "floor", "russh"))
        checks = [
            (f"{way}, CPU", ours["cpu"] / floor["cpu"], "x plain TCP", "at most", FLOOR_CPU_MAX),
            (f"{way}, CPU", ours["cpu"] / russh["cpu"], "x russh", "at most", 1.0),
            (f"{way}, MB/s", ours["speed"] / russh["speed"], "x russh", "at least", 1.0),
        ]
        for what, ratio, unit, sign, bound in checks:
            kept = ratio <= bound if sign == "at most" else ratio >= bound
            all_kept &= kept
            lines.append(f"| {what} | {ratio:.2f} {unit} | {sign} {bound} | {'yes' if kept else '**no**'} |")
    return lines, all_kept
