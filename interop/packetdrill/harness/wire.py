"""Packets: a script's line to bytes, and bytes to what a script's line says of them."""

import ipaddress
import re
import struct

FLAGS = {"F": 1, "S": 2, "R": 4, "P": 8, ".": 16, "U": 32, "E": 64, "W": 128}
ECN = {"noecn": 0, "ect1": 1, "ect0": 2, "ce": 3}


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def pseudo(source, destination, length):
    if len(source) == 4:
        return source + destination + struct.pack("!BBH", 0, 6, length)
    return source + destination + struct.pack("!IHBB", length, 0, 0, 6)


def wrap(source, destination, body, tos=0, protocol=6):
    """An IP packet."""
    if len(source) == 4:
        header = struct.pack("!BBHHHBBH", 0x45, tos, 20 + len(body), 1, 0x4000, 64, protocol, 0)
        header += source + destination
        return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + body
    protocol = 58 if protocol == 1 else protocol
    first = 0x60000000 | tos << 20
    return struct.pack("!IHBB", first, len(body), protocol, 64) + source + destination + body


class Options:
    """Options of a header: text as scripts write it, and bytes. Numbers go through a map each."""

    @staticmethod
    def pack(text, sack_base, ecr):
        out = b""
        for item in filter(None, (part.strip() for part in text.split(","))):
            words = item.split()
            if words[0] == "mss":
                out += struct.pack("!BBH", 2, 4, int(words[1]))
            elif words[0] == "wscale":
                out += struct.pack("!BBB", 3, 3, int(words[1]))
            elif words[0] == "sackOK":
                out += b"\4\2"
            elif words[0] == "nop":
                out += b"\1"
            elif words[0] == "eol":
                out += b"\0"
            elif words[0] == "TS":
                out += struct.pack("!BBII", 8, 10, int(words[2]), ecr(int(words[4])))
            elif words[0] == "uto":
                out += struct.pack("!BBH", 28, 4, int(words[1]))
            elif words[0] == "sack":
                blocks = [block.split(":") for block in words[1:]]
                out += struct.pack("!BB", 5, 2 + 8 * len(blocks))
                for block in blocks:
                    out += struct.pack("!II", *((int(n) + sack_base) % 2**32 for n in block))
            else:
                raise ValueError(f"no option {item!r}")
        if len(out) % 4 or len(out) > 40:
            raise ValueError(f"options of {len(out)} bytes: {text}")
        return out

    @staticmethod
    def unpack(data, sack_base, value):
        items = []
        while data:
            if data[0] < 2:
                items.append("nop" if data[0] else "eol")
                data = data[1:]
                continue
            kind, body, data = data[0], data[2 : data[1]], data[data[1] :]
            if kind == 2:
                items.append(f"mss {struct.unpack('!H', body)[0]}")
            elif kind == 3:
                items.append(f"wscale {body[0]}")
            elif kind == 4:
                items.append("sackOK")
            elif kind == 8:
                ours, theirs = struct.unpack("!II", body)
                items.append(f"TS val {value(ours)} ecr {theirs}")
            elif kind == 28:
                items.append(f"uto {struct.unpack('!H', body)[0]}")
            elif kind == 5:
                edges = struct.unpack(f"!{len(body) // 4}I", body)
                edges = [(edge - sack_base) % 2**32 for edge in edges]
                blocks = zip(edges[::2], edges[1::2])
                items.append("sack " + " ".join(f"{start}:{end}" for start, end in blocks))
            else:
                items.append(f"kind {kind}")
        return ",".join(items)


