"""Clients that take all they may, or hold others up, against `fullbore serve`: shares, deadlines, clean-up."""

import contextlib
import copy
import os
import resource
import shutil
import socket
import struct
import tempfile
import threading
import time
from pathlib import Path

import paramiko
from cases_hostile import check_cost, connect, send_until_blocked, still_serves
from harness import GIB, KIB, MIB, case, wait_until
from paramiko_peer import (
    CLOSE,
    EXTENDED,
    HANDLE,
    INIT,
    MKDIR,
    NAME,
    OPEN,
    OPEN_CREAT,
    OPEN_READ,
    OPEN_WRITE,
    OPENDIR,
    READ,
    READDIR,
    REALPATH,
    SETSTAT,
    STAT,
    STATUS,
    SYMLINK,
    VERSION,
    WRITE,
    packet,
    read_packet,
    request,
    string,
    u32,
    u64,
)
from servers import serve

# What a client may cost that uses all its sessions and fills every queue of each (ARCHITECTURE.md).
CONNECTION_BYTES_MAX = 96 * MIB

# What a connection may cost before it has logged in, the program not counted.
STRANGER_BYTES_MAX = 256 * KIB


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def more_sessions(client, count):
    """Further SFTP sessions of the connection."""
    for _ in range(count):
        channel = client.transport.open_session(window_size=64 * KIB)
        channel.invoke_subsystem("sftp")
        channel.settimeout(60)
        channel.sendall(packet(INIT, u32(3)))
        assert read_packet(channel)[0] == VERSION
        yield channel


def reset(transport):
    """Ends a connection with a reset, whatever is in its buffers."""
    transport.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.active = False
    transport.sock.close()


@case("hostile-every-queue-of-ten-sessions-full", alone=True, timeout=300)
def everything_full(context):
    server = serve(context)
    server.here("big").write_bytes(context.file(5 * MIB).read_bytes())
    folder = server.here("many")
    folder.mkdir()
    for n in range(3000):
        (folder / f"{n:05}{'x' * 200}").touch()
    client = connect(context, server, window=64 * KIB)
    channels = [client.channel, *more_sessions(client, 9)]
    for channel in channels:
        for n in range(100):
            channel.sendall(request(OPENDIR, n, string("/many")))
            kind, body = read_packet(channel)
            if kind != HANDLE:
                break
            channel.sendall(request(READDIR, n, body[4:]))
            assert read_packet(channel)[0] == NAME
        channel.sendall(request(OPEN, 1, string("/big"), u32(OPEN_READ), u32(0)))
        kind, body = read_packet(channel)
        assert kind == HANDLE
        burst = b"".join(request(READ, n, body[4:], u64(0), u32(256 * KIB)) for n in range(1000))
        send_until_blocked(channel, burst, 32 * MIB)
    _, peak = server.process.memory()
    print(f"{peak / MIB:.1f} MiB resident")
    assert peak < CONNECTION_BYTES_MAX, f"{peak / MIB:.1f} MiB resident"
    still_serves(context, server)


@case("hostile-strangers-cost-little", alone=True)
def strangers(context):
    """Strangers who send as much as they may of a packet, and never its end."""
    server = serve(context)
    still_serves(context, server)
    before, _ = server.process.memory()
    flood = []
    for _ in range(60):
        raw = socket.create_connection((server.host, server.port), 5)
        raw.settimeout(0.2)
        flood.append(raw)
        with contextlib.suppress(OSError):
            raw.sendall(b"SSH-2.0-x\r\n" + u32(90_000) + b"\4" + b"\0" * 80_000)
    time.sleep(1)
    now, _ = server.process.memory()
    each = (now - before) / len(flood)
    assert each < STRANGER_BYTES_MAX, f"{each / KIB:.0f} KiB each"
    for raw in flood:
        raw.close()
    still_serves(context, server)


