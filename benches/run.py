#!/usr/bin/env python3
"""The figures of benches/README.md: fullbore and OpenSSH in one run, alternating, medians.

    benches/run.py [--rounds N] [--mib N] [--quick] [--only copy|peers|backlog|files|link|udp|sack|tcp] [--write] [--check]

--write puts the tables into benches/README.md and README.md; --check fails when a floor is missed.
"""

import argparse
import contextlib
import datetime
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "interop")]

import backlog  # noqa: E402
import files  # noqa: E402
import harness  # noqa: E402
import link  # noqa: E402
import peers  # noqa: E402
import udp  # noqa: E402
import sack  # noqa: E402
import tcp  # noqa: E402

GIB = 1 << 30
MIB = 1 << 20
CIPHER = "aes128-gcm@openssh.com"
SFTP_SERVER = "/usr/lib/openssh/sftp-server"

# (what, ours, the peer's, at least this ratio or at most this one)
FLOORS = [
    ("get, MB/s", "fullbore get", "openssh get", "speed", 1.7, min),
    ("put, MB/s", "fullbore put", "openssh put", "speed", 2.2, min),
    ("get, CPU s/GiB", "fullbore get", "openssh get", "cpu", 0.55, max),
    ("put, CPU s/GiB", "fullbore put", "openssh put", "cpu", 0.55, max),
    ("cp from sshd, MB/s", "cp-sshd get", "openssh get", "speed", 1.0, min),
    ("cp to sshd, MB/s", "cp-sshd put", "openssh put", "speed", 1.0, min),
    ("sftp from serve, MB/s", "sftp-serve get", "openssh get", "speed", 1.0, min),
    ("sftp to serve, MB/s", "sftp-serve put", "openssh put", "speed", 1.0, min),
]
# Two runs of the same program differ by this much here: "no slower" means within it.
NOISE = 0.03
PEAK_BYTES_MAX = 64 * MIB
FLOORS_HEAD = "| figure | measured | floor | kept |"


class Bench:
    def __init__(self, args):
        self.args = args
        self.shared = harness.make_shared_folder()
        self.folder = self.shared / "bench"
        self.folder.mkdir()
        harness.make_keys(self.shared)
        self.context = harness.Context(args.binary.resolve(), self.folder, self.shared, seed=0, number=1)
        self.size = args.mib * MIB
        self.source = self.context.file(self.size)

    def close(self):
        self.context.close()
        shutil.rmtree(self.shared, ignore_errors=True)

    def servers(self):
        import servers

        lines = [f"Ciphers {CIPHER}", "LogLevel ERROR"]
        openssh = servers.sshd(self.context, *lines, subsystem=SFTP_SERVER, host_keys=["ed25519"])
        ours = servers.serve(self.context)
        for server in (openssh, ours):
            os.link(self.source, server.here("source"))
        return openssh, ours

    def sftp(self, server, way):
        known = ["-oUserKnownHostsFile=/dev/null", "-oStrictHostKeyChecking=no", "-oLogLevel=ERROR", "-F/dev/null"]
        batch = self.folder / f"batch-{server.name}-{way}"
        if way == "get":
            batch.write_text(f"get {server.path('source')} {self.folder}/down\n")
        else:
            batch.write_text(f"put {self.source} {server.path('up')}\n")
        command = ["sftp", "-q", *known, f"-oCiphers={CIPHER}", "-i", self.shared / "user_ed25519", "-b", batch]
        return [*command, "-P", str(server.port), f"{server.user}@{server.host}"]

    def cp(self, server, way):
        ends = (server.url("source"), self.folder / "down") if way == "get" else (self.source, server.url("up"))
        return self.context.cp_command(server, "-q", *ends, options=[f"Ciphers={CIPHER}"])

    def measure(self, way, server, command):
        """One copy: seconds, CPU seconds of all processes of both ends, and each end's peak memory."""
        target = self.folder / "down" if way == "get" else server.here("up")
        target.unlink(missing_ok=True)
        before = server.process.cpu_seconds()
        start = time.monotonic()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=self.context.env)
        peaks = Peaks(server.process, child.pid)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - start
        peaks.stop()
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0, f"exit {child.returncode}: {' '.join(map(str, command))}"
        time.sleep(0.3)  # the server's processes for this connection end and are counted
        cpu = server.process.cpu_seconds() - before + usage.ru_utime + usage.ru_stime
        harness.same(self.source, target)
        return {"speed": self.size / seconds / 1e6, "cpu": cpu / (self.size / GIB), **peaks.largest}

    def run(self):
        openssh, ours = self.servers()
        plans = {
            "openssh": lambda way: (openssh, self.sftp(openssh, way)),
            "fullbore": lambda way: (ours, self.cp(ours, way)),
            "cp-sshd": lambda way: (openssh, self.cp(openssh, way)),
            "sftp-serve": lambda way: (ours, self.sftp(ours, way)),
        }
        results = {}
        for round_number in range(self.args.rounds + 1):
            for name, plan in plans.items():
                for way in ("get", "put"):
                    found = self.measure(way, *plan(way))
                    if round_number == 0:
                        continue  # warms the caches
                    results.setdefault(f"{name} {way}", []).append(found)
                    print(f"round {round_number} {name:10} {way}: {found['speed']:7.0f} MB/s {found['cpu']:5.2f} s/GiB", flush=True)
        return {key: {k: statistics.median(r[k] for r in rows) for k in rows[0]} for key, rows in results.items()}


