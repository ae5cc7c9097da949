#!/usr/bin/env python3
"""Runs at either end of an emulated link and measures it with plain sockets.

    link_probe.py serve            listens at FULLBORE_FAR: echoes, floods, and sends streams
    link_probe.py measure N        prints JSON: the round trip, the rates both ways, and N bytes received by TCP
    link_probe.py wait FILE        writes FILE and waits to be ended
"""

import contextlib
import hashlib
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

PORT = 7
FAR = os.environ.get("FULLBORE_FAR")
PINGS = 9
DATAGRAM = bytes(1400)
# Its headers, UDP and IP.
DATAGRAM_WIRE = len(DATAGRAM) + 28
FLOOD_SECONDS = 1.0
# The kernel cuts what is sent into datagrams of the size given (linux/udp.h).
UDP_SEGMENT = 103
SEGMENTS = 40


def flood(udp, peer, rate):
    """Sends more than the link takes (`rate`, bytes a second), for a while. Returns the datagrams sent."""
    udp.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, len(DATAGRAM))
    start = time.monotonic()
    sent = 0
    while (spent := time.monotonic() - start) < FLOOD_SECONDS:
        if sent * DATAGRAM_WIRE > 1.2 * rate * spent:
            time.sleep(0.0005)
            continue
        udp.sendto(DATAGRAM * SEGMENTS, peer)
        sent += SEGMENTS
    udp.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 0)
    return sent


def drain(udp, took):
    """Counts the datagrams of a flood that `took` begins: (their number, their rate in bytes a second)."""
    first, count = time.monotonic(), 1
    last = first
    udp.settimeout(1)
    while took:
        try:
            udp.recv(2048)
        except TimeoutError:
            break
        last = time.monotonic()
        count += 1
    return count, (count - 1) * DATAGRAM_WIRE / max(last - first, 1e-9)


def socket_for_floods():
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (33, 32):  # SO_RCVBUFFORCE, SO_SNDBUFFORCE; not for root of a user namespace
        with contextlib.suppress(PermissionError):
            udp.setsockopt(socket.SOL_SOCKET, option, 64 << 20)
    return udp


def serve_datagrams():
    udp = socket_for_floods()
    udp.bind((FAR, PORT))
    while True:
        udp.settimeout(None)
        data, peer = udp.recvfrom(2048)
        if data.startswith(b"flood"):
            flood(udp, peer, int(data[5:]))
        elif len(data) == len(DATAGRAM):
            udp.sendto(json.dumps(drain(udp, data)).encode(), peer)
        else:
            udp.sendto(data, peer)


def serve():
    tcp = socket.create_server((FAR, PORT))
    threading.Thread(target=serve_datagrams, daemon=True).start()
    while True:
        connection, _ = tcp.accept()
        threading.Thread(target=serve_stream, args=(connection,), daemon=True).start()


def serve_stream(connection):
    with connection:
        if size := connection.recv(20):
            connection.sendall(content(int(size)))


def content(size):
    return hashlib.shake_128(b"link").digest(size)


def measure(size, rate):
    udp = socket_for_floods()
    udp.settimeout(5)
    trips = []
    for _ in range(PINGS):
        start = time.perf_counter()
        udp.sendto(b"ping", (FAR, PORT))
        udp.recv(64)
        trips.append(time.perf_counter() - start)
    found = {"rtt": min(trips)}
    found["up_sent"] = flood(udp, (FAR, PORT), rate)
    udp.settimeout(10)
    found["up_count"], found["up_rate"] = json.loads(udp.recv(1000))
    udp.sendto(b"flood%d" % rate, (FAR, PORT))
    found["down_count"], found["down_rate"] = drain(udp, udp.recv(2048))
    with socket.create_connection((FAR, PORT)) as connection:
        connection.sendall(b"%d" % size)
        received = b"".join(iter(lambda: connection.recv(1 << 18), b""))
    found["is_same"] = received == content(size)
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    elif sys.argv[1] == "wait":
        Path(sys.argv[2]).write_text("here")
        time.sleep(600)
    else:
        measure(int(sys.argv[2]), int(sys.argv[3]))
