#!/usr/bin/env python3
"""Copies over emulated links: fullbore, HTTPS, OpenSSH's scp, and for many files tar and rsync.

    benches/link.py [--rounds N] [--quick] [--only long|fast|flat|loss|many]   (or benches/run.py --only link)

Needs root (namespaces, TUN devices) and nginx, curl, openssl, rsync and OpenSSH; what is missing is
installed where apt-get is. Programs alternate; each copy logs in anew, and that counts for the wall time,
not for the steady rate, which is that of the second half of the bytes on the wire.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
PACKAGES = {"nginx": "nginx-light", "curl": "curl", "openssl": "openssl", "rsync": "rsync", "sshd": "openssh-server", "scp": "openssh-client"}
DAEMON_FOLDERS = ":/usr/local/sbin:/usr/sbin:/sbin"
# The largest window of both kernels: four times the largest product of rate and round trip below.
TCP_BUFFERS = "64m"
STREAMS = ["https", "cp-sshd", "cp-serve"]
OURS = ["cp-sshd", "cp-serve"]
# Two runs of the same program differ by this much here: "no slower" means within it.
NOISE = 1.03
MEMORY_BASE = 64 * MIB

NAMES = {
    "https": "HTTPS: `curl` - `nginx`",
    "scp": "OpenSSH `scp` - `sshd`",
    "cp-sshd": "`fullbore cp` - `sshd`",
    "cp-serve": "`fullbore cp` - `fullbore serve`",
    "cp-udp": "`fullbore cp --transport udp` - `fullbore serve --udp`",
    "tar": "`tar` over `ssh`",
    "rsync": "`rsync -r` over `ssh`",
}


class Situation:
    """A link and what is copied over it."""

    def __init__(self, group, mbit, rtt, mib=None, programs=STREAMS, **rest):
        self.group, self.mbit, self.rtt = group, mbit, rtt
        self.mib = mib
        self.programs = programs
        self.loss, self.congestion = rest.get("loss"), rest.get("congestion", "bbr")
        self.files, self.once = rest.get("files"), rest.get("once", [])
        # Copies are cut off after so long.
        self.seconds_max = rest.get("seconds_max")

    @property
    def bdp(self):
        return self.mbit * 125 * self.rtt

    @property
    def title(self):
        loss = f", {self.loss} loss" if self.loss else ""
        rate = f"{self.mbit // 1000} Gbit/s" if self.mbit >= 1000 else f"{self.mbit} Mbit/s"
        return f"{rate} x {self.rtt} ms{loss}, {self.congestion}"

    def options(self):
        options = ["--rate", f"{self.mbit}mbit", "--rtt", f"{self.rtt}ms", "--tcp-buffers", TCP_BUFFERS]
        options += ["--congestion", self.congestion]
        # A product of rate and round trip, but no less than what a burst needs.
        options += ["--queue", "1bdp" if self.rtt >= 10 else "10ms"]
        return options + (["--loss", self.loss] if self.loss else [])


def situations(quick):
    factor = 4 if quick else 1
    scp = ["https", "scp", *OURS]
    many = ["tar", "rsync", *OURS]
    return [
        Situation("long", 320, 200, 256 // factor, scp, once=["scp"]),
        Situation("fast", 1000, 100, 512 // factor, scp, once=["scp"]),
        *[Situation("flat", 320, rtt, 256 // factor) for rtt in (1, 10, 50, 100)],
        *[Situation("loss", 100, 100, 96, loss=loss) for loss in ("0.1%", "1%")],
        # With CUBIC a single flow needs minutes for what lanes carry in seconds: the rate is compared.
        *[Situation("loss", 100, 100, 512, loss=loss, congestion="cubic", seconds_max=30) for loss in ("0.1%", "1%")],
        Situation("many", 1000, 100, programs=many, files=2000 // factor),
    ]


def install():
    path = os.environ["PATH"] + DAEMON_FOLDERS
    missing = [package for program, package in PACKAGES.items() if not shutil.which(program, path=path)]
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise SystemExit(f"link: needs {', '.join(missing)}")
    print(f"installing {' '.join(missing)}", flush=True)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-q"], ["install", "-y", "-q", "--no-install-recommends", *missing]):
        subprocess.run(["apt-get", *command], check=True, env=env, stdout=subprocess.DEVNULL)


def measure(binary, situation, rounds):
    """{(program, way): medians}, and the emulator's report."""
    with tempfile.TemporaryDirectory() as folder:
        plan, found, report = (Path(folder) / name for name in ("plan.json", "found.json", "report.json"))
        plan.write_text(json.dumps({
            "binary": str(binary), "rounds": rounds, "programs": situation.programs, "mib": situation.mib,
            "files": situation.files, "once": situation.once, "seconds_max": situation.seconds_max,
        }))
        print(situation.title, flush=True)
        command = [binary, "lab", "link", "-q", *situation.options(), "--json", report]
        subprocess.run([*command, "--", sys.executable, HERE / "link_inside.py", plan, found], check=True)
        rows, report = json.loads(found.read_text()), json.loads(report.read_text())
    medians = {}
    for key in {(row["program"], row["way"]) for row in rows}:
        mine = [row for row in rows if (row["program"], row["way"]) == key]
        numbers = [name for name in mine[0] if name not in ("program", "way")]
        medians[key] = {name: statistics.median(row[name] for row in mine) for name in numbers}
    late = max(report[way]["late_p99_us"] for way in ("up", "down"))
    print(f"  emulator: 99% of the packets at most {late} microseconds late", flush=True)
    return medians, report