class Flow:
    """One connection as the script sees it: ends, and where both streams begin."""

    def __init__(self, local, remote, remote_isn):
        self.local, self.remote = local, remote
        self.remote_isn, self.local_isn = remote_isn, 0
        # How far our clock is ahead of the script's.
        self.ts_ahead = None

    def ended(self, packet):
        """Whether a SYN of ours is that of another connection."""
        return (packet["source"], packet["destination"]) != (self.local, self.remote)

    def inbound(self, line):
        seq = (line.start + self.remote_isn) % 2**32
        ack = (line.ack + self.local_isn) % 2**32 if line.ack is not None else 0
        ahead = self.ts_ahead or 0
        options = Options.pack(line.options or "", self.local_isn, lambda n: n and n + ahead)
        offset = (20 + len(options)) // 4 << 4
        flags = sum(FLAGS[letter] for letter in line.flags)
        ports = (self.remote[1], self.local[1])
        header = struct.pack("!HHIIBBHHH", *ports, seq, ack, offset, flags, line.win or 0, 0, 0)
        segment = header + options + b"x" * line.length
        ends = (self.remote[0], self.local[0])
        total = checksum(pseudo(*ends, len(segment)) + segment)
        segment = segment[:16] + struct.pack("!H", total) + segment[18:]
        return wrap(*ends, segment, ECN[line.ecn or "noecn"])

    def icmp(self, line):
        """A router's message about a segment of ours."""
        seq = (line.start + self.local_isn) % 2**32
        quoted = struct.pack("!HHI", self.local[1], self.remote[1], seq)
        inner = wrap(self.local[0], self.remote[0], quoted + bytes(12))
        is_v4 = len(self.local[0]) == 4
        kinds = {
            "frag_needed": (3, 4),
            "packet_too_big": (2, 0),
            "net_unreachable": (3, 0) if is_v4 else (1, 0),
            "host_unreachable": (3, 1) if is_v4 else (1, 3),
            "port_unreachable": (3, 3) if is_v4 else (1, 4),
        }
        mtu = struct.pack("!HH", 0, line.mtu) if is_v4 else struct.pack("!I", line.mtu)
        body = bytes(kinds[line.icmp]) + b"\0\0" + mtu + inner
        body = body[:2] + struct.pack("!H", checksum(body)) + body[4:]
        return wrap(self.remote[0], self.local[0], body, protocol=1)


def parse_outbound(packet):
    """A packet of the stack: its ends, header fields, raw options. Both checksums have to be right."""
    if packet[0] >> 4 == 4:
        length, tos = struct.unpack("!H", packet[2:4])[0], packet[1]
        assert length == len(packet), "the IP header's length"
        assert checksum(packet[:20]) == 0, "the IP header's checksum"
        assert packet[9] == 6, "TCP"
        source, destination, segment = packet[12:16], packet[16:20], packet[20:]
    else:
        tos = struct.unpack("!H", packet[:2])[0] >> 4 & 0xFF
        source, destination, segment = packet[8:24], packet[24:40], packet[40:]
    total = checksum(pseudo(source, destination, len(segment)) + segment)
    assert total == 0, "the segment's checksum"
    ports = struct.unpack("!HH", segment[:4])
    seq, ack, offset, flags, win = struct.unpack("!IIBBH", segment[4:16])
    header = (offset >> 4) * 4
    return {
        "source": (source, ports[0]),
        "destination": (destination, ports[1]),
        "tos": tos,
        "seq": seq,
        "ack": ack,
        "flags": "".join(letter for letter, bit in FLAGS.items() if flags & bit),
        "win": win,
        "options": segment[20:header],
        "payload": segment[header:],
    }


def address(text):
    return ipaddress.ip_address(text).packed


LINE = re.compile(
    r"(?:\[(?P<ecn>\w+)\]\s*)?(?P<flags>[FSRP.UEW]+)\s+(?P<start>\d+):(?P<end>\d+)\((?P<length>\d+)\)"
    r"(?:\s+ack\s+(?P<ack>\d+))?(?:\s+win\s+(?P<win>\d+))?(?:\s*<(?P<options>[^>]*)>)?\s*$"
)
ICMP = re.compile(
    r"icmp unreachable (?P<icmp>\w+)(?: mtu (?P<mtu>\d+))? \[(?P<start>\d+):(?P<end>\d+)\(\d+\)\]\s*$"
)


class Line:
    """A packet as a script writes it."""

    def __init__(self, text):
        icmp = ICMP.match(text)
        found = icmp or LINE.match(text)
        if not found:
            raise ValueError(f"no packet: {text}")
        fields = found.groupdict()
        number = lambda name: int(fields[name]) if fields.get(name) is not None else None
        self.icmp, self.mtu = fields.get("icmp"), number("mtu") or 0
        self.start, self.end = number("start"), number("end")
        self.ecn = (fields.get("ecn") or "").lower() or None
        self.flags, self.options = fields.get("flags") or "", fields.get("options")
        self.length, self.ack, self.win = number("length"), number("ack"), number("win")
        if not icmp and self.end - self.start != self.length:
            raise ValueError(f"{text}: the length is not that of the numbers")
