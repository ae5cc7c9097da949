"""An SFTP server over a socketpair, with clients that do not wait for replies: no network, no SSH.

Each end has a core of its own where there are two. Left to the scheduler, both start on one, take turns there, and
are spread out only after some 100 ms: small sizes then cost a third more a MiB than large ones, whatever the server does.
"""

import os
import socket
import statistics
import struct
import subprocess
import threading
import time
from pathlib import Path

MIB = 1 << 20
BLOCK = 4096
READ_BLOCK = 32768
CAP = 1 * MIB
PEAK_BYTES_MAX = 16 * MIB
# No cap may cost this much more than a cap, and a MiB of any size this much more than one of another.
RATIO_MAX = 1.1
FLAT_MAX = 1.25
# Below it, what a start costs shows: such a size may be dearer than larger ones, never cheaper.
FLAT_FROM_MIB = 32


def frame(kind, body):
    return struct.pack(">IB", len(body) + 1, kind) + body


def text(data):
    return struct.pack(">I", len(data)) + data


class Session:
    """One server process on one end of a socketpair; it and this process each have a core until `close`."""

    def __init__(self, command):
        self.cores = os.sched_getaffinity(0)
        self.socket, theirs = socket.socketpair()
        with theirs:
            self.child = subprocess.Popen([*map(str, command)], stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL)
        if len(self.cores) > 1:
            os.sched_setaffinity(self.child.pid, {max(self.cores)})
            os.sched_setaffinity(0, {min(self.cores)})
        self.buffer = bytearray()
        self.socket.sendall(frame(1, struct.pack(">I", 3)))
        assert self.reply()[0] == 2, "no VERSION"

    def reply(self):
        """(type, body) of the next packet."""
        while True:
            if len(self.buffer) >= 4:
                (length,) = struct.unpack_from(">I", self.buffer)
                if len(self.buffer) >= 4 + length:
                    packet = bytes(self.buffer[4 : 4 + length])
                    del self.buffer[: 4 + length]
                    return packet[0], packet[1:]
            data = self.socket.recv(1 << 20)
            assert data, "the server went away"
            self.buffer += data

    def open(self, path, flags):
        self.socket.sendall(frame(3, struct.pack(">I", 0) + text(os.fsencode(path)) + struct.pack(">II", flags, 0)))
        kind, body = self.reply()
        assert kind == 102, body
        return body[8:]

    def peak(self):
        for line in Path(f"/proc/{self.child.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return 0

    def cpu_seconds(self):
        """What the server has computed so far, to the nanosecond."""
        return int(Path(f"/proc/{self.child.pid}/schedstat").read_text().split()[0]) / 1e9

    def close(self):
        self.socket.close()
        self.child.wait(30)
        os.sched_setaffinity(0, self.cores)


class Replies:
    """Counts replies without taking them apart byte by byte: a thread of its own."""

    def __init__(self, session, expected):
        self.session, self.expected, self.count, self.failed = session, expected, 0, 0
        self.moved = threading.Condition()
        self.thread = threading.Thread(target=self.body)
        self.thread.start()

    def body(self):
        waiting = bytearray()
        while self.count < self.expected:
            data = self.session.socket.recv(1 << 20)
            assert data, "the server went away"
            waiting += data
            at = found = failed = 0
            while len(waiting) - at >= 4:
                (length,) = struct.unpack_from(">I", waiting, at)
                if len(waiting) - at < 4 + length:
                    break
                if waiting[at + 4] == 101 and waiting[at + 9 : at + 13] != b"\0\0\0\0":
                    failed += 1
                at += 4 + length
                found += 1
            del waiting[:at]
            with self.moved:
                self.count += found
                self.failed += failed
                self.moved.notify()

    def wait_for(self, count):
        with self.moved:
            self.moved.wait_for(lambda: self.count >= count)


def writes(command, folder, mib, cap):
    """For `mib` MiB of 4 KiB writes, at most `cap` bytes unanswered (None: no cap): seconds, the server's peak memory
    and its CPU seconds."""
    session = Session(command)
    path = os.path.join(folder, "target")
    handle = text(session.open(path, 2 | 8 | 16))
    count = mib * MIB // BLOCK
    block = text(os.urandom(BLOCK))
    packets = [frame(6, struct.pack(">I", n) + handle + struct.pack(">Q", n * BLOCK) + block) for n in range(count)]
    group = 16  # requests to a send, capped or not
    data = [b"".join(packets[i : i + group]) for i in range(0, count, group)]
    cpu = session.cpu_seconds()
    start = time.monotonic()
    replies = Replies(session, count)
    for i, piece in enumerate(data):
        if cap:
            replies.wait_for((i + 1) * group - cap // BLOCK)
        session.socket.sendall(piece)
    replies.wait_for(count)
    seconds = time.monotonic() - start
    cpu = session.cpu_seconds() - cpu
    replies.thread.join()
    assert not replies.failed, f"{replies.failed} writes failed"
    assert os.path.getsize(path) == mib * MIB
    peak = session.peak()
    session.close()
    os.unlink(path)
    return seconds, peak, cpu


def reads(command, folder, mib, pause=2):
    """Seconds beyond `pause` and peak memory for a burst of 32 KiB reads whose replies are left waiting at first."""
    path = os.path.join(folder, "source")
    with open(path, "wb") as file:
        for _ in range(mib):
            file.write(os.urandom(MIB))
    session = Session(command)
    handle = text(session.open(path, 1))
    count = mib * MIB // READ_BLOCK
    burst = b"".join(
        frame(5, struct.pack(">I", n) + handle + struct.pack(">QI", n * READ_BLOCK, READ_BLOCK)) for n in range(count)
    )
    start = time.monotonic()
    sender = threading.Thread(target=session.socket.sendall, args=(burst,))
    sender.start()
    time.sleep(pause)
    replies = Replies(session, count)
    replies.wait_for(count)
    seconds = time.monotonic() - start - pause
    sender.join()
    replies.thread.join()
    peak = session.peak()
    session.close()
    os.unlink(path)
    return seconds, peak


def median(rounds, function, *args):
    rows = [function(*args) for _ in range(rounds)]
    return statistics.median(r[0] for r in rows), max(r[1] for r in rows)


def is_flat(sizes, per_mib):
    """No size costs more a MiB than a smaller one, and from FLAT_FROM_MIB up none less either."""
    grows = any(later > FLAT_MAX * earlier for i, later in enumerate(per_mib) for earlier in per_mib[:i])
    large = [figure for mib, figure in zip(sizes, per_mib, strict=True) if mib >= FLAT_FROM_MIB]
    return not grows and max(large) <= FLAT_MAX * min(large)


def run(ours, peer, folder, is_quick):
    """The tables, and whether the floors are kept. The peer is left out where its time explodes."""
    sizes = [8, 32] if is_quick else [8, 16, 32, 64, 128, 256]
    rounds = 3 if is_quick else 5
    lines = [
        "4 KiB writes, seconds with at most 1 MiB unanswered / with no cap:",
        "",
        "| MiB | fullbore | ratio | fullbore peak MiB | OpenSSH | ratio |",
        "|---|---|---|---|---|---|",
    ]
    kept = True
    per_mib, cpu_per_mib = [], []
    for mib in sizes:
        # A short run is as noisy as a long one: the more of them.
        count = max(rounds, sizes[-1] // mib)
        pairs = [(writes(ours, folder, mib, CAP), writes(ours, folder, mib, None)) for _ in range(count)]
        capped = statistics.median(p[0][0] for p in pairs)
        free = statistics.median(p[1][0] for p in pairs)
        peak = max(p[1][1] for p in pairs)
        per_mib.append(free / mib)
        cpu_per_mib.append(statistics.median(p[1][2] for p in pairs) / mib)
        kept &= free <= RATIO_MAX * capped and peak < PEAK_BYTES_MAX
        theirs = "- | -"
        if mib <= 32 and os.path.exists(peer[0]):
            c, f = (writes(peer, folder, mib, cap)[0] for cap in (CAP, None))
            theirs = f"{c:.2f} / {f:.2f} | {f / c:.1f}"
        line = f"| {mib} | {capped:.3f} / {free:.3f} | {free / capped:.2f} | {peak / MIB:.1f} | {theirs} |"
        lines.append(line)
        print(line, flush=True)
    lines.append("")
    for what, figures in (("Milliseconds", per_mib), ("CPU milliseconds of the server", cpu_per_mib)):
        kept &= is_flat(sizes, figures)
        shown = ", ".join(f"{seconds * 1e3:.2f}" for seconds in figures)
        lines.append(f"{what} a MiB without a cap, by size: {shown}.")
    lines.append("")
    lines += ["READ burst, 32 KiB each, no reply read for 2 s: seconds after that, and peak memory:", ""]
    lines += ["| MiB | fullbore s | fullbore peak MiB | OpenSSH s | OpenSSH peak MiB |", "|---|---|---|---|---|"]
    for mib in [32] if is_quick else [64, 256]:
        seconds, peak = median(rounds, reads, ours, folder, mib)
        kept &= peak < PEAK_BYTES_MAX
        theirs = "- | -"
        if os.path.exists(peer[0]):
            s, p = reads(peer, folder, mib)
            theirs = f"{s:.2f} | {p / MIB:.0f}"
        lines.append(f"| {mib} | {seconds:.2f} | {peak / MIB:.1f} | {theirs} |")
    floors = f"no cap at most {RATIO_MAX} x a cap; time and CPU time per MiB at most {FLAT_MAX} x that of any smaller size, and within {FLAT_MAX} x from {FLAT_FROM_MIB} MiB up; peak under {PEAK_BYTES_MAX // MIB} MiB"
    lines += ["", f"Floors ({floors}): {'kept' if kept else '**missed**'}."]
    return lines, kept
