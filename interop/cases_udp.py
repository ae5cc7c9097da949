"""`cp --transport udp`: to `serve --udp` and through sshd, over loss, new addresses, forgers and walls."""

import os
import random
import select
import socket
import threading
import time

from cases_handshake import FAR, check, copies, known_host, round_trips
from harness import MIB, Skip, case, same, same_tree, wait_until
from servers import serve, sshd

OVER_UDP = "moved to UDP"
OVER_TCP = "over TCP, not UDP"


def serve_udp(c, *args):
    """`serve` with the same number as its UDP port: a relay knows it then."""
    return serve(c, "--udp", str(c.next_port + 1), *args)


def udp(c, server, *args, ok=True, helper=None, relay=None, timeout=60):
    """Copies over UDP; returns the code and what was said."""
    words = ["-v", "--transport", "udp"]
    if helper:
        words += ["--udp-server", helper]
    return c.cp(relay or server, *words, *args, ok=ok, timeout=timeout)


def helper(c, *args):
    return " ".join([str(c.binary), "udp-server", *args])


def both_ways(c, server, size, **options):
    source, down = c.file(size), c.folder / f"down-{size}"
    _, said = udp(c, server, source, server.url(f"up-{size}"), **options)
    assert OVER_UDP in said and OVER_TCP not in said, said
    same(source, server.here(f"up-{size}"))
    _, said = udp(c, server, server.url(f"up-{size}"), down, **options)
    assert OVER_UDP in said, said
    same(source, down)


@case("udp-serve")
def to_serve(c):
    server = serve_udp(c)
    for size in (0, 1, 24 * MIB + 7):
        both_ways(c, server, size)
    tree = c.hard_tree()
    _, said = udp(c, server, "-r", tree, server.url("tree"))
    assert OVER_UDP in said, said
    same_tree(tree, server.here("tree"))


@case("udp-sshd")
def to_sshd(c):
    """OpenSSH logs the user in; our program is only there to be run."""
    server = sshd(c)
    for size in (1, 24 * MIB + 7):
        both_ways(c, server, size, helper=helper(c))
    code, said = udp(c, server, c.file(1), server.url("no"), ok=False, helper=helper(c, "--read-only"))
    assert code == 1 and OVER_UDP in said and not server.here("no").exists(), said
    # Nobody is left to listen once the clients have gone.
    wait_until(lambda: not helpers(c), 10, "the helpers end")


