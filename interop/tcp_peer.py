"""The kernel's side of `cases_tcp.py`, inside a network namespace: sets it up, starts our endpoint, and is its peer.

    tcp_peer.py direct FILE   kernel and endpoint side by side; FILE says what, as JSON
    tcp_peer.py far FILE      the endpoint at the far end of an emulated link
    tcp_peer.py near FILE     the kernel at its near end
"""

import hashlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

BLOCK = 1 << 18
PORT = 7000
KERNEL = {4: "10.79.0.1", 6: "fd79::1"}
OURS = {4: "10.79.0.2", 6: "fd79::2"}
# Linux: struct tcp_info.
TCP_INFO_RETRANS = 100


def run(*command):
    subprocess.run(command, check=True)


def sysctl(settings):
    for name, value in settings.items():
        Path("/proc/sys", name.replace(".", "/")).write_text(str(value))


def endpoint(job, *arguments, **options):
    """Starts `fullbore lab tcp`; what it says of connections goes to the file of the job."""
    command = [job["binary"], "lab", "tcp", *job.get("ours", []), *arguments]
    return subprocess.Popen(command, stderr=open(job["report"], "wb"), **options)


def connected(address, family):
    """The endpoint may only just have been started."""
    end = time.monotonic() + 20
    while True:
        try:
            kind = socket.AF_INET if family == 4 else socket.AF_INET6
            stream = socket.socket(kind)
            stream.settimeout(2)
            stream.connect(address)
            stream.settimeout(None)
            return stream
        except OSError:
            stream.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def exchange(stream, size):
    """Sends `size` bytes and reads to the end, at the same time. What came and went, hashed."""
    found = {}

    def send():
        digest, block, left = hashlib.sha256(), bytearray(os.urandom(BLOCK)), size
        while left:
            struct.pack_into("!Q", block, 0, left)
            part = memoryview(block)[: min(left, BLOCK)]
            stream.sendall(part)
            digest.update(part)
            left -= len(part)
        stream.shutdown(socket.SHUT_WR)
        found.update(sent=size, sent_sha256=digest.hexdigest())

    sender = threading.Thread(target=send)
    began = time.monotonic()
    sender.start()
    digest, got, buffer = hashlib.sha256(), 0, bytearray(BLOCK)
    while count := stream.recv_into(buffer):
        digest.update(memoryview(buffer)[:count])
        got += count
    sender.join()
    info = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    found.update(
        received=got,
        received_sha256=digest.hexdigest(),
        seconds=time.monotonic() - began,
        retransmissions=struct.unpack_from("I", info, TCP_INFO_RETRANS)[0],
    )
    return found


def wait_for_device():
    end = time.monotonic() + 20
    # With an address, and up.
    while "fullbore0" not in Path("/proc/net/route").read_text():
        assert time.monotonic() < end, "the endpoint made no device"
        time.sleep(0.02)


def wait_for_listener(port):
    """Until a program of the kernel's TCP listens there; a connection to find out would be one too many."""
    end = time.monotonic() + 20
    files = [Path("/proc/net/tcp"), Path("/proc/net/tcp6")]
    # Local port, any peer, TCP_LISTEN.
    while not any(f":{port:04X} " in line and " 0A " in line for file in files for line in file.read_text().splitlines()):
        assert time.monotonic() < end, f"nobody listens at {port}"
        time.sleep(0.02)


def direct(job):
    run("ip", "link", "set", "lo", "up")
    sysctl(job.get("sysctl", {}))
    family = job.get("family", 4)
    if job["role"] == "client":
        ours = endpoint(job, "--listen", str(PORT), "--count", "1", "--send", str(job["send"]), "--hash")
        found = exchange(connected((OURS[family], PORT), family), job["size"])
    elif job["role"] == "server":
        server = socket.create_server(("::", PORT), family=socket.AF_INET6, dualstack_ipv6=True)
        host = KERNEL[family] if family == 4 else f"[{KERNEL[family]}]"
        ours = endpoint(job, "--connect", f"{host}:{PORT}", "--send", str(job["send"]), "--hash")
        stream, _ = server.accept()
        found = exchange(stream, job["size"])
    else:
        # A program of its own is the peer.
        for command in job.get("first", []):
            subprocess.Popen(command, stdin=subprocess.DEVNULL)
        for port in job.get("ports", []):
            wait_for_listener(port)
        with open(job.get("stdin", "/dev/null"), "rb") as stdin, open(job.get("stdout", "/dev/null"), "wb") as stdout:
            ours = endpoint(job, *job["arguments"], stdin=stdin, stdout=stdout)
        wait_for_device()
        for command in job["then"]:
            run("sh", "-c", command)
        found = {}
    if job.get("ends", True):
        assert ours.wait(60) == 0, Path(job["report"]).read_text()
    else:
        ours.terminate()
    return found


def far(job):
    sysctl({"net.ipv4.ip_forward": 1})
    ours = endpoint(job, "--listen", str(PORT), "--count", "1", "--send", str(job["send"]), "--hash")
    ours.wait()


def near(job):
    run("ip", "route", "add", "10.79.0.0/24", "via", os.environ["FULLBORE_FAR"])
    found = exchange(connected((OURS[4], PORT), 4), job["size"])
    # The endpoint writes its line once it is over.
    end = time.monotonic() + 20
    while not Path(job["report"]).read_bytes().endswith(b"}\n"):
        assert time.monotonic() < end, "the endpoint does not end"
        time.sleep(0.02)
    return found


def main():
    mode, file = sys.argv[1], Path(sys.argv[2])
    job = json.loads(file.read_text())
    found = {"direct": direct, "far": far, "near": near}[mode](job)
    if found is not None:
        Path(job["found"]).write_text(json.dumps(found))


main()
