"""Servers that lie, stall or flood, against `fullbore cp`: an error that names the reason, soon, in little memory."""

import contextlib
import hashlib
import struct
import time

from harness import MIB, case
from paramiko_peer import (
    ATTRS,
    CLOSE,
    DATA,
    FSTAT,
    HANDLE,
    INIT,
    LSTAT,
    NAME,
    OPEN,
    OPENDIR,
    READ,
    READDIR,
    REALPATH,
    STAT,
    STATUS,
    VERSION,
    WRITE,
    packet,
    read_packet,
    request,
    string,
    u32,
    u64,
)
from servers import paramiko_server

CLIENT_BYTES_MAX = 64 * MIB
# However long a server stalls: a client that waits computes nothing.
CLIENT_CPU_SECONDS_MAX = 5
SIZE = 1 * MIB
ATTRIBUTES = u32(0xD) + u64(SIZE) + u32(0o100644) + u32(0) + u32(0)
FOLDER = u32(0x4) + u32(0o40755)


def answering(read=None, **other):
    """A server of one file of SIZE bytes of `x` whose answers to some requests are replaced."""

    def session(channel):
        while True:
            kind, body = read_packet(channel)
            if kind == INIT:
                channel.sendall(other.get("version", packet(VERSION, u32(3))))
                continue
            number = struct.unpack(">I", body[:4])[0]
            reply = answer(kind, body, number, read, other)
            if reply is not None:
                channel.sendall(reply)

    return session


def answer(kind, body, number, read, other):
    if kind in other.get("by_kind", {}):
        return other["by_kind"][kind](number, body)
    if kind == READ:
        at = len(body) - 12
        offset, length = struct.unpack(">QI", body[at:])
        if read:
            return read(number, offset, length)
        if offset >= SIZE:
            return request(STATUS, number, u32(1), string("end"), string(""))
        return request(DATA, number, string(b"x" * min(length, SIZE - offset)))
    if kind == REALPATH:
        return request(NAME, number, u32(1), string(body[8:] or b"/"), string(""), u32(0))
    if kind in (STAT, LSTAT, FSTAT):
        return request(ATTRS, number, ATTRIBUTES)
    if kind in (OPEN, OPENDIR):
        return request(HANDLE, number, string("h"))
    code = 8 if kind == 200 else 0
    return request(STATUS, number, u32(code), string("as you like"), string(""))


def fails(context, server, *args, seconds=60, options=()):
    """The copy ends in an error within `seconds`, with little memory and work; returns what it said."""
    process = context.spawn(context.cp_command(server, *args, options=options))
    end = time.monotonic() + seconds
    peak = cpu = 0
    while process.child.poll() is None:
        peak = max(peak, process.memory()[1])
        cpu = max(cpu, process.cpu_seconds())
        assert time.monotonic() < end, f"still running after {seconds} s\n{process.output()[-1000:]}"
        assert peak < CLIENT_BYTES_MAX, f"{peak / MIB:.1f} MiB resident"
        assert cpu < CLIENT_CPU_SECONDS_MAX, f"{cpu:.1f} CPU seconds"
        time.sleep(0.02)
    assert process.child.returncode not in (0, 101) and process.child.returncode > 0, process.output()
    assert "panicked" not in process.output()
    return process.output()


def get_case(name, **options):
    seconds = options.pop("seconds", 60)

    @case(f"hostile-server-{name}", timeout=seconds + 30)
    def run(context):
        server = paramiko_server(context, answering(**options))
        target = context.folder / "x"
        output = fails(context, server, server.url("file"), target, seconds=seconds)
        assert output.strip(), "no reason given"
        assert not target.exists(), "a wrong file under the final name"


@case("hostile-server-the-honest-one-works")
def honest(context):
    server = paramiko_server(context, answering())
    context.cp(server, server.url("file"), context.folder / "x")
    assert (context.folder / "x").read_bytes() == b"x" * SIZE