class Peaks:
    """Samples the largest resident process of each end until told to stop."""

    def __init__(self, server, client_pid):
        self.server, self.client_pid = server, client_pid
        self.largest = {"server_peak": 0, "client_peak": 0}
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.body)
        self.thread.start()

    def body(self):
        client = harness.Process.__new__(harness.Process)
        client.child = type("Child", (), {"pid": self.client_pid})
        while not self.is_over.wait(0.1):
            for key, process in (("server_peak", self.server), ("client_peak", client)):
                self.largest[key] = max(self.largest[key], process.memory()[1])

    def stop(self):
        self.is_over.set()
        self.thread.join()


NAMES = {
    "openssh": "OpenSSH `sftp` - `sshd`",
    "fullbore": "`fullbore cp` - `fullbore serve`",
    "cp-sshd": "`fullbore cp` - `sshd`",
    "sftp-serve": "`sftp` - `fullbore serve`",
}


def copy_table(medians):
    lines = [
        "| pair | get MB/s | get CPU s/GiB | put MB/s | put CPU s/GiB | peak MiB, client / server |",
        "|---|---|---|---|---|---|",
    ]
    for name, title in NAMES.items():
        get, put = medians[f"{name} get"], medians[f"{name} put"]
        peaks = [max(get[k], put[k]) / MIB for k in ("client_peak", "server_peak")]
        cells = [f"{get['speed']:,.0f}", f"{get['cpu']:.2f}", f"{put['speed']:,.0f}", f"{put['cpu']:.2f}"]
        lines.append(f"| {title} | {' | '.join(cells)} | {peaks[0]:.0f} / {peaks[1]:.0f} |")
    return lines


def floors(medians):
    """(text, kept) for each floor."""
    found = []
    for what, ours, theirs, key, bound, kind in FLOORS:
        ratio = medians[ours][key] / medians[theirs][key]
        kept = ratio >= bound * (1 - NOISE if bound == 1.0 else 1) if kind is min else ratio <= bound
        sign = "at least" if kind is min else "at most"
        found.append((f"| {what} | {ratio:.2f} x OpenSSH | {sign} {bound} | {'yes' if kept else '**no**'} |", kept))
    peak = max(medians[f"fullbore {way}"][k] for way in ("get", "put") for k in ("client_peak", "server_peak"))
    kept = peak < PEAK_BYTES_MAX
    found.append((f"| peak memory of each end | {peak / MIB:.0f} MiB | under 64 MiB | {'yes' if kept else '**no**'} |", kept))
    return found


