"""Clients that mean harm, against `fullbore serve`: memory under a constant, no spinning, no escape."""

import contextlib
import os
import socket
import struct
import threading
import time

import paramiko
from harness import GIB, KIB, MIB, case, same, wait_until
from paramiko_peer import (
    CLOSE,
    DATA,
    EXTENDED,
    HANDLE,
    INIT,
    NAME,
    OPEN,
    OPEN_CREAT,
    OPEN_TRUNC,
    OPEN_WRITE,
    OPENDIR,
    READ,
    REALPATH,
    REMOVE,
    RENAME,
    RMDIR,
    SETSTAT,
    STAT,
    STATUS,
    SYMLINK,
    WRITE,
    RawSftp,
    packet,
    read_packet,
    request,
    status_code,
    string,
    u32,
    u64,
)
from servers import serve

# What one connection may cost the server: its buffers, queues and tables, with the program itself.
SERVER_BYTES_MAX = 64 * MIB


def connect(context, server, **options):
    client = RawSftp(server, context.shared / "user_ed25519", **options)
    context.closers.append(client.close)
    return client


def check_cost(server, seconds=3):
    """Memory under the constant, and next to no CPU while nothing can move."""
    _, peak = server.process.memory()
    assert peak < SERVER_BYTES_MAX, f"{peak / MIB:.1f} MiB resident"
    before = server.process.cpu_seconds()
    time.sleep(seconds)
    spent = server.process.cpu_seconds() - before
    assert spent < 0.1 * seconds, f"{spent:.2f} CPU seconds in {seconds} s of doing nothing"


def still_serves(context, server):
    context.cp(server, context.file(70_000), server.url("still-alive"))
    same(context.file(70_000), server.here("still-alive"))


def send_until_blocked(channel, data, limit):
    """Sends `data` again and again up to `limit` bytes; returns what was taken before it blocked for 2 s."""
    channel.settimeout(2)
    sent = 0
    with contextlib.suppress(socket.timeout):
        while sent < limit:
            sent += channel.send(data[sent % len(data) :])
    return sent