@case("hostile-strangers-are-sent-away-in-time", timeout=60)
def login_grace(context):
    """Who never stops sending, and who never reads: both are gone soon after the login grace time."""
    server = serve(context, "--login-grace", "1")
    # What its threads open at their start is open then.
    still_serves(context, server)
    base = descriptors(server)
    unknown = u32(12) + b"\x06\x0a" + b"\0" * 10

    def never_reads(raw):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect((server.host, server.port))
        raw.sendall(b"SSH-2.0-x\r\n")
        while True:
            raw.sendall(unknown * 1000)

    def never_stops(raw):
        raw.connect((server.host, server.port))
        raw.sendall(b"SSH-2.0-x\r\n")
        ignore = u32(12) + b"\x06\x02" + b"\0" * 10
        while True:
            raw.sendall(ignore * 1000)

    def attack(how):
        with contextlib.suppress(OSError), socket.socket() as raw:
            raw.settimeout(30)
            how(raw)

    threads = [threading.Thread(target=attack, args=(how,)) for how in (never_reads, never_stops) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a stranger is still there"
    wait_until(lambda: descriptors(server) <= base, 5, "the connections are gone")
    still_serves(context, server)


@case("hostile-resets-leave-nothing-behind", alone=True, timeout=200)
def resets(context):
    """Connections stuffed with requests and pings nobody reads the answers of, then reset."""
    server = serve(context)
    server.here("big").write_bytes(context.file(5 * MIB).read_bytes())
    still_serves(context, server)
    base = descriptors(server)
    ping = paramiko.Message()
    ping.add_byte(bytes([192]))
    ping.add_string(b"x" * 30_000)
    for round_number in range(6):
        client = connect(context, server, window=64 * KIB)
        handle = client.open("/big")
        burst = b"".join(request(READ, n, handle, u64(0), u32(32 * KIB)) for n in range(1000))
        client.transport.packetizer.read_message = lambda: time.sleep(3600)
        client.channel.settimeout(2)
        with contextlib.suppress(OSError):
            client.channel.send(burst[: 32 * KIB])
        client.transport.sock.settimeout(1)
        stuffer = threading.Thread(target=stuff, args=(client.transport, ping), daemon=True)
        stuffer.start()
        stuffer.join(3)
        reset(client.transport)
    wait_until(lambda: descriptors(server) <= base, 20, f"{base} descriptors, now {descriptors(server)}")
    check_cost(server)
    still_serves(context, server)


def stuff(transport, message):
    with contextlib.suppress(Exception):
        for _ in range(2000):
            transport._send_message(message)


@case("hostile-sessions-closed-with-requests-outstanding", timeout=120)
def closed_early(context):
    """Each session is closed behind a burst of READs; the connection can open new ones for ever."""
    server = serve(context)
    server.here("big").write_bytes(context.file(5 * MIB).read_bytes())
    client = connect(context, server)
    for _ in range(30):
        (channel,) = more_sessions(client, 1)
        channel.sendall(request(OPEN, 1, string("/big"), u32(OPEN_READ), u32(0)))
        _, body = read_packet(channel)
        burst = b"".join(request(READ, n, body[4:], u64(0), u32(32 * KIB)) for n in range(2000))
        channel.settimeout(1)
        with contextlib.suppress(socket.timeout):
            channel.send(burst)
        channel.close()
    kind, _ = client.call(STAT, string("/big"))
    assert kind != STATUS
    check_cost(server, 1)


@case("hostile-writes-before-a-close-are-carried-out")
def written_before_close(context):
    server = serve(context)
    client = connect(context, server)
    handle = client.open("/late", OPEN_WRITE | OPEN_CREAT)
    burst = b"".join(request(WRITE, n, handle, u64(n * 4096), string(b"z" * 4096)) for n in range(200))
    client.channel.sendall(burst)
    client.channel.close()
    wait_until(lambda: server.here("late").stat().st_size == 200 * 4096, 10, "all that was sent is written")


@case("hostile-hashing-without-end", alone=True, timeout=120)
def endless_hashing(context):
    """Hashes of a sparse file of 8 TiB, as many as may be asked: others are served, and the work ends with its session."""
    server = serve(context)
    with open(server.here("sparse"), "wb") as sparse:
        size = 8 << 40
        while True:
            try:
                os.ftruncate(sparse.fileno(), size)
                break
            except OSError:
                size //= 2
    assert size >= 100 * GIB, "the file system knows no large sparse files"
    attackers = [connect(context, server) for _ in range(3)]
    for client in attackers:
        for channel in (client.channel, *more_sessions(client, 9)):
            for n in range(20):
                body = string("check-file-name") + string("/sparse") + string("sha256") + u64(0) + u64(0) + u32(0)
                channel.sendall(request(EXTENDED, n, body))
    time.sleep(1)
    victim = connect(context, server)
    start = time.monotonic()
    still_serves(context, server)
    server.here("small").write_bytes(b"x" * MIB)
    for _ in range(5):
        kind, body = victim.call(STAT, string("/small"))
        assert kind != STATUS
        kind, body = victim.call(
            EXTENDED, string("check-file-name"), string("/small"), string("sha256"), u64(0), u64(0), u32(0)
        )
        assert kind in (201, STATUS), kind
    spent = time.monotonic() - start
    assert spent < 30, f"{spent:.1f} s while others hash"
    for client in attackers:
        client.close()
    time.sleep(3)
    check_cost(server)


@case("hostile-pipes-and-devices", timeout=60)
def pipes(context):
    """Nothing that is asked of a pipe or a device stops the thread that serves others."""
    server = serve(context)
    os.mkfifo(server.here("pipe"))
    if context.is_root:
        os.mknod(server.here("null"), 0o20666, os.makedev(1, 3))
        os.mknod(server.here("zero"), 0o20666, os.makedev(1, 5))
        os.mknod(server.here("tty"), 0o20666, os.makedev(5, 0))
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        with contextlib.suppress(OSError):
            listener.bind(str(server.here("socket")))
        for name in os.listdir(server.root):
            path = string(f"/{name}")
            client = connect(context, server)
            client.channel.settimeout(10)
            for flags in (1, 2, 3, 1 | 8, 2 | 8 | 16):
                kind, body = client.call(OPEN, path, u32(flags), u32(0))
                if kind != HANDLE:
                    continue
                client.call(READ, body, u64(0), u32(1000))
                client.call(WRITE, body, u64(0), string(b"x"))
                client.call(EXTENDED, string("check-file-handle"), body, string("sha256"), u64(0), u64(1000), u32(0))
                client.call(EXTENDED, string("fsync@openssh.com"), body)
                client.call(CLOSE, body)
            client.call(SETSTAT, path, u32(1), u64(0))
            client.call(EXTENDED, string("check-file-name"), path, string("sha256"), u64(0), u64(1000), u32(0))
            client.call(OPENDIR, path)
            client.call(REALPATH, path)
            client.close()
    still_serves(context, server)


@case("hostile-deep-paths-through-links", timeout=120)
def deep_paths(context):
    """REALPATH through forty links to folders two thousand deep ends soon."""
    server = serve(context)
    # Too deep for Python to remove.
    context.closers.append(lambda: context.run(["rm", "-rf", server.here("d")]))
    client = connect(context, server)
    depth = 0
    path = ""
    while depth < 1900:
        path += "/d"
        depth += 1
        kind, body = client.call(MKDIR, string(path), u32(0))
        assert kind == STATUS
    for n in range(39):
        # Each link lies deep and leads deep.
        client.call(SYMLINK, string(f"{path}/{n + 1}"), string(f"{path}/{n}"))
    client.call(MKDIR, string(f"{path}/39"), u32(0))
    start = time.monotonic()
    kind, _ = client.call(REALPATH, string(f"{path}/0"))
    spent = time.monotonic() - start
    assert kind in (NAME, STATUS) and spent < 1, f"{spent:.2f} s"
    kind, body = client.call(REALPATH, string(path))
    assert kind == NAME, "the deep path itself is fine"
    # Other connections are served between those of one that asks for nothing else.
    # As many as fit the window of a connection that has moved little, so that sending never waits.
    for n in range(200):
        client.send(REALPATH, string(path))
    start = time.monotonic()
    still_serves(context, server)
    assert time.monotonic() - start < 20, "another connection waits"


@case("hostile-no-descriptors-left", alone=True, timeout=60)
def no_descriptors(context):
    server = serve(context)
    still_serves(context, server)
    soft = descriptors(server) + 5
    old, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
    waiting = [socket.create_connection((server.host, server.port), 5) for _ in range(40)]
    check_cost(server)
    for connection in waiting:
        connection.close()
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (old, hard))
    time.sleep(1)
    still_serves(context, server)


@case("hostile-memory-through-proc", timeout=60)
def own_memory(context):
    """A server whose root holds /proc does not hand out its own memory."""
    server = as_nobody(context) if context.is_root else serve(context, root="/")
    client = connect(context, server)
    kind, body = client.call(OPEN, string("/proc/self/mem"), u32(3), u32(0))
    assert kind == STATUS, body


def as_nobody(context):
    """A server of the whole file system that is not root's: root may read any memory."""
    nobody = 65534
    folder = Path(tempfile.mkdtemp(prefix="fullbore-nobody-"))
    context.closers.append(lambda: shutil.rmtree(folder))
    for path in (context.binary, context.shared / "host_ed25519", context.shared / "authorized_keys"):
        shutil.copy(path, folder / path.name)
        os.chown(folder / path.name, nobody, nobody)
    folder.chmod(0o755)
    other = copy.copy(context)
    other.binary, other.shared = folder / context.binary.name, folder
    return serve(other, root="/", user=nobody, group=nobody, extra_groups=[])