def machine():
    model = "unknown CPU"
    with contextlib.suppress(OSError):
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        model = found[1] if found else model
    ssh = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=False).stderr.split(",")[0]
    today = datetime.date.today().isoformat()
    return f"{today}, {os.cpu_count()} cores of {model}, Linux {platform.release()}, {ssh}."


def write(path, mark, lines):
    """Puts `lines` between `<!-- MARK -->` and `<!-- /MARK -->`."""
    text = path.read_text()
    start, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    head, rest = text.split(start)
    tail = rest.split(end)[1]
    path.write_text(head + start + "\n" + "\n".join(lines) + "\n" + end + tail)


def copy_section(args):
    bench = Bench(args)
    try:
        medians = bench.run()
    finally:
        bench.close()
    checked = floors(medians)
    head = [f"Medians of {args.rounds} alternating rounds, {args.mib} MiB in memory, {CIPHER}, loopback. {machine()}", ""]
    table = [FLOORS_HEAD, "|---|---|---|---|", *[line for line, _ in checked]]
    return [*head, *copy_table(medians), "", *table], all(kept for _, kept in checked)


def peers_section(args):
    bench = Bench(args)
    try:
        lines, kept = peers.run(bench)
    finally:
        bench.close()
    head = f"Medians of {args.rounds} alternating rounds, {args.mib} MiB in memory, {CIPHER}, loopback. {machine()}"
    return [head, "", *lines], kept


def backlog_section(args):
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        lines, kept = backlog.run([args.binary.resolve(), "sftp-server"], [SFTP_SERVER], folder, args.quick)
    return [f"{machine()}", "", *lines], kept


def files_section(args):
    lines, kept = files.run(files.settings(args.binary.resolve(), 1 if args.quick else 3, args.quick))
    return [f"{machine()}", "", *lines], kept


def link_section(args):
    rounds = 1 if args.quick else 3
    lines, kept = link.run(args.binary.resolve(), rounds, args.quick)
    return [f"Medians of {rounds} alternating rounds. {machine()}", "", *lines], kept


def sack_section(args):
    rounds = 1 if args.quick else 3
    lines, kept = sack.run(args.binary.resolve(), rounds, os.geteuid() == 0)
    return [f"Medians of {rounds} rounds. {machine()}", "", *lines], kept


def tcp_section(args):
    rounds = 1 if args.quick else 3
    lines, kept = tcp.run(args.binary.resolve(), rounds, args.quick)
    return [f"Medians of {rounds} alternating rounds. {machine()}", "", *lines], kept


def udp_section(args):
    lines, kept = udp.run(args.binary.resolve(), args.quick)
    return [f"{machine()}", "", *lines], kept


# What can be measured; each gives the lines of its tables, and whether every floor was kept.
SECTIONS = {
    "copy": copy_section,
    "peers": peers_section,
    "backlog": backlog_section,
    "files": files_section,
    "link": link_section,
    "udp": udp_section,
    "sack": sack_section,
    "tcp": tcp_section,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=HERE.parent / "target/release/fullbore")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--quick", action="store_true", help="fewer rounds of fewer bytes")
    parser.add_argument("--only", choices=SECTIONS)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.mib = 3, 256
    all_kept = True
    sections = {}
    for mark in [args.only] if args.only else SECTIONS:
        sections[mark], kept = SECTIONS[mark](args)
        all_kept &= kept
    for mark, lines in sections.items():
        print("\n" + "\n".join(lines))
        if args.write:
            write(HERE / "README.md", mark, lines)
            if mark == "copy":
                write(HERE.parent / "README.md", mark, lines[: lines.index(FLOORS_HEAD) - 1])
    print("\nevery floor kept" if all_kept else "\na floor was missed")
    return 1 if args.check and not all_kept else 0


if __name__ == "__main__":
    sys.exit(main())
