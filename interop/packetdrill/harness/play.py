"""Plays a script against the shared object: the clock is the stack's own, and nothing sleeps."""

import ctypes as c
import errno
import fcntl
import re
import select
import socket
import struct
import threading

from abi import Stack
from wire import ECN, Flow, Options, address, parse_outbound

# Deadlines are exact; the clock moves by a microsecond when a call that blocks asks for it.
TOLERANCE_MICROS = 5
# The streams of the far end wrap early.
REMOTE_ISN = 2**32 - 3000
LOCAL_PORT, REMOTE_PORT = 8080, 40000

ADDRESSES = {
    "ipv4": (socket.AF_INET, "192.168.0.1", "192.0.2.1"),
    "ipv6": (socket.AF_INET6, "fd3d:a0b:17d6::1", "2001:db8::1"),
}

SYMBOLS = {
    "SOL_TCP": 6, "IPPROTO_TCP": 6, "SOL_IP": 0, "TCP_USER_TIMEOUT": 18, "TCP_NOTSENT_LOWAT": 25,
    "TCP_INFO": 11, "TCP_CORK": 3, "TCP_MAXSEG": 2, "TCP_NODELAY": 1, "TCP_KEEPIDLE": 4,
    "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 6, "TCP_LINGER2": 8, "TCP_CONGESTION": 13,
    "SIOCINQ": 0x541B, "SIOCOUTQ": 0x5411, "SIOCOUTQNSD": 0x894B, "IP_TOS": 1, "IPV6_TCLASS": 67,
    "SOL_IPV6": 41, "EPOLL_CTL_ADD": 1, "EPOLL_CTL_DEL": 2, "EPOLL_CTL_MOD": 3,
}  # fmt: skip


class Failed(Exception):
    """The stack did something else than the script says."""


def constant(text):
    """A number, or names joined by |."""
    total = 0
    for word in text.split("|"):
        word = word.strip()
        for module in (socket, select, fcntl, __import__("os")):
            if hasattr(module, word):
                total |= int(getattr(module, word))
                break
        else:
            total |= SYMBOLS[word] if word in SYMBOLS else int(word, 0)
    return total


def fields(text):
    """`{a=1, b=C|D}`, perhaps in brackets."""
    inner = text.strip("[]{} ")
    return {key.strip(): value.strip() for key, value in (part.split("=") for part in inner.split(","))}


