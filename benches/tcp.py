"""Our TCP against the kernel's own on a long fast path: `fullbore lab tcp` behind `fullbore lab link`, as root.

The near end of the link is the kernel's TCP in all cases. At the far end it talks to the kernel's, or through that to our
endpoint on a TUN device. Both use CUBIC, with buffers of 64 MiB.

    tcp.py far PLAN.json | tcp.py near PLAN.json      what runs at either end
"""

import array
import fcntl
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

MIB = 1 << 20
BLOCK = MIB
RATIO_MIN = 0.97
BUFFERS = "64m"
# Ports of what sends to the near end, and of what takes from it.
SOURCE, SINK = 7001, 7002
# Endpoints at the far end: device, the kernel's address there, ours, port.
OURS = [("fb1", "10.79.0.1/24", "10.79.0.2", SOURCE), ("fb2", "10.80.0.1/24", "10.80.0.2", SINK)]


def serve(port, size):
    """The kernel's endpoint: sends `size` bytes to whoever connects, and takes what comes."""
    if os.fork():
        return
    server = socket.create_server(("0.0.0.0", port))
    block = os.urandom(BLOCK)
    while True:
        stream, _ = server.accept()
        for start in range(0, size, BLOCK):
            stream.sendall(memoryview(block)[: min(BLOCK, size - start)])
        stream.shutdown(socket.SHUT_WR)
        while stream.recv(BLOCK):
            pass
        stream.close()


def far(plan):
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    serve(SOURCE, plan["bytes"])
    serve(SINK, 0)
    for device, here, address, port in OURS:
        size = plan["bytes"] if port == SOURCE else 0
        command = [plan["binary"], "lab", "tcp", "--device", device, "--here", here, "--address", address]
        command += ["--listen", str(port), "--send", str(size), "--congestion", "cubic", "--buffers", BUFFERS]
        subprocess.Popen(command)
    time.sleep(10**6)


def connected(address):
    """What listens there may only just have been started."""
    end = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection(address, 5)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def unacked(stream):
    count = array.array("i", [0])
    fcntl.ioctl(stream, termios.TIOCOUTQ, count)
    return count[0]


def get(host, size):
    """Seconds from the first byte asked for to the last that came."""
    stream = connected((host, SOURCE))
    began, got, buffer = time.monotonic(), 0, bytearray(BLOCK)
    stream.settimeout(None)
    while count := stream.recv_into(buffer):
        got += count
    assert got == size, (got, size)
    return time.monotonic() - began


def put(host, size):
    """Seconds until the last byte was acknowledged."""
    stream = connected((host, SINK))
    stream.settimeout(None)
    block, began = os.urandom(BLOCK), time.monotonic()
    for start in range(0, size, BLOCK):
        stream.sendall(memoryview(block)[: min(BLOCK, size - start)])
    while unacked(stream):
        time.sleep(0.002)
    return time.monotonic() - began


def near(plan):
    kernel = os.environ["FULLBORE_FAR"]
    for _, _, address, _ in OURS:
        subprocess.run(["ip", "route", "add", address, "via", kernel], check=True)
    found = {"get": {}, "put": {}}
    for _ in range(plan["rounds"]):
        for way, move, ours in (("get", get, OURS[0][2]), ("put", put, OURS[1][2])):
            for name, host in (("kernel", kernel), ("ours", ours)):
                found[way].setdefault(name, []).append(move(host, plan["bytes"]))
    Path(plan["found"]).write_text(json.dumps(found))


def run(binary, rounds, quick):
    if os.geteuid() != 0:
        return ["Needs root."], True
    size = (256 if quick else 1024) * MIB
    with tempfile.TemporaryDirectory() as folder:
        plan = {"binary": str(binary), "bytes": size, "rounds": rounds, "found": f"{folder}/found.json"}
        file = Path(folder) / "plan.json"
        file.write_text(json.dumps(plan))
        command = [binary, "lab", "link", "-q", "--rtt", "100ms", "--rate", "1gbit", "--congestion", "cubic"]
        command += ["--tcp-buffers", BUFFERS, "--far", f"exec python3 {__file__} far {file}"]
        command += ["--", "python3", __file__, "near", file]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        found = json.loads(Path(plan["found"]).read_text())
    seconds = {way: {name: statistics.median(all_) for name, all_ in of.items()} for way, of in found.items()}
    names = {"get": "to the kernel", "put": "from the kernel"}
    lines = [f"1 Gbit/s x 100 ms, {size // MIB} MiB, slow start included: Mbit/s of payload", ""]
    lines += ["| | kernel | fullbore |", "|---|---|---|"]
    for way, name in names.items():
        rates = [f"{size * 8 / 1e6 / seconds[way][who]:.0f}" for who in ("kernel", "ours")]
        lines.append(f"| {name} | {' | '.join(rates)} |")
    lines += ["", "| figure | measured | floor | kept |", "|---|---|---|---|"]
    all_kept = True
    for way, name in names.items():
        ratio = seconds[way]["kernel"] / seconds[way]["ours"]
        kept = ratio >= RATIO_MIN
        all_kept &= kept
        lines.append(f"| {name}, rate | {ratio:.2f} x the kernel's | at least {RATIO_MIN} | {'yes' if kept else '**no**'} |")
    return lines, all_kept


if __name__ == "__main__":
    {"far": far, "near": near}[sys.argv[1]](json.loads(Path(sys.argv[2]).read_text()))
