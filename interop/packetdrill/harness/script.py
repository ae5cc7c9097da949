"""Scripts: a part of packetdrill's language, read into events.

    +0.1 < S 0:0(0) win 1000 <mss 1000>       a packet arrives
    +0   > S. 0:0(0) ack 1 <...>              a packet has left; without win or <> it may be any
    +0   listen(3, 1) = 0                     a call and its result; -1 EAGAIN (words) for a failure
    +0...0.2 accept(3, ..., ...) = 4          a call that blocks, and when it is over
    +0   %{ assert tcpi_unacked == 1 }%       what TCP_INFO says

Times are seconds since the last event (+), or since the start. `// flags: a=b,...` are flags for the
shared object, `// ip_version: ipv6` another family.
"""

import re

from wire import Line

EVENT = re.compile(r"(?P<plus>\+?)(?P<at>\d*\.?\d+)(?:\.\.\.(?P<end>\d*\.?\d+))?\s+(?P<rest>.*)$")
CALL = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\)\s*=\s*(?P<result>-?\w+)(?P<rest>.*)$")


class Bad(Exception):
    """The script cannot be read."""


def micros(text):
    return round(float(text) * 1_000_000)


def split(text):
    """Parts between commas that stand in no brackets or quotes."""
    parts, depth, quoted, part = [], 0, False, ""
    for letter in text:
        quoted ^= letter == '"'
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0 and not quoted:
            parts.append(part.strip())
            part = ""
        else:
            part += letter
    return parts + [part.strip()] if parts or part.strip() else []


class Event:
    def __init__(self, number, text):
        found = EVENT.match(text)
        if not found:
            raise Bad(f"line {number}: no event: {text}")
        self.number, self.text = number, text
        self.is_relative, self.at = bool(found["plus"]), micros(found["at"])
        self.end = micros(found["end"]) if found["end"] else None
        rest = found["rest"].strip()
        try:
            self.read(rest)
        except ValueError as error:
            raise Bad(f"line {number}: {error}") from error

    def read(self, rest):
        self.line = self.call = self.check = None
        if rest[0] in "<>":
            self.kind, self.line = rest[0], Line(rest[1:].strip())
        elif rest.startswith("%{"):
            self.kind = "check"
            self.check = rest.removeprefix("%{").removesuffix("}%").strip().removeprefix("assert ")
        else:
            found = CALL.match(rest)
            if not found:
                raise ValueError(f"no call: {rest}")
            self.kind = "call"
            self.call = found["name"], split(found["arguments"])
            words = found["rest"].split()
            self.errno = words[0] if found["result"] == "-1" and words else None
            self.result = int(found["result"], 0)


class Script:
    def __init__(self, path):
        self.path, self.settings, self.events = path, {}, []
        time, pending = 0, ""
        for number, raw in enumerate(path.read_text().splitlines(), 1):
            if setting := re.match(r"//\s*(flags|ip_version):\s*(\S+)", raw):
                self.settings[setting[1]] = setting[2]
            text = raw.split("//")[0].strip()
            if not text:
                continue
            # A packet's options may stand on a line of their own, as may what follows a backslash.
            pending = f"{pending} {text}".strip()
            if text.endswith("\\"):
                pending = pending[:-1].strip()
                continue
            event = Event(number, pending)
            pending = ""
            event.at += time if event.is_relative else 0
            if event.end is not None:
                event.end += time if event.is_relative else 0
            time = event.at
            self.events.append(event)
        if not self.events:
            raise Bad("no events")

    def change_last_expectation(self):
        """Makes the last thing that the script expects one that does not happen."""
        event = [event for event in self.events if event.kind != "<"][-1]
        if event.kind == "check":
            event.check = f"not ({event.check})"
        elif event.kind == ">":
            event.at += 1000
        elif event.end is not None:
            event.end += 1000
        else:
            event.result = -2
