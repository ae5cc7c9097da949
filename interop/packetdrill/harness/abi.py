"""The shared object as packetdrill loads it: one symbol, a structure of functions, and calls through it."""

import ctypes as c
import struct

SSIZE, SIZE, INT, P = c.c_ssize_t, c.c_size_t, c.c_int, c.c_void_p

# In the interface's order: name, result, arguments behind the word that comes first.
FUNCTIONS = [
    ("free", None, []),
    ("socket", INT, [INT, INT, INT]),
    ("bind", INT, [INT, P, c.c_uint32]),
    ("listen", INT, [INT, INT]),
    ("accept", INT, [INT, P, P]),
    ("connect", INT, [INT, P, c.c_uint32]),
    ("read", SSIZE, [INT, P, SIZE]),
    ("readv", SSIZE, [INT, P, INT]),
    ("recv", SSIZE, [INT, P, SIZE, INT]),
    ("recvfrom", SSIZE, [INT, P, SIZE, INT, P, P]),
    ("recvmsg", SSIZE, [INT, P, INT]),
    ("write", SSIZE, [INT, P, SIZE]),
    ("writev", SSIZE, [INT, P, INT]),
    ("send", SSIZE, [INT, P, SIZE, INT]),
    ("sendto", SSIZE, [INT, P, SIZE, INT, P, c.c_uint32]),
    ("sendmsg", SSIZE, [INT, P, INT]),
    ("fcntl", INT, [INT, INT, c.c_long]),
    ("ioctl", INT, [INT, c.c_ulong, P]),
    ("close", INT, [INT]),
    ("shutdown", INT, [INT, INT]),
    ("getsockopt", INT, [INT, INT, INT, P, P]),
    ("setsockopt", INT, [INT, INT, INT, P, c.c_uint32]),
    ("poll", INT, [P, c.c_ulong, INT]),
    ("netdev_send", INT, [P, SIZE]),
    ("netdev_receive", INT, [P, P, P]),
    ("usleep", INT, [c.c_uint32]),
    ("gettimeofday", INT, [P, P]),
    ("epoll_create", INT, [INT]),
    ("epoll_ctl", INT, [INT, INT, INT, P]),
    ("epoll_wait", INT, [INT, P, INT, INT]),
    ("pipe", INT, [P]),
    ("splice", SSIZE, [INT, P, INT, P, SIZE, c.c_uint]),
]


class Interface(c.Structure):
    _fields_ = [("userdata", P)] + [
        (name, c.CFUNCTYPE(result, P, *arguments, use_errno=True))
        for name, result, arguments in FUNCTIONS
    ]


class Stack:
    """One world behind the interface. Every call returns its result and errno (0 unless it failed)."""

    def __init__(self, path, flags):
        self.library = c.CDLL(path)
        self.interface = Interface()
        self.library.packetdrill_interface_init(flags.encode(), c.byref(self.interface))
        for name, _, _ in FUNCTIONS:
            if not getattr(self.interface, name):
                raise AssertionError(f"{name} was left empty")
        # What a program calls past the interface when the library is loaded in front of it.
        self.preloaded_getsockopt = c.CFUNCTYPE(INT, INT, INT, INT, P, P, use_errno=True)(
            ("getsockopt", self.library)
        )

    def call(self, name, *arguments):
        c.set_errno(0)
        result = getattr(self.interface, name)(self.interface.userdata, *arguments)
        return result, (c.get_errno() if result is not None and result < 0 else 0)

    def waiting(self):
        """How many calls wait inside."""
        return self.library.fullbore_packetdrill_waiting()

    def now(self):
        """Microseconds."""
        timeval = (c.c_long * 2)()
        self.call("gettimeofday", timeval, None)
        return timeval[0] * 1_000_000 + timeval[1]

    def sleep(self, micros):
        while micros > 0:
            self.call("usleep", min(micros, 1_000_000_000))
            micros -= 1_000_000_000

    def send(self, packet):
        result, _ = self.call("netdev_send", packet, len(packet))
        assert result == 0

    def receive(self):
        """The next packet and when it left; None when none ever will."""
        buffer = c.create_string_buffer(65536)
        length, at = c.c_size_t(65536), c.c_longlong(0)
        result, _ = self.call("netdev_receive", buffer, c.byref(length), c.byref(at))
        assert result == 0
        return (buffer.raw[: length.value], at.value) if length.value else None

    def tcp_info(self, fd):
        """TCP_INFO by the C library's name, as packetdrill asks for it."""
        buffer, length = c.create_string_buffer(256), c.c_uint32(256)
        result = self.preloaded_getsockopt(fd, 6, 11, buffer, c.byref(length))
        assert result == 0, "getsockopt(TCP_INFO) failed"
        return parse_info(buffer.raw[: length.value])


U32S = (
    "rto ato snd_mss rcv_mss unacked sacked lost retrans fackets last_data_sent last_ack_sent "
    "last_data_recv last_ack_recv pmtu rcv_ssthresh rtt rttvar snd_ssthresh snd_cwnd advmss "
    "reordering rcv_rtt rcv_space total_retrans"
).split()
BEHIND = (
    "pacing_rate:Q max_pacing_rate:Q bytes_acked:Q bytes_received:Q segs_out:I segs_in:I "
    "notsent_bytes:I min_rtt:I data_segs_in:I data_segs_out:I delivery_rate:Q busy_time:Q "
    "rwnd_limited:Q sndbuf_limited:Q delivered:I delivered_ce:I bytes_sent:Q bytes_retrans:Q "
    "dsack_dups:I reord_seen:I rcv_ooopack:I snd_wnd:I rcv_wnd:I rehash:I"
).split()


def parse_info(raw):
    """Linux's struct tcp_info as names and numbers."""
    names = ["state", "ca_state", "retransmits", "probes", "backoff", "options", "wscale", "flags"]
    info = dict(zip(names, raw[:8]))
    info.update(zip(U32S, struct.unpack_from(f"={len(U32S)}I", raw, 8)))
    if len(raw) > 104:
        fields = [field.split(":") for field in BEHIND]
        numbers = struct.unpack_from("=" + "".join(kind for _, kind in fields), raw, 104)
        info.update(zip((name for name, _ in fields), numbers))
    return {f"tcpi_{name}": value for name, value in info.items()}
