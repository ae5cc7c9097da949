#!/usr/bin/env python3
"""Copies over UDP: how fast on this machine, over links that lose packets, and beside a flow of the kernel's.

    benches/udp.py [--quick] [--only speed|loss|fair]        (or benches/run.py --only udp)

Needs root (namespaces, TUN devices), and nginx and curl as benches/link.py does.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "interop")]

import link  # noqa: E402

MIB, GIB = 1 << 20, 1 << 30
HEAD = ["| figure | measured | floor | kept |", "|---|---|---|---|"]
FAIR_SECONDS = 60
# Mbit/s and ms of the link that is shared, without loss; its queue holds one product of both.
FAIR_LINK = (100, 40)
MTU = 1500
ROUNDS = 3


def situations(quick):
    mib = 96 if quick else 192
    lossy = ["https", "cp-udp"]
    return {
        "bbr": link.Situation("loss", 100, 100, mib, lossy, loss="1%"),
        # A single flow with CUBIC needs minutes: its rate is compared.
        "cubic": link.Situation("loss", 100, 100, 2 * mib, lossy, loss="1%", congestion="cubic", seconds_max=30),
        "long": link.Situation("loss", 100, 200, mib, lossy, loss="2%"),
    }


def over_loss(binary, quick):
    """The tables of the links that lose packets, and (what, measured, floor, kept)."""
    lines, checked, found = [], [], {}
    for name, situation in situations(quick).items():
        found[name], _ = link.measure(binary, situation, 1 if quick else ROUNDS)
        lines += link.table(situation, found[name])
    for way in ("get", "put"):
        for name, title, least in (("bbr", "HTTPS with the kernel's BBR", 0.9), ("cubic", "HTTPS with CUBIC", 30)):
            ratio = found[name]["cp-udp", way]["steady"] / found[name]["https", way]["steady"]
            checked.append((f"100 Mbit/s x 100 ms, 1% loss, {way}", f"{ratio:.2f} x {title}", f"at least {least}", ratio >= least))
        share = found["long"]["cp-udp", way]["steady"] / (100 * 125_000)
        checked.append((f"100 Mbit/s x 200 ms, 2% loss, {way}", f"{share:.2f} of the link", "at least 0.7", share >= 0.7))
    return lines, checked


def inside(binary, options, plan):
    """Runs `udp_inside.py` at the near end of a link, or in a network of its own without one; returns what it found."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, found = Path(folder) / "plan.json", Path(folder) / "found.json"
        wanted.write_text(json.dumps({"binary": str(binary), **plan}))
        program = [sys.executable, HERE / "udp_inside.py", wanted, found]
        command = [binary, "lab", "link", "-q", *options, "--", *program] if options else ["unshare", "-n", *program]
        subprocess.run(command, check=True)
        return json.loads(found.read_text())


def beside(binary, quick):
    """A copy over UDP and a download with CUBIC share a link for a while."""
    mbit, rtt = FAIR_LINK
    options = ["--rate", f"{mbit}mbit", "--rtt", f"{rtt}ms", "--congestion", "cubic", "--queue", "1bdp", "--tcp-buffers", link.TCP_BUFFERS]
    found = inside(binary, options, {"what": "fair", "seconds": 30 if quick else FAIR_SECONDS})
    both = found["udp"] + found["https"]
    share = min(found["udp"], found["https"]) / both
    measured = f"{found['udp'] / both:.2f} UDP, {found['https'] / both:.2f} CUBIC, together {both * 8e-6:.0f} Mbit/s"
    return [(f"{mbit} Mbit/s x {rtt} ms beside HTTPS with CUBIC", measured, "neither under a third", share >= 1 / 3)]


def on_this_machine(binary, quick):
    """One connection over a loopback device with Ethernet's MTU, both ends on this machine's cores."""
    found = inside(binary, None, {"what": "speed", "mtu": MTU, "bytes": GIB // (4 if quick else 1), "rounds": 2 if quick else 5})
    medians = {key: statistics.median(values) for key, values in found.items()}
    lines = [f"Loopback with an MTU of {MTU}, one connection, MB/s:", "", "| | get | put |", "|---|---|---|"]
    for transport, title in (("tcp", "`fullbore cp`"), ("udp", "`fullbore cp --transport udp`")):
        lines.append(f"| {title} | {medians[f'{transport} get']:,.0f} | {medians[f'{transport} put']:,.0f} |")
    checked = []
    for way in ("get", "put"):
        gbit = medians[f"udp {way}"] * 8e-3
        checked.append((f"loopback, MTU {MTU}, {way}", f"{gbit:.1f} Gbit/s", "at least 4", gbit >= 4))
    return [*lines, ""], checked


def run(binary, quick, only=None):
    """The tables' lines, and whether every floor is kept."""
    if os.geteuid() != 0:
        raise SystemExit("udp: needs root, for network namespaces and TUN devices; nothing was measured")
    link.install()
    lines, checked = [], []
    if only in (None, "speed"):
        more, floors = on_this_machine(binary, quick)
        lines, checked = lines + more, checked + floors
    if only in (None, "loss"):
        more, floors = over_loss(binary, quick)
        lines, checked = lines + more, checked + floors
    if only in (None, "fair"):
        checked += beside(binary, quick)
    lines += HEAD
    lines += [f"| {what} | {measured} | {floor} | {'yes' if kept else '**no**'} |" for what, measured, floor, kept in checked]
    return lines, all(kept for *_, kept in checked)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=HERE.parent / "target/release/fullbore")
    parser.add_argument("--quick", action="store_true", help="one round of fewer bytes")
    parser.add_argument("--only", choices=["speed", "loss", "fair"])
    args = parser.parse_args()
    lines, kept = run(args.binary.resolve(), args.quick, args.only)
    print("\n" + "\n".join(lines))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
