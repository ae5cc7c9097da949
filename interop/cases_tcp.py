"""Our TCP on a TUN device (`fullbore lab tcp`) against the kernel's, and against programs that use it."""

import json
from pathlib import Path

from harness import GIB, MIB, Skip, case, same, which
from servers import sshd

PEER = Path(__file__).resolve().parent / "tcp_peer.py"


def prepared(c, **job):
    """The file that tells the peer what to do."""
    if not c.is_root:
        raise Skip("namespaces and TUN devices need root")
    c.counter += 1
    stem = c.folder / f"job-{c.counter}"
    job.update(binary=str(c.binary), report=f"{stem}.report", found=f"{stem}.found")
    file = Path(f"{stem}.json")
    file.write_text(json.dumps(job))
    return file


def outcome(file):
    """(what the kernel's side found, what our side says of each of its connections)"""
    job = json.loads(file.read_text())
    lines = Path(job["report"]).read_text().splitlines()
    return json.loads(Path(job["found"]).read_text()), [json.loads(line) for line in lines]


def direct(c, **job):
    """Kernel and endpoint in one namespace."""
    file = prepared(c, **job)
    c.run([which("unshare"), "--net", "python3", PEER, "direct", file])
    return outcome(file)


def both_whole(kernel, ours, size, send):
    """Each side got what the other one sent."""
    assert "error" not in ours, ours
    assert (kernel["sent"], kernel["received"]) == (size, send), kernel
    assert kernel["sent_sha256"] == ours["received_sha256"], (kernel, ours)
    assert kernel["received_sha256"] == ours["sent_sha256"], (kernel, ours)


def exchanged(c, size=16 * MIB, send=16 * MIB, **job):
    kernel, [ours] = direct(c, size=size, send=send, **job)
    both_whole(kernel, ours, size, send)
    return ours


@case("tcp-kernel-client", alone=True)
def tcp_kernel_client(c):
    ours = exchanged(c, GIB, GIB, role="client")
    # Nothing is lost here; a busy machine may stand still for as long as a timer runs.
    assert ours["retransmissions"] < 100, ours
    # TSO: our device took the kernel's bytes by the packet of many segments.
    assert ours["segments_received"] < GIB / 1448 / 4, ours


@case("tcp-kernel-server", alone=True)
def tcp_kernel_server(c):
    ours = exchanged(c, GIB, GIB, role="server", family=6, ours=["--congestion", "cubic"])
    assert ours["retransmissions"] < 100, ours


OPTIONS = [
    ("sack", "net.ipv4.tcp_sack", "is_sack"),
    ("timestamps", "net.ipv4.tcp_timestamps", "is_timestamps"),
    ("window-scaling", "net.ipv4.tcp_window_scaling", "is_scaled"),
]


@case("tcp-options")
def tcp_options(c):
    for role in ("client", "server"):
        ours = exchanged(c, role=role, sysctl={"net.ipv4.tcp_ecn": 0}, ours=["--ecn"])
        assert all(ours[field] for _, _, field in OPTIONS) and not ours["is_ecn"], ours
        for flag, name, field in OPTIONS:
            ours = exchanged(c, role=role, sysctl={name: 0})
            assert not ours[field], (name, ours)
            ours = exchanged(c, role=role, ours=[f"--no-{flag}"])
            assert not ours[field], (flag, ours)


@case("tcp-ecn")
def tcp_ecn(c):
    for role in ("client", "server"):
        ours = exchanged(c, role=role, sysctl={"net.ipv4.tcp_ecn": 1}, ours=["--ecn"])
        assert ours["is_ecn"], ours


@case("tcp-mtu")
def tcp_mtu(c):
    for mtu in ("576", "9000", "65535"):
        ours = exchanged(c, 8 * MIB, 8 * MIB, role="client", ours=["--mtu", mtu])
        assert ours["snd_mss"] <= int(mtu) - 40, ours


def over_link(c, *options, size, send, ours=()):
    """The kernel at the near end of an emulated link, our endpoint behind its far end."""
    file = prepared(c, size=size, send=send, ours=list(ours))
    command = [c.binary, "lab", "link", "-q", *options, "--seed", str(c.rng.getrandbits(32))]
    command += ["--far", f"python3 {PEER} far {file}", "--", "python3", PEER, "near", file]
    c.run(command)
    kernel, [found] = outcome(file)
    both_whole(kernel, found, size, send)
    return kernel, found