get_case("data-without-bytes-for-ever", read=lambda n, offset, length: request(DATA, n, string(b"")))
get_case("data-longer-than-asked", read=lambda n, offset, length: request(DATA, n, string(b"x" * (length + 1))))
get_case("data-claims-4-gib", read=lambda n, offset, length: request(DATA, n, u32(0xFFFF_FFFF) + b"x"))
get_case("message-of-4-gib", read=lambda n, offset, length: u32(0xFFFF_FFFF) + b"\x67")
get_case("message-of-0-bytes", read=lambda n, offset, length: u32(0))
get_case("reply-to-nothing", read=lambda n, offset, length: request(DATA, n ^ 0x5555, string(b"x" * length)))
get_case("reply-twice", read=lambda n, offset, length: 2 * request(DATA, n, string(b"x" * length)))
get_case("read-answered-by-a-handle", read=lambda n, offset, length: request(HANDLE, n, string("h")))
get_case("read-fails", read=lambda n, offset, length: request(STATUS, n, u32(4), string("disk on fire"), string("")))
get_case("version-2", version=packet(VERSION, u32(2)))
get_case("version-is-a-status", version=request(STATUS, 0, u32(4), string("no"), string("")))
get_case("version-claims-4-gib", version=packet(VERSION, u32(3) + u32(0xFFFF_FFFF) + b"x"))
get_case("handle-of-1000-bytes", by_kind={OPEN: lambda n, body: request(HANDLE, n, string(b"h" * 1000))})
get_case("close-fails-late", by_kind={OPEN: lambda n, body: request(HANDLE, n, u32(0xFFFF_0000) + b"h")})
get_case("never-ends", read=lambda n, offset, length: None, seconds=150)


def digest_by_name(number, body):
    """Only check-file-name is known: the digest of the one file there is."""
    length = struct.unpack(">I", body[4:8])[0]
    if body[8 : 8 + length] != b"check-file-name":
        return request(STATUS, number, u32(8), string("no"), string(""))
    return request(201, number, string("sha256") + hashlib.sha256(b"x" * SIZE).digest())


@case("hostile-server-check-file-by-name-only")
def check_file_by_name(context):
    version = packet(VERSION, u32(3) + string("check-file-name") + string("1"))
    server = paramiko_server(context, answering(version=version, by_kind={200: digest_by_name}))
    _, output = context.cp(server, "-v", "--verify", server.url("file"), context.folder / "x")
    assert "check-file" in output, output


@case("hostile-server-close-fails-on-put")
def close_fails(context):
    """CLOSE is where a full disk of a network file system is told: it counts."""
    refusal = {CLOSE: lambda n, body: request(STATUS, n, u32(4), string("quota exceeded"), string(""))}
    server = paramiko_server(context, answering(by_kind=refusal))
    output = fails(context, server, context.file(SIZE), server.url("file"))
    assert "quota exceeded" in output, output


@case("hostile-server-write-fails-on-put")
def write_fails(context):
    refusal = {WRITE: lambda n, body: request(STATUS, n, u32(4), string("no space left on device"), string(""))}
    server = paramiko_server(context, answering(by_kind=refusal))
    output = fails(context, server, context.file(SIZE), server.url("file"))
    assert "no space left on device" in output, output


def listing_case(name, reply, is_once=False):
    @case(f"hostile-server-listing-{name}")
    def run(context):
        asked = []

        def readdir(number, body):
            asked.append(number)
            if is_once and len(asked) > 1:
                return request(STATUS, number, u32(1), string("end"), string(""))
            return reply(number)

        kinds = {READDIR: readdir}
        for kind in (STAT, LSTAT):
            kinds[kind] = lambda n, body: request(ATTRS, n, FOLDER if body.endswith(b"folder") else ATTRIBUTES)
        server = paramiko_server(context, answering(by_kind=kinds))
        fails(context, server, "-r", server.url("folder"), context.folder / "copy")
        names = [p.name for p in context.folder.rglob("*")]
        assert "escaped" not in names, "a name with a path in it was used"
        assert not (context.folder.parent / "escaped").exists()


def names(*all_names):
    entries = b"".join(string(name) + string("") + ATTRIBUTES for name in all_names)
    return lambda n: request(NAME, n, u32(len(all_names)), entries)


listing_case("claims-4-gib-of-names", lambda n: request(NAME, n, u32(0xFFFF_FFFF), string("a"), string(""), u32(0)))
listing_case("of-0-names-for-ever", lambda n: request(NAME, n, u32(0)))
listing_case("of-the-folder-itself-for-ever", names(*["."] * 2000))
listing_case("with-a-path", names("../escaped"), is_once=True)
listing_case("with-an-absolute-path", names("/escaped"), is_once=True)


@case("hostile-server-floods-its-window")
def floods(context):
    """Bytes past the window that the client granted: it disconnects."""
    import paramiko

    def session(channel):
        read_packet(channel)
        channel.sendall(packet(VERSION, u32(3)))
        message = paramiko.Message()
        message.add_byte(bytes([94]))
        message.add_int(channel.remote_chanid)
        message.add_string(u32(5) + b"\x65" + u32(0) + b"x" * 30_000)
        with contextlib.suppress(EOFError, OSError):
            for _ in range(100_000):
                channel.transport._send_user_message(message)

    server = paramiko_server(context, session)
    fails(context, server, server.url("file"), context.folder / "x")