def table(situation, medians):
    if situation.files:
        lines = [f"{situation.title}, {situation.files:,} files of 4 KiB: milliseconds a file", ""]
        lines += ["| program | get | put | CPU s get / put | peak MiB, client / server |", "|---|---|---|---|---|"]
    else:
        size = f"cut off after {situation.seconds_max} s" if situation.seconds_max else f"{situation.mib} MiB"
        lines = [f"{situation.title}, {size}: steady Mbit/s on the wire, wall seconds", ""]
        lines += ["| program | get | put | CPU s get / put | peak MiB, client / server |", "|---|---|---|---|---|"]
    for program in situation.programs:
        get, put = medians[program, "get"], medians[program, "put"]
        if situation.files:
            speed = [f"{row['seconds'] / situation.files * 1e3:.2f}" for row in (get, put)]
        else:
            speed = [f"{row['steady'] * 8e-6:.0f}, {row['seconds']:.1f} s" for row in (get, put)]
        peaks = [max(get[key], put[key]) / MIB for key in ("client_peak", "server_peak")]
        cpu = f"{get['cpu']:.1f} / {put['cpu']:.1f}"
        lines.append(f"| {NAMES[program]} | {speed[0]} | {speed[1]} | {cpu} | {peaks[0]:.0f} / {peaks[1]:.0f} |")
    return [*lines, ""]


def floors_of(situation, medians):
    """(what, measured, floor, kept) for what this link alone decides."""
    for program in OURS:
        for way in ("get", "put"):
            ours = medians[program, way]
            what = f"{situation.title}: {NAMES[program]}, {way}"
            if situation.files:
                ratio = ours["seconds"] / medians["tar", way]["seconds"]
                yield what, f"{ratio:.2f} x tar's time", "no slower", ratio <= NOISE
                continue
            https = medians["https", way]
            ratio = ours["steady"] / https["steady"]
            least = 0.97 if not situation.loss else 0.95 if situation.congestion == "bbr" else 4.0
            yield what, f"{ratio:.2f} x HTTPS's steady rate", f"at least {least}", ratio >= least
            if situation.group in ("long", "fast"):
                ratio = ours["seconds"] / https["seconds"]
                yield what, f"{ratio:.2f} x HTTPS's wall time", "at most 1.2", ratio <= 1.2
        peak = max(medians[program, way][key] for way in ("get", "put") for key in peaks_of(program))
        allowed = MEMORY_BASE + 2 * situation.bdp
        what = f"{situation.title}: {NAMES[program]}, peak memory"
        yield what, f"{peak / MIB:.0f} MiB", f"at most {allowed / MIB:.0f}", peak <= allowed


def peaks_of(program):
    return ("client_peak", "server_peak") if program == "cp-serve" else ("client_peak",)


def flatness(results):
    """The steady rate over all round trips at 320 Mbit/s."""
    flat = [medians for situation, medians in results if situation.group in ("long", "flat")]
    if len(flat) < 2:
        return
    for program in OURS:
        for way in ("get", "put"):
            rates = [medians[program, way]["steady"] for medians in flat]
            ratio = max(rates) / min(rates)
            yield f"320 Mbit/s, round trips of 1 to 200 ms: {NAMES[program]}, {way}", f"steady within {ratio:.2f} x", "at most 1.05", ratio <= 1.05


def run(binary, rounds, quick, only=None):
    """The tables' lines, and whether every floor is kept."""
    if os.geteuid() != 0:
        raise SystemExit("link: needs root, for network namespaces and TUN devices; nothing was measured")
    install()
    results, lines, checked = [], [], []
    for situation in situations(quick):
        if only in (None, situation.group):
            medians, _ = measure(binary, situation, rounds)
            results.append((situation, medians))
            lines += table(situation, medians)
            checked += floors_of(situation, medians)
    checked += flatness(results)
    lines += ["| figure | measured | floor | kept |", "|---|---|---|---|"]
    lines += [f"| {what} | {measured} | {floor} | {'yes' if kept else '**no**'} |" for what, measured, floor, kept in checked]
    return lines, all(kept for *_, kept in checked)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=HERE.parent / "target/release/fullbore")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round of a quarter of the bytes")
    parser.add_argument("--only", choices=["long", "fast", "flat", "loss", "many"])
    args = parser.parse_args()
    lines, kept = run(args.binary.resolve(), 1 if args.quick else args.rounds, args.quick, args.only)
    print("\n" + "\n".join(lines))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