@case("tcp-loss", alone=True)
def tcp_loss(c):
    path = ["--rtt", "20ms", "--rate", "100mbit", "--loss", "1%"]
    kernel, ours = over_link(c, *path, size=4 * MIB, send=32 * MIB)
    assert ours["retransmissions"] > 100 and kernel["retransmissions"] > 10, (kernel, ours)
    assert ours["timeouts"] <= 2, ours
    # No SACK to repair by: slower, and whole all the same.
    over_link(c, *path, size=MIB, send=4 * MIB, ours=["--no-sack"])


@case("tcp-reorder", alone=True)
def tcp_reorder(c):
    path = ["--rtt", "20ms", "--rate", "100mbit", "--reorder", "2%"]
    _, ours = over_link(c, *path, size=16 * MIB, send=32 * MIB)
    segments = 32 * MIB / 1448
    # What is late is not taken for lost, once that was seen.
    assert ours["spurious"] < segments / 50, ours
    assert ours["timeouts"] == 0, ours


@case("tcp-curl")
def tcp_curl(c):
    which("curl")
    source = c.file(64 * MIB)
    outs = [c.folder / "out-4", c.folder / "out-6"]
    urls = ["http://10.79.0.2:8080/", "http://[fd79::2]:8080/"]
    fetch = [f"curl -sS --retry 20 --retry-connrefused --retry-delay 1 -o {out} {url}" for out, url in zip(outs, urls)]
    arguments = ["--listen", "8080", "--http", str(source), "--count", "2"]
    _, lines = direct(c, role="programs", arguments=arguments, then=fetch)
    assert [line["sent"] for line in lines] == [64 * MIB] * 2, lines
    for out in outs:
        same(source, out)


@case("tcp-nc")
def tcp_nc(c):
    which("nc")
    source, got, back = c.file(5 * MIB), c.folder / "got", c.folder / "back"
    # nc sends to us; our standard output has it.
    send = f"nc -N 10.79.0.2 7000 < {source} > /dev/null"
    arguments = ["--listen", "7000", "--count", "1"]
    direct(c, role="programs", arguments=arguments, then=[send], stdout=str(got))
    same(source, got)
    # nc waits for us; our standard input goes to it.
    wait = [["sh", "-c", f"exec nc -l -N 7000 > {back}"]]
    arguments = ["--connect", "10.79.0.1:7000"]
    direct(c, role="programs", first=wait, ports=[7000], arguments=arguments, then=["true"], stdin=str(source))
    same(source, back)


@case("tcp-iperf3")
def tcp_iperf3(c):
    which("iperf3")
    for name, flags in (("up", ""), ("down", "-R"), ("six", "-6")):
        out = c.folder / f"{name}.json"
        address = "fd79::2" if flags == "-6" else "10.79.0.2"
        # Eight connections at once and the one that steers them, through our stack.
        then = f"iperf3 {flags} -J -c {address} -p 5201 -P 8 -n 256M > {out}"
        direct(
            c,
            role="programs",
            first=[["iperf3", "-s", "-1", "-p", "5201"]],
            ports=[5201],
            arguments=["--listen", "5201", "--forward", "127.0.0.1:5201"],
            then=[then],
            ends=False,
        )
        report = json.loads(out.read_text())
        assert "error" not in report, report["error"]
        # What is still under way when the sender is done is not counted.
        assert report["end"]["sum_received"]["bytes"] > 32 * MIB, report["end"]


@case("tcp-ssh")
def tcp_ssh(c):
    """Whole copies to and from OpenSSH's server, every byte of the session through our TCP."""
    if not c.is_root:
        raise Skip("TUN devices need root")
    server = sshd(c)
    source, back = c.file(64 * MIB), c.folder / "back"
    # In the namespace of the server: a network of its own for each run.
    network = f"10.78.{c.rng.randrange(1, 255)}"
    command = [c.binary, "lab", "tcp", "--device", f"fb{c.rng.getrandbits(24):x}", "--here", f"{network}.1/24"]
    command += ["--address", f"{network}.2", "--listen", "2222", "--forward", f"{server.host}:{server.port}"]
    process = c.spawn(command)
    c.wait_port(f"{network}.2", 2222, process)
    server.host, server.port = f"{network}.2", 2222
    c.cp(server, source, server.url("there"))
    same(source, server.here("there"))
    c.cp(server, server.url("there"), back)
    same(source, back)