def helpers(c):
    """Processes of this case's program that are started as helpers."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
            local = open(f"/proc/{pid}/environ", "rb").read()
        except OSError:
            continue
        if b"udp-server" in words[1:2] and f" {c.host} ".encode() in local:
            found.append(int(pid))
    return found


class Relay(threading.Thread):
    """Between client and server: forwards TCP, and UDP on the port of the same number.

    `on_up` and `on_down` get each datagram and a function that forwards one; None blocks UDP.
    """

    def __init__(self, c, server, on_up=None, on_down=None):
        super().__init__(daemon=True)
        octets = server.host.split(".")
        self.host, self.port, self.user = ".".join([octets[0], octets[1], str(int(octets[2]) + 100), octets[3]]), server.port, server.user
        self.server, self.on_up, self.on_down = server, on_up, on_down
        self.listener = socket.create_server((self.host, self.port))
        self.near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.near.bind((self.host, self.port))
        self.far = [self.socket()]
        self.client = None
        self.ups = 0
        self.start()
        c.closers.append(self.listener.close)

    def socket(self):
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def rebind(self):
        """From now on the server sees the client at another port."""
        self.far.append(self.socket())

    def up(self, datagram):
        self.far[-1].sendto(datagram, (self.server.host, self.port))

    def down(self, datagram):
        if self.client:
            self.near.sendto(datagram, self.client)

    def run(self):
        threading.Thread(target=self.accept, daemon=True).start()
        while True:
            for ready in select.select([self.near, *self.far], [], [], 0.2)[0]:
                datagram, address = ready.recvfrom(65536)
                if ready is not self.near:
                    if self.on_down:
                        self.on_down(self, datagram)
                    continue
                self.client = address
                self.ups += 1
                if self.on_up:
                    self.on_up(self, datagram)

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection((self.server.host, self.server.port))
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=pipe, args=(one, other), daemon=True).start()


def pipe(one, other):
    try:
        while block := one.recv(65536):
            other.sendall(block)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@case("udp-new-address")
def new_address(c):
    """An address translator gives the client another port, again and again, in the middle of a copy."""
    server = serve_udp(c)

    def up(relay, datagram):
        if relay.ups % 100 == 0:
            relay.rebind()
        relay.up(datagram)

    relay = Relay(c, server, up, lambda relay, datagram: relay.down(datagram))
    source = c.file(8 * MIB)
    # 80 Mbit/s: the copy lasts, and the relay keeps up.
    _, said = udp(c, server, "-l", "80000", source, f"{server.user}@{relay.host}:{server.path('up')}", relay=relay)
    assert OVER_UDP in said, said
    same(source, server.here("up"))
    assert len(relay.far) > 5, len(relay.far)


@case("udp-hostile")
def hostile(c):
    """Somebody hears all datagrams, loses some, sends others again, changed, late, from elsewhere."""
    server = serve_udp(c)
    rng = c.rng
    stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    heard = []

    def attack(datagram, send, target):
        heard.append(datagram)
        del heard[:-500]
        if rng.random() < 0.01:
            return
        send(datagram)
        for _ in range(rng.randrange(3)):
            copy = bytearray(rng.choice(heard))
            if rng.random() < 0.5:
                copy[rng.randrange(len(copy))] ^= 1 << rng.randrange(8)
            stranger.sendto(copy, target)

    def up(relay, datagram):
        attack(datagram, relay.up, (server.host, server.port))

    def down(relay, datagram):
        attack(datagram, relay.down, relay.client)

    relay = Relay(c, server, up, down)
    source, got = c.file(5 * MIB), c.folder / "got"
    there = f"{server.user}@{relay.host}:{server.path('up')}"
    for pair in ((source, there), (there, got)):
        _, said = udp(c, server, "-l", "60000", *pair, relay=relay)
        assert OVER_UDP in said, said
    same(source, got)
    before, _ = server.process.memory()
    for _ in range(20_000):
        junk = bytearray(heard[rng.randrange(len(heard))]) if rng.random() < 0.5 else rng.randbytes(rng.randrange(1400))
        stranger.sendto(junk, (server.host, server.port))
    both_ways(c, server, 1)
    after, _ = server.process.memory()
    assert after < before + 4 * MIB, (before, after)


@case("udp-blocked")
def blocked(c):
    """No datagram gets through: the copy goes over TCP, and says so."""
    server = serve_udp(c)
    relay = Relay(c, server)
    source = c.file(5 * MIB)
    start = time.monotonic()
    _, said = udp(c, server, source, f"{server.user}@{relay.host}:{server.path('up')}", relay=relay)
    took = time.monotonic() - start
    assert OVER_TCP in said and "is UDP let through?" in said and OVER_UDP not in said, said
    same(source, server.here("up"))
    assert relay.ups > 1 and took < 10, (relay.ups, took)


@case("udp-not-offered")
def not_offered(c):
    """Far ends that know nothing of it, each with its reason."""
    for server, command, why in (
        (serve(c), None, "started with --udp"),
        (sshd(c), "/no/such/fullbore udp-server", "/no/such/fullbore"),
        (sshd(c, "ForceCommand internal-sftp"), helper(c), "far end"),
    ):
        source, name = c.file(1), f"up-{server.name}"
        _, said = udp(c, server, source, server.url(name), helper=command)
        assert OVER_TCP in said and why in said, said
        same(source, server.here(name))
        if server.process:
            server.process.stop()
    # Not a word where none is wanted.
    server = serve(c)
    code, said = c.cp(server, "-q", "--transport", "udp", c.file(1), server.url("quiet"))
    assert said == "", said


def killed(c, server, kill, **options):
    source = c.file(32 * MIB)
    command = c.cp_command(server, "-v", "--transport", "udp", "-l", "80000", *options.get("words", []), source, server.url("up"))
    process = c.spawn(command)
    partial = lambda: any(path.stat().st_size > MIB for path in server.root.iterdir() if path.is_file())
    wait_until(partial, 20, "the copy is under way")
    kill()
    start = time.monotonic()
    code = process.wait(40)
    said = process.output()
    assert code == 255 and OVER_UDP in said, (code, said)
    assert "goes on with what was under way" in said, said
    assert time.monotonic() - start < 20, "it took long to notice"
    return source


@case("udp-killed-serve")
def killed_serve(c):
    server = serve_udp(c)
    source = killed(c, server, lambda: server.process.child.kill())
    server.process.wait()
    server.process = c.spawn(server.process.child.args)
    c.wait_port(server.host, server.port, server.process)
    _, said = udp(c, server, source, server.url("up"))
    assert "resumed" in said, said
    same(source, server.here("up"))


@case("udp-killed-helper")
def killed_helper(c):
    server = sshd(c)

    def kill():
        for pid in helpers(c):
            os.kill(pid, 9)

    words = ["--udp-server", helper(c)]
    source = killed(c, server, kill, words=words)
    _, said = udp(c, server, source, server.url("up"), helper=helper(c))
    assert "resumed" in said, said
    same(source, server.here("up"))


@case("udp-killed-client")
def killed_client(c):
    """The far end notices at the latest when nothing was heard for two minutes; new clients come in at once."""
    server = serve_udp(c)
    source = c.file(32 * MIB)
    process = c.spawn(c.cp_command(server, "--transport", "udp", "-l", "80000", source, server.url("up")))
    wait_until(lambda: any(path.stat().st_size > MIB for path in server.root.iterdir()), 20, "the copy is under way")
    process.child.kill()
    process.wait()
    _, said = udp(c, server, source, server.url("up"))
    assert OVER_UDP in said, said
    same(source, server.here("up"))


@case("udp-lossy-link", alone=True)
def lossy_link(c):
    """Byte exact over an emulated link that loses packets, both ways."""
    if not c.is_root:
        raise Skip("namespaces and TUN devices need root")
    source, root, got = c.file(5 * MIB), c.dir("root"), c.folder / "got"
    key, hosts = c.shared / "user_ed25519", c.folder / "hosts"
    cp = f"{c.binary} cp -v --transport udp -F /dev/null -P 22 -i {key} -o UserKnownHostsFile={hosts} -o StrictHostKeyChecking=no"
    far = f"{c.binary} serve --quiet --listen $FULLBORE_FAR:22 --udp 22 --root {root} --host-key {c.shared}/host_ed25519"
    far += f" --authorized-keys {c.shared}/authorized_keys"
    near = f"{cp} {source} $FULLBORE_FAR:up && {cp} $FULLBORE_FAR:up {got}"
    command = [c.binary, "lab", "link", "--rate", "50mbit", "--rtt", "40ms", "--loss", "3%"]
    command += ["--seed", str(c.rng.getrandbits(32)), "--far", far, "--far-port", "22", "--", "sh", "-c", near]
    _, said = c.run(command, timeout=60)
    assert said.count(OVER_UDP) == 2, said
    same(source, got)


# As over TCP, where the offer comes in place of the byte; and over UDP a key exchange, and all the rest at once.
ROUND_TRIPS_FIRST, ROUND_TRIPS_REMEMBERED = 7, 6


@case("udp-round-trips", alone=True)
def udp_round_trips(c):
    known_host(c, 2022, ("ed25519",))
    root = c.dir("root")
    (root / "one").write_bytes(b"x")
    serve = f"{c.binary} serve --listen {FAR}:2022 --udp 2022 --root {root} --host-key {c.shared}/host_ed25519"
    serve += f" --authorized-keys {c.shared}/authorized_keys"
    entries = copies(c, 2022, "/one")
    for entry in entries:
        program, cp, *rest = entry["command"]
        entry["command"], entry["runs"] = [program, cp, "--transport", "udp", *rest], 2
    found = round_trips(c, serve, 2022, entries)
    assert (c.folder / "got").read_bytes() == b"x"
    check(found, "cp, first contact", ROUND_TRIPS_FIRST)
    check(found, "cp, remembered", ROUND_TRIPS_REMEMBERED)