@case("hostile-512-mib-of-reads-never-read", alone=True)
def reads_never_read(context):
    server = serve(context)
    server.here("big").write_bytes(context.file(5 * MIB).read_bytes())
    client = connect(context, server, window=64 * KIB)
    handle = client.open("/big")
    burst = b"".join(request(READ, n, handle, u64(0), u32(32 * KIB)) for n in range(100))
    # 512 MiB in answers; the server stops taking requests long before.
    send_until_blocked(client.channel, burst, 512 * MIB // (32 * KIB) * (len(burst) // 100))
    check_cost(server)
    still_serves(context, server)


@case("hostile-read-burst-answered-in-full", alone=True, timeout=180)
def read_burst(context):
    """2,048 READs before the first reply is read, with small and larger windows and slow credit."""
    for window in (64 * KIB, 2 * MIB):
        server = serve(context)
        source = context.file(64 * MIB)
        server.here("big").write_bytes(source.read_bytes())
        client = connect(context, server, window=window)
        handle = client.open("/big")
        burst = b"".join(request(READ, n, handle, u64(n * 32 * KIB), u32(32 * KIB)) for n in range(2048))
        sender = threading.Thread(target=client.channel.sendall, args=(burst,))
        sender.start()
        time.sleep(1)
        check_cost(server, 1)
        content = source.read_bytes()
        for n in range(2048):
            kind, body = read_packet(client.channel)
            assert kind == DATA, (kind, body)
            (number, length) = struct.unpack(">II", body[:8])
            at = number * 32 * KIB
            assert body[8:] == content[at : at + length] and length == 32 * KIB, n
        sender.join()
        check_cost(server, 1)
        server.process.stop()


@case("hostile-write-flood", alone=True)
def write_flood(context):
    server = serve(context)
    client = connect(context, server)
    handle = client.open("/target", OPEN_WRITE | OPEN_CREAT | OPEN_TRUNC)
    flood = b"".join(request(WRITE, n, handle, u64(n % 256), string(b"x")) for n in range(2000))
    start = time.monotonic()
    # Replies are never read: in the end the server stops taking requests.
    sent = send_until_blocked(client.channel, flood, 64 * MIB)
    assert time.monotonic() - start < 60, f"{sent} bytes took too long"
    check_cost(server)
    still_serves(context, server)


@case("hostile-window-overrun")
def window_overrun(context):
    server = serve(context)
    client = connect(context, server)
    channel = client.channel
    message = paramiko.Message()
    message.add_byte(bytes([94]))
    message.add_int(channel.remote_chanid)
    message.add_string(b"\0\0\0\1" * (8 * KIB))
    with contextlib.suppress(EOFError, OSError, paramiko.SSHException):
        # Past any window: 1 GiB, as fast as it goes; the server must end the connection first.
        for _ in range(GIB // (32 * KIB)):
            client.transport._send_user_message(message)
            if not client.transport.is_active():
                break
    wait_until(lambda: not client.transport.is_active(), 10, "the server ends the connection")
    check_cost(server, 1)
    still_serves(context, server)


def open_channel(client, kind=b"session", window=MIB, max_packet=32 * KIB, number=50):
    message = paramiko.Message()
    message.add_byte(bytes([90]))
    message.add_string(kind)
    message.add_int(number)
    message.add_int(window)
    message.add_int(max_packet)
    client.transport._send_user_message(message)


@case("hostile-maximum-packet-0")
def maximum_packet_0(context):
    server = serve(context)
    client = connect(context, server)
    open_channel(client, max_packet=0)
    with contextlib.suppress(EOFError, OSError, paramiko.SSHException):
        client.call(STAT, string("/"))
    check_cost(server, 2)
    still_serves(context, server)


@case("hostile-maximum-packet-1")
def maximum_packet_1(context):
    """Every byte in a packet of its own, and all of them right."""
    server = serve(context)
    source = context.file(32 * KIB + 1)
    server.here("x").write_bytes(source.read_bytes())
    client = RawSftpTiny(server, context.shared / "user_ed25519")
    context.closers.append(client.close)
    handle = client.open("/x")
    kind, body = client.call(READ, handle, u64(0), u32(20_000))
    assert kind == DATA and body[4:] == source.read_bytes()[:20_000], kind
    check_cost(server, 1)
    still_serves(context, server)


class RawSftpTiny(RawSftp):
    """A client whose channel takes one byte a packet."""

    def __init__(self, server, key):
        original = paramiko.Transport._sanitize_packet_size
        paramiko.Transport._sanitize_packet_size = lambda self, size: size
        try:
            super().__init__(server, key, max_packet=1)
        finally:
            paramiko.Transport._sanitize_packet_size = original


@case("hostile-a-million-one-byte-messages", timeout=400, alone=True)
def one_byte_messages(context):
    server = serve(context)
    client = connect(context, server)
    handle = client.open("/target", OPEN_WRITE | OPEN_CREAT | OPEN_TRUNC)
    data = b"".join(request(WRITE, n, handle, u64(n * 4096), string(b"y" * 4096)) for n in range(244))
    data = data[:1_000_000]
    before = server.process.cpu_seconds()
    halves = []
    for start in (0, 500_000):
        for i in range(start, min(start + 500_000, len(data))):
            client.channel.sendall(data[i : i + 1])
        halves.append(server.process.cpu_seconds() - before - sum(halves))
    # The second half must cost about what the first did: nothing grows with what is queued.
    assert halves[1] < 2 * halves[0] + 1, halves
    check_cost(server)


@case("hostile-lengths-of-4-gib")
def absurd_lengths(context):
    server = serve(context)
    for attack in (
        u32(0xFFFF_FFFF) + b"\5",
        u32(0),
        packet(OPEN, u32(1) + u32(0xFFFF_FFF0) + b"x"),
        packet(EXTENDED, u32(1) + string("check-file-name") + u32(0xFFFF_FFFF)),
        packet(SETSTAT, u32(1) + string("/") + u32(0x8000_0000) + u32(0xFFFF_FFFF)),
        packet(WRITE, u32(1) + string(b"\0\0\0\0") + u64(0) + u32(0xFFFF_FFFF)),
        packet(INIT, u32(3) + u32(0xFFFF_FFFF)),
        u32(262_145) + b"\5" + b"\0" * 262_144,
    ):
        client = connect(context, server)
        with contextlib.suppress(EOFError, OSError):
            client.channel.sendall(attack)
            client.channel.settimeout(2)
            client.channel.recv(100)
        client.close()
    check_cost(server, 1)
    still_serves(context, server)


@case("hostile-ssh-packet-lengths")
def ssh_lengths(context):
    """Bytes in the place of SSH packets, before any keys."""
    server = serve(context)
    lines = [b"SSH-2.0-x\r\n", b"x" * 100_000, b"SSH-1.5-old\r\n", b"\0" * 300, b"SSH-2.0-" + b"a" * 300 + b"\r\n"]
    for line in lines:
        for behind in (b"\xff\xff\xff\xff" * 8, u32(12) + b"\xff" + b"\0" * 20, b"\0\0\0\0" * 8, b""):
            with contextlib.suppress(OSError), socket.create_connection((server.host, server.port), 5) as raw:
                raw.settimeout(3)
                raw.sendall(line + behind)
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(65536):
                    pass
    check_cost(server, 1)
    still_serves(context, server)


@case("hostile-handles", timeout=180)
def handle_flood(context):
    server = serve(context)
    server.here("x").write_bytes(b"x")
    client = connect(context, server)
    refused = 0
    for n in range(20_000):
        if n % 2:
            kind, _ = client.call(OPEN, string("/x"), u32(1), u32(0))
        else:
            kind, _ = client.call(OPENDIR, string("/"))
        if kind == STATUS:
            refused += 1
            if refused > 100:
                break
    assert refused, "20,000 open handles and no refusal"
    check_cost(server, 1)
    still_serves(context, server)


@case("hostile-channels")
def channel_flood(context):
    server = serve(context)
    client = connect(context, server)
    opened = []
    with contextlib.suppress(paramiko.SSHException, EOFError):
        for _ in range(5_000):
            opened.append(client.transport.open_session(timeout=10))
    assert len(opened) < 5_000, "5,000 channels and no refusal"
    check_cost(server, 1)
    kind, _ = client.call(STAT, string("/"))
    assert kind != STATUS, "the first channel works on"
    still_serves(context, server)


@case("hostile-unread-channel-does-not-slow-another", timeout=180)
def unread_neighbour(context):
    server = serve(context)
    server.here("big").write_bytes(context.file(64 * MIB).read_bytes())
    client = connect(context, server)
    handle = client.open("/big")
    burst = b"".join(request(READ, n, handle, u64(0), u32(32 * KIB)) for n in range(1000))
    send_until_blocked(client.channel, burst, len(burst))
    second = client.transport.open_session()
    second.invoke_subsystem("sftp")
    with contextlib.closing(paramiko.SFTPClient(second)) as sftp:
        sftp.get("/big", str(context.folder / "big"))
    same(context.file(64 * MIB), context.folder / "big")
    check_cost(server, 1)


@case("hostile-unauthenticated-connections")
def silent_connections(context):
    server = serve(context)
    silent = []
    for _ in range(500):
        with contextlib.suppress(OSError):
            silent.append(socket.create_connection((server.host, server.port), 5))
    check_cost(server, 2)
    for connection in silent:
        connection.close()
    time.sleep(0.5)
    still_serves(context, server)


@case("hostile-paths-stay-inside")
def escapes(context):
    server = serve(context)
    secret = context.folder / "secret"
    secret.write_text("outside")
    outside = context.dir("outside")
    (outside / "file").write_text("outside")
    os.symlink("..", server.here("up"))
    os.symlink(str(context.folder), server.here("absolute"))
    os.symlink("../secret", server.here("link"))
    os.symlink(str(outside), server.here("folder"))
    client = connect(context, server)
    dots = "/.." * 20
    # A name for each way out; the root itself holds no "secret".
    paths = ["/../secret", f"{dots}{context.folder}/secret", "/up/secret", "/absolute/secret", "/link", "/folder/file"]
    paths += ["../secret", "/./../secret", "/up/../secret", f"/absolute/../{context.folder.name}/secret", "//..//secret"]
    requests = [
        (OPEN, [u32(1), u32(0)]),
        (OPEN, [u32(OPEN_WRITE | OPEN_TRUNC), u32(0)]),
        (STAT, []),
        (SETSTAT, [u32(4), u32(0o600)]),
        (OPENDIR, []),
        (RMDIR, []),
        (REMOVE, []),
    ]
    for path in paths:
        for kind, tail in requests:
            reply, body = client.call(kind, string(path), *tail)
            if kind == REMOVE and path == "/link":
                continue  # the link itself is inside
            assert reply == STATUS and status_code(body) != 0, (path, kind, reply, body)
    for target in ("/../moved", "/absolute/moved", "/folder/moved", "/up/moved"):
        client.call(RENAME, string("/x"), string(target))
        client.call(SYMLINK, string(str(secret)), string(target))
    assert secret.read_text() == "outside" and (outside / "file").read_text() == "outside"
    assert sorted(os.listdir(outside)) == ["file"], os.listdir(outside)
    assert not (context.folder / "moved").exists()
    kind, body = client.call(REALPATH, string("/../../etc"))
    assert kind == NAME or kind == STATUS, kind
    assert str(context.folder).encode() not in body, body


@case("hostile-rename-race", timeout=60)
def rename_race(context):
    """A folder inside is swapped for a link to the outside while files below it are opened."""
    server = serve(context)
    outside = context.dir("outside")
    (outside / "file").write_text("outside")
    server.here("inside").mkdir()
    (server.here("inside") / "file").write_text("inside")
    os.symlink(outside, server.here("out-link"))
    client = connect(context, server)
    is_over = threading.Event()

    def swap():
        a, b, spare = (os.fspath(server.here(n)) for n in ("inside", "out-link", "spare"))
        while not is_over.is_set():
            os.rename(a, spare)
            os.rename(b, a)
            os.rename(a, b)
            os.rename(spare, a)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        seen = 0
        end = time.monotonic() + 5
        while time.monotonic() < end:
            kind, body = client.call(OPEN, string("/inside/file"), u32(1), u32(0))
            if kind != HANDLE:
                continue
            reply, data = client.call(READ, body, u64(0), u32(100))
            assert reply == DATA and data[4:] == b"inside", data
            client.call(CLOSE, body)
            seen += 1
        assert seen, "the file was never open"
    finally:
        is_over.set()
        thread.join()