class Player:
    def __init__(self, library, script):
        self.script = script
        self.stack = Stack(library, script.settings.get("flags", "sysctl=off"))
        family = ADDRESSES[script.settings.get("ip_version", "ipv4")]
        self.family, self.local, self.remote = family[0], address(family[1]), address(family[2])
        self.fds, self.flow, self.ports = {}, None, 0
        self.last_fd = None
        self.start = self.reached = self.stack.now()
        self.blocked = []

    # Events.

    def run(self):
        for event in self.script.events:
            try:
                getattr(self, {"<": "arrive", ">": "expect", "check": "check", "call": "invoke"}[event.kind])(event)
            except (Failed, AssertionError) as error:
                raise Failed(f"{self.script.path.name}:{event.number}: {event.text}\n    {error}") from error
        for thread in self.blocked:
            self.join(*thread)
        self.stack.call("free")
        for fd in self.fds.values():
            # Whoever made them, they are real, and the script's to close.
            __import__("os").close(fd)

    def wait_until(self, at):
        # Asking for the time costs some: where it stands already, nobody asks.
        if self.start + at > self.reached:
            self.stack.sleep(max(0, self.start + at - self.stack.now()))
            self.reached = self.start + at

    def arrive(self, event):
        self.wait_until(event.at)
        line = event.line
        if line.icmp:
            self.stack.send(self.flow.icmp(line))
            return
        is_opening = "S" in line.flags and "." not in line.flags
        if is_opening and (self.flow is None or self.flow.remote_isn is not None):
            ends = (self.local, LOCAL_PORT), (self.remote, REMOTE_PORT + self.ports)
            is_again = self.flow is not None and line.start == 0 and self.flow.is_half_open
            if not is_again and (self.flow is None or line.start == 0):
                self.ports += 1
                self.flow = Flow(*ends, REMOTE_ISN)
                self.flow.is_half_open = True
        if self.flow.remote_isn is None:
            self.flow.remote_isn = REMOTE_ISN
        if "S" not in line.flags:
            self.flow.is_half_open = False
        self.stack.send(self.flow.inbound(line))

    def expect(self, event):
        received = self.stack.receive()
        if received is None:
            raise Failed("nothing will ever leave")
        packet, at = parse_outbound(received[0]), received[1] - self.start
        line, problems = event.line, []
        if "S" in line.flags and "." not in line.flags and (self.flow is None or self.flow.ended(packet)):
            self.flow = Flow(packet["source"], packet["destination"], None)
            self.flow.is_half_open = True
        if "S" in line.flags:
            self.flow.local_isn = packet["seq"]
        flow = self.flow
        got = {
            "ends": (packet["source"], packet["destination"]),
            "flags": "".join(sorted(packet["flags"])),
            "start": (packet["seq"] - flow.local_isn) % 2**32,
            "length": len(packet["payload"]),
            # What scripts have written is all of one kind; a probe of the path's MTU holds more of it.
            "payload": packet["payload"].strip(b"o"),
            "ack": (packet["ack"] - (flow.remote_isn or 0)) % 2**32,
        }
        wanted = {
            "ends": (flow.local, flow.remote),
            "flags": "".join(sorted(line.flags)),
            "start": line.start,
            "length": line.length,
            "payload": b"",
            "ack": line.ack if line.ack is not None else got["ack"],
        }
        if line.win is not None:
            got["win"], wanted["win"] = packet["win"], line.win
        if line.ecn is not None:
            got["ecn"], wanted["ecn"] = packet["tos"] & 3, ECN[line.ecn]
        if line.options is None or line.options != "...":
            self.learn_clock(line, packet)
            ahead = flow.ts_ahead or 0
            got["options"] = Options.unpack(packet["options"], flow.remote_isn or 0, lambda n: (n - ahead) % 2**32)
            wanted["options"] = ",".join(part.strip() for part in (line.options or got["options"]).split(","))
        problems += [f"{key} is {got[key]!r}, not {wanted[key]!r}" for key in wanted if got[key] != wanted[key]]
        if abs(at - event.at) > TOLERANCE_MICROS:
            problems.append(f"it left at {at / 1e6:.6f}, not at {event.at / 1e6:.6f}")
        if problems:
            text = Options.unpack(packet["options"], flow.remote_isn or 0, lambda n: n)
            seen = f"{packet['flags']} {got['start']}({got['length']}) ack {got['ack']} win {packet['win']} <{text}>"
            raise Failed("; ".join(problems) + f"\n    sent: {seen} at {at / 1e6:.6f}")

    def learn_clock(self, line, packet):
        """The first timestamp says how far our clock is ahead of the script's."""
        script = re.search(r"TS val (\d+)", line.options or "")
        ours = re.search(r"TS val (\d+)", Options.unpack(packet["options"], 0, lambda n: n))
        if script and ours and self.flow.ts_ahead is None:
            self.flow.ts_ahead = (int(ours[1]) - int(script[1])) % 2**32

    def check(self, event):
        self.wait_until(event.at)
        info = self.stack.tcp_info(self.last_fd)
        if not eval(event.check, {}, info):
            names = re.findall(r"tcpi_\w+", event.check)
            raise Failed(", ".join(f"{name} is {info.get(name)}" for name in names))

    # Calls.

    def invoke(self, event):
        self.wait_until(event.at)
        if event.end is None:
            self.judge(event, *self.perform(event))
            return
        outcome, waiting = [], self.stack.waiting()

        def body():
            outcome.extend(self.perform(event))
            outcome.append(self.stack.now() - self.start)

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        self.blocked.append((thread, event, outcome))
        # It has to wait, or be over, before anything else happens.
        while thread.is_alive() and self.stack.waiting() == waiting:
            thread.join(timeout=0.001)

    def join(self, thread, event, outcome):
        thread.join(timeout=20)
        if len(outcome) < 3:
            raise Failed(f"{event.text}: it never returned")
        self.judge(event, *outcome[:2])
        if abs(outcome[2] - event.end) > TOLERANCE_MICROS:
            raise Failed(f"{event.text}: over at {outcome[2] / 1e6:.6f}, not {event.end / 1e6:.6f}")

    def judge(self, event, result, number):
        name = errno.errorcode.get(number, number)
        if event.call[0] in ("socket", "accept", "epoll_create") and event.result >= 0 and result >= 0:
            self.fds[event.result] = result
            if event.call[0] != "epoll_create":
                self.last_fd = result
            return
        # Some numbers have two names.
        if result != event.result or (event.errno and getattr(errno, event.errno) != number):
            raise Failed(f"{event.text}: the result is {result} {name if number else ''}")

    def perform(self, event):
        name, arguments = event.call
        return getattr(self, f"call_{name}")(*arguments)

    def fd(self, text):
        return self.fds.get(int(text), int(text))

    def sockaddr(self, ip, port):
        if self.family == socket.AF_INET:
            return struct.pack("=H", self.family) + struct.pack("!H", port) + ip + bytes(8)
        return struct.pack("=H", self.family) + struct.pack("!HI", port, 0) + ip + bytes(4)

    def call_socket(self, _family, kind, protocol):
        return self.stack.call("socket", self.family, constant(kind), constant(protocol))

    def call_bind(self, fd, _address, _len):
        name = self.sockaddr(self.local, LOCAL_PORT)
        return self.stack.call("bind", self.fd(fd), name, len(name))

    def call_listen(self, fd, backlog):
        return self.stack.call("listen", self.fd(fd), int(backlog))

    def call_accept(self, fd, _address, _len):
        name, length = c.create_string_buffer(28), c.c_uint32(28)
        result = self.stack.call("accept", self.fd(fd), name, c.byref(length))
        if result[0] >= 0:
            known = [self.sockaddr(self.remote, port) for port in range(REMOTE_PORT, REMOTE_PORT + self.ports)]
            assert name.raw[: length.value] in known, "the address of whom was accepted"
        return result

    def call_connect(self, fd, _address, _len):
        name = self.sockaddr(self.remote, LOCAL_PORT)
        self.last_fd = self.fd(fd)
        return self.stack.call("connect", self.fd(fd), name, len(name))

    def incoming(self, name, fd, count, *more):
        buffer = c.create_string_buffer(int(count) + 1)
        result = self.stack.call(name, self.fd(fd), buffer, int(count), *more)
        if result[0] > 0:
            assert buffer.raw[: result[0]] == b"x" * result[0], "what was read"
        return result

    def call_read(self, fd, _buffer, count):
        return self.incoming("read", fd, count)

    def call_recv(self, fd, _buffer, count, flags):
        return self.incoming("recv", fd, count, constant(flags))

    def call_readv(self, fd, *_):
        pieces = [c.create_string_buffer(n) for n in (300, 500, 1000)]
        vectors = b"".join(struct.pack("PN", c.addressof(p), len(p)) for p in pieces)
        result = self.stack.call("readv", self.fd(fd), vectors, 3)
        got = b"".join(piece.raw for piece in pieces)[: max(result[0], 0)]
        assert got == b"x" * len(got), "what was read"
        return result

    def call_write(self, fd, _buffer, count):
        return self.stack.call("write", self.fd(fd), b"o" * int(count), int(count))

    def call_send(self, fd, _buffer, count, flags):
        return self.stack.call("send", self.fd(fd), b"o" * int(count), int(count), constant(flags))

    def call_sendto(self, fd, _buffer, count, flags, *_):
        arguments = self.fd(fd), b"o" * int(count), int(count), constant(flags), None, 0
        return self.stack.call("sendto", *arguments)

    def call_writev(self, fd, _vectors, count):
        # Kept until the call is over.
        pieces = [c.create_string_buffer(b"o" * 1000, 1000) for _ in range(int(count))]
        vectors = b"".join(struct.pack("PN", c.addressof(piece), 1000) for piece in pieces)
        return self.stack.call("writev", self.fd(fd), vectors, int(count))

    def call_close(self, fd):
        result = self.stack.call("close", self.fd(fd))
        self.fds.pop(int(fd), None)
        return result

    def call_shutdown(self, fd, how):
        return self.stack.call("shutdown", self.fd(fd), constant(how))

    def call_fcntl(self, fd, command, *argument):
        word = constant(argument[0]) if argument else 0
        return self.stack.call("fcntl", self.fd(fd), constant(command), word)

    def call_ioctl(self, fd, request, value):
        out = c.c_int(-1)
        result = self.stack.call("ioctl", self.fd(fd), constant(request), c.byref(out))
        wanted = int(value.strip("[]"))
        if result[0] == 0 and out.value != wanted:
            raise Failed(f"it says {out.value}")
        return result

    def call_setsockopt(self, fd, level, name, value, _len):
        if value.startswith("{"):
            given = fields(value)
            words = struct.pack("=ii", int(given["onoff"]), int(given["linger"]))
        else:
            words = struct.pack("=i", constant(value.strip("[]")))
        ids = constant(level), constant(name)
        return self.stack.call("setsockopt", self.fd(fd), *ids, words, len(words))

    def call_getsockopt(self, fd, level, name, value, _len):
        out, length = c.create_string_buffer(4), c.c_uint32(4)
        ids = constant(level), constant(name)
        result = self.stack.call("getsockopt", self.fd(fd), *ids, out, c.byref(length))
        got = struct.unpack("=i", out.raw)[0]
        word = value.strip("[]")
        wanted = getattr(errno, word, None)
        if result[0] == 0 and got != (constant(word) if wanted is None else wanted):
            raise Failed(f"it says {got}")
        return result

    def call_poll(self, entries, _count, timeout):
        entry = fields(entries)
        events, wanted = constant(entry["events"]), constant(entry["revents"])
        room = c.create_string_buffer(struct.pack("=ihh", self.fd(entry["fd"]), events, 0), 8)
        result = self.stack.call("poll", room, 1, int(timeout))
        got = struct.unpack("=ihh", room.raw)[2]
        if got != wanted:
            raise Failed(f"revents is {got:#x}, not {wanted:#x}")
        return result

    def call_epoll_create(self, size):
        return self.stack.call("epoll_create", int(size))

    def call_epoll_ctl(self, epoll, operation, fd, event):
        entry = fields(event)
        # x86-64 packs the structure; others align its word.
        layout = "=IQ" if __import__("platform").machine() == "x86_64" else "=IxxxxQ"
        room = struct.pack(layout, constant(entry["events"]), int(entry["fd"]))
        return self.stack.call("epoll_ctl", self.fd(epoll), constant(operation), self.fd(fd), room)

    def call_epoll_wait(self, epoll, event, count, timeout):
        entry = fields(event)
        layout = "=IQ" if __import__("platform").machine() == "x86_64" else "=IxxxxQ"
        room = c.create_string_buffer(64)
        result = self.stack.call("epoll_wait", self.fd(epoll), room, int(count), int(timeout))
        if result[0] == 1:
            got = struct.unpack_from(layout, room.raw)
            wanted = constant(entry["events"]), int(entry["fd"])
            if got != wanted:
                raise Failed(f"it says {got}, not {wanted}")
        return result
