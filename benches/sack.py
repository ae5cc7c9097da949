"""What an acknowledgement costs a TCP sender whose receiver lies: `fullbore lab sack`, ours and the running kernel's.

Ours runs on a virtual clock and its CPU is the thread's; the kernel's is that of the calls that hand acknowledgements to
a TUN device, and of the thread that serves. Each is held against its own floor (dupack) and its own honest receiver.
"""

import json
import statistics
import subprocess
import tempfile
from pathlib import Path

MODES = ["dsack-storm", "find-first", "cover-all", "random", "rack", "renege", "split", "garbage"]
# What the kernel is run against: renege and split take it minutes.
KERNEL_MODES = ["dsack-storm", "find-first", "cover-all", "random", "rack", "garbage"]
# Those that made its queue, or RACK, be searched.
COMPARED = ["rack", "random", "find-first", "cover-all"]
OUR_WINDOWS = [4, 32, 128, 256]
KERNEL_WINDOWS = [32, 128]

TO_FLOOR_MAX = 1.5
GROWTH_MAX = 2.0
TO_KERNEL_MAX = 0.5
# A run ends with a window, of which it has eight or nine, and at a multiple of half a round trip.
GOODPUT_MIN = 0.9
# Segments of 204 bytes fill what a connection may keep of them (RECORDS_MAX) before they fill a larger window.
SPLIT_WINDOW_MAX = 48
# The honest receiver, and the floor of those that lie.
HONEST = ["honest", "dupack"]


def measure(binary, sender, windows, modes, *options):
    """{(window in MiB, mode): row}"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sack.json"
        names = ",".join(f"{w}m" for w in windows)
        command = [binary, "lab", "sack", "--senders", sender, "--windows", names, "--receivers", ",".join(HONEST + modes)]
        command += ["--json", path, "--html", Path(folder) / "sack.html", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rows = json.loads(path.read_text())["rows"]
    return {(row["window"] >> 20, row["receiver"]): row for row in rows}


def medians(rounds):
    """The rounds' rows with the median of each figure."""
    keys = ("cpu_ns_per_ack", "cpu_ns_per_kib", "bytes_per_s")
    found = {}
    for key, row in rounds[0].items():
        found[key] = {**row, **{k: statistics.median(r[key][k] for r in rounds) for k in keys}}
        found[key]["timeouts"] = max(r[key]["timeouts"] for r in rounds)
    return found


def ratio(rows, window, mode, to, key):
    return rows[window, mode][key] / rows[window, to][key]


def cost_table(ours, kernel):
    head = "| receiver | " + " | ".join(f"ours, {w} MiB" for w in OUR_WINDOWS)
    if kernel:
        head += " | " + " | ".join(f"kernel, {w} MiB" for w in KERNEL_WINDOWS)
    lines = [head + " |", "|---" * head.count("|") + "|"]
    for mode in HONEST + MODES:
        cells = [f"{ours[w, mode]['cpu_ns_per_ack']:.0f}" for w in OUR_WINDOWS]
        if kernel:
            cells += [f"{kernel[w, mode]['cpu_ns_per_ack']:.0f}" if (w, mode) in kernel else "-" for w in KERNEL_WINDOWS]
        lines.append(f"| {mode} | {' | '.join(cells)} |")
    return lines


def floor_lines(ours, kernel):
    """(line, kept) for each floor."""
    found = []

    def add(what, measured, bound, kept):
        found.append((f"| {what} | {measured} | {bound} | {'yes' if kept else '**no**'} |", kept))

    for mode in MODES:
        worst = max(ratio(ours, w, mode, "dupack", "cpu_ns_per_ack") for w in OUR_WINDOWS)
        growth = ours[256, mode]["cpu_ns_per_ack"] / ours[4, mode]["cpu_ns_per_ack"]
        kept = worst <= TO_FLOOR_MAX and growth <= GROWTH_MAX
        add(f"CPU per ACK, {mode}", f"{worst:.2f} x dupack, {growth:.2f} x from 4 to 256 MiB", f"at most {TO_FLOOR_MAX} and {GROWTH_MAX}", kept)
    for window in KERNEL_WINDOWS if kernel else []:
        for mode in COMPARED:
            us = ratio(ours, window, mode, "honest", "cpu_ns_per_kib")
            them = ratio(kernel, window, mode, "honest", "cpu_ns_per_kib")
            what = f"CPU per KiB, {mode}, {window} MiB"
            add(what, f"{us:.2f} x honest; kernel {them:.2f} x honest", f"at most {TO_KERNEL_MAX} of the kernel's", us <= TO_KERNEL_MAX * them)
    return found


def stream_lines(rows, name):
    """Time-outs and goodput of the modes that do not ask for them."""
    modes = [mode for mode in MODES if mode != "renege"]
    runs = [(w, mode) for w in OUR_WINDOWS for mode in modes]
    timeouts = sum(rows[run]["timeouts"] for run in runs)
    compared = [(w, mode) for w, mode in runs if mode != "split" or w <= SPLIT_WINDOW_MAX]
    goodput = {(w, mode): ratio(rows, w, mode, "dupack", "bytes_per_s") for w, mode in compared}
    (window, mode), worst = min(goodput.items(), key=lambda item: item[1])
    kept = worst >= GOODPUT_MIN and timeouts == 0
    line = f"| {name}: time-outs, least goodput | {timeouts}, {worst:.2f} x dupack's ({mode}, {window} MiB) | none, at least {GOODPUT_MIN} |"
    return f"{line} {'yes' if kept else '**no**'} |", kept


def run(binary, rounds, is_root):
    """The tables, and whether the floors are kept."""
    ours, kernel = [], []
    for number in range(rounds):
        print(f"sack: round {number + 1}", flush=True)
        ours.append(measure(binary, "ours", OUR_WINDOWS, MODES))
        if is_root:
            kernel.append(measure(binary, "kernel", KERNEL_WINDOWS, KERNEL_MODES))
    ours, kernel = medians(ours), medians(kernel) if kernel else None
    checked = floor_lines(ours, kernel)
    checked.append(stream_lines(ours, "CUBIC"))
    for name, options in (
        ("CUBIC, claims never taken back", ["--plain"]),
        ("BBR", ["--congestion", "bbr"]),
        ("BBR, claims never taken back", ["--congestion", "bbr", "--plain"]),
    ):
        checked.append(stream_lines(measure(binary, "ours", OUR_WINDOWS, MODES, *options), name))
    lines = ["CPU nanoseconds of the sender for each acknowledgement, RTT 100 ms, CUBIC:", "", *cost_table(ours, kernel), ""]
    if kernel:
        lines += ["Goodput under attack in MB/s, kernel / ours:", ""]
        lines += ["| receiver | " + " | ".join(f"{w} MiB" for w in KERNEL_WINDOWS) + " |", "|---|---|---|"]
        for mode in ["dupack", *KERNEL_MODES]:
            cells = [f"{kernel[w, mode]['bytes_per_s'] / 1e6:,.0f} / {ours[w, mode]['bytes_per_s'] / 1e6:,.0f}" for w in KERNEL_WINDOWS]
            lines.append(f"| {mode} | {' | '.join(cells)} |")
        lines.append("")
    lines += ["| figure | measured | floor | kept |", "|---|---|---|---|", *[line for line, _ in checked]]
    return lines, all(kept for _, kept in checked)
