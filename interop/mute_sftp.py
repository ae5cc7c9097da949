#!/usr/bin/env python3
"""An SFTP server for sshd's Subsystem that answers everything but requests for content, READ and WRITE."""

import struct
import sys

INIT, VERSION, OPEN, CLOSE, READ, WRITE, STAT, STATUS, HANDLE, ATTRS = 1, 2, 3, 4, 5, 6, 17, 101, 102, 105
OK, UNSUPPORTED = 0, 8
# SSH_FILEXFER_ATTR_PERMISSIONS, and a device's mode.
DEVICE = struct.pack(">II", 4, 0o020666)


def read(n):
    data = sys.stdin.buffer.read(n)
    if len(data) < n:
        sys.exit(0)
    return data


def send(kind, body):
    sys.stdout.buffer.write(struct.pack(">IB", len(body) + 1, kind) + body)
    sys.stdout.buffer.flush()


while True:
    (length,) = struct.unpack(">I", read(4))
    message = read(length)
    kind, number = message[0], message[1:5]
    if kind == INIT:
        send(VERSION, struct.pack(">I", 3))
    elif kind == OPEN:
        send(HANDLE, number + struct.pack(">I", 1) + b"h")
    elif kind == STAT:
        send(ATTRS, number + DEVICE)
    elif kind not in (READ, WRITE):
        code = OK if kind == CLOSE else UNSUPPORTED
        send(STATUS, number + struct.pack(">III", code, 0, 0))
