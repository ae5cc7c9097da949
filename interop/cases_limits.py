"""What limits a copy is named right: situations built on purpose behind `fullbore lab link`, with the kernel's own TCP."""

import json
import os
import signal
import sys
from pathlib import Path

from harness import MIB, Skip, case, wait_until, which

FAR = "10.77.0.2"
PORT = 2200

# Passes on what comes at so many bytes a second, as a program or a disk would that does no better.
SLOW = """
import os, subprocess, sys, threading, time
child = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE)
rate = int(sys.argv[1])
while block := os.read(0, 32768):
    child.stdin.write(block)
    child.stdin.flush()
    time.sleep(len(block) / rate)
child.stdin.close()
sys.exit(child.wait())
"""

BURNER = "while True: pass"


def sshd_command(c, subsystem="internal-sftp"):
    os.makedirs("/run/sshd", exist_ok=True)
    config = c.folder / "sshd_config"
    lines = [
        f"Port {PORT}",
        f"HostKey {c.shared}/host_ed25519",
        f"AuthorizedKeysFile {c.shared}/authorized_keys",
        "PermitRootLogin yes",
        "StrictModes no",
        "UsePAM no",
        "PidFile none",
        f"Subsystem sftp {subsystem}",
    ]
    config.write_text("\n".join(lines) + "\n")
    return f"{which('sshd')} -D -e -f {config}"


def serve_command(c):
    root = c.dir("root")
    return (
        f"{c.binary} serve --listen {FAR}:{PORT} --root {root} --host-key {c.shared}/host_ed25519"
        f" --authorized-keys {c.shared}/authorized_keys"
    )


def fullbore(c, *args):
    command = [c.binary, "-F", "/dev/null", "-P", str(PORT), "-i", f"{c.shared}/user_ed25519"]
    command.insert(1, args[0])
    for option in (f"UserKnownHostsFile={c.home}/.ssh/known_hosts", "StrictHostKeyChecking=accept-new"):
        command += ["-o", option]
    return [str(word) for word in [*command, "--json", *args[1:]]]


def link(c, far, *options):
    if not c.is_root:
        raise Skip("namespaces and TUN devices need root")
    seed = str(c.rng.getrandbits(32))
    return [c.binary, "lab", "link", "-q", "--seed", seed, *options, "--far", far, "--far-port", str(PORT), "--"]


def events(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def copied(c, far, link_options, *args, before="", ok=True):
    """The events of a copy behind a link; `before` is shell that runs at the near end first."""
    command = " ".join(f"'{word}'" for word in fullbore(c, "cp", *args))
    _, output = c.run([*link(c, far, *link_options), "sh", "-c", f"{before}\n exec {command}"], ok=ok)
    return events(output)


def named(told, wanted, share=0.25):
    """The summary, when it names `wanted` as what limited for at least `share` of the time."""
    summary = told[-1]
    assert summary["event"] == "summary", told
    shown = json.dumps([event for event in told if event["event"] in ("path", "summary")], indent=1)
    assert summary.get("limit") == wanted, f"not {wanted}: {shown}"
    assert summary["share"] >= share, shown
    intervals = [event for event in told if event["event"] == "path"]
    assert any(event["limit"] == wanted for event in intervals), shown
    return summary


LONG = ("--rtt", "200ms", "--rate", "320mbit")


@case("limit-peer-window", alone=True)
def limit_peer_window(c):
    source = c.file(48 * MIB)
    told = copied(c, sshd_command(c), LONG, "--lanes", "1", source, f"{FAR}:{c.folder}/up")
    evidence = named(told, "peer_window")["evidence"]
    assert 0.98 * 2 * MIB <= evidence["window_bytes"] <= 2 * MIB, evidence
    assert evidence["lanes"] == 1 and 195 < evidence["rtt_ms"] < 230, evidence
    assert 8e6 < evidence["bytes_per_second"] < 11e6, evidence


@case("limit-round-trips", alone=True)
def limit_round_trips(c):
    # Each folder's name is known only when the one above has been listed.
    deep = c.dir("deep")
    deep.joinpath(*"abcdefghijklmn").mkdir(parents=True)
    told = copied(c, sshd_command(c), ("--rtt", "100ms", "--rate", "320mbit"), "-r", f"{FAR}:{deep}", c.folder / "down")
    evidence = named(told, "requests_outstanding")["evidence"]
    assert evidence["requests"] < 20, evidence


@case("limit-receive-window", alone=True)
def limit_receive_window(c):
    far = f"sysctl -qw net.ipv4.tcp_rmem='4096 65536 262144'; exec {sshd_command(c)}"
    options = ("--rtt", "100ms", "--rate", "320mbit")
    told = copied(c, far, options, "--lanes", "1", "--connections", "1", c.file(8 * MIB), f"{FAR}:{c.folder}/up")
    evidence = named(told, "tcp_receive_window")["evidence"]
    assert evidence["end"] == "remote" and evidence["window_bytes"] <= 262144, evidence


@case("limit-congestion", alone=True)
def limit_congestion(c):
    # Thousands of segments, so that chance loses about as many each time.
    options = ("--rtt", "40ms", "--rate", "100mbit", "--loss", "1%", "--congestion", "cubic")
    told = copied(c, serve_command(c), options, "--lanes", "1", "--connections", "1", c.file(5 * MIB), f"{FAR}:/up")
    evidence = named(told, "tcp_congestion")["evidence"]
    assert evidence["end"] == "local" and evidence["cwnd_bytes"] > 0, evidence
    lost = [event["evidence"]["lost"] for event in told if event.get("limit") == "tcp_congestion"]
    assert any(0.001 < share < 0.1 for share in lost), lost


@case("limit-path", alone=True)
def limit_path(c):
    # Nothing is lost and no window is small: a slow link, downwards.
    (c.dir("root") / "source").write_bytes(os.urandom(12 * MIB))
    options = ("--rtt", "40ms", "--rate", "20mbit")
    told = copied(c, serve_command(c), options, f"{FAR}:/source", c.folder / "down")
    evidence = named(told, "tcp_congestion")["evidence"]
    # What comes in an interval of 0.4 s comes in bursts: up to a round trip's worth more or less.
    assert evidence["end"] == "remote" and 1.2e6 < evidence["bytes_per_second"] < 3.6e6, evidence


@case("limit-send-buffer", alone=True)
def limit_send_buffer(c):
    before = "sysctl -qw net.ipv4.tcp_wmem='4096 16384 262144'"
    told = copied(
        c, serve_command(c), LONG, "--lanes", "1", "--connections", "1", c.file(5 * MIB), f"{FAR}:/up", before=before
    )
    evidence = named(told, "send_buffer")["evidence"]
    assert evidence["send_buffer_bytes"] <= 2 * 262144, evidence


@case("limit-processor", alone=True)
def limit_processor(c):
    # Two busy programs of a higher priority on the copy's only processor.
    burner = f"taskset -c 0 nice -n -10 {sys.executable} -c '{BURNER}' &"
    before = f"{burner}\n{burner}\n taskset -cp 0 $$ >/dev/null"
    told = copied(
        c, serve_command(c), ("--rtt", "1ms", "--rate", "1gbit"), c.file(40 * MIB), f"{FAR}:/up", before=before
    )
    evidence = named(told, "cpu")["evidence"]
    assert evidence["waiting"] > evidence["running"], evidence


@case("limit-far-end", alone=True)
def limit_far_end(c):
    program = c.folder / "slow.py"
    program.write_text(SLOW)
    server = next((p for p in ("/usr/lib/openssh/sftp-server", "/usr/libexec/sftp-server") if Path(p).exists()), None)
    if server is None:
        raise Skip("OpenSSH's sftp-server is not installed")
    subsystem = f"{sys.executable} {program} 3000000 {server}"
    options = ("--rtt", "20ms", "--rate", "320mbit")
    told = copied(c, sshd_command(c, subsystem), options, "--lanes", "1", c.file(12 * MIB), f"{FAR}:{c.folder}/up")
    evidence = named(told, "remote_processing")["evidence"]
    assert evidence["reply_ms"] > 100, evidence


@case("limit-silence", alone=True)
def limit_silence(c):
    command = [*link(c, serve_command(c), *LONG), *fullbore(c, "cp", c.file(80 * MIB), f"{FAR}:/up")]
    process = c.spawn(command)
    wait_until(lambda: '"event":"path"' in process.output(), 30, "the copy runs")
    servers = [
        int(pid)
        for pid in filter(str.isdigit, os.listdir("/proc"))
        if f"serve\0--listen\0{FAR}:{PORT}\0--root\0{c.folder}" in command_line(pid)
    ]
    assert servers, "no server runs"
    for pid in servers:
        os.kill(pid, signal.SIGSTOP)
    silent = '"limit":"remote_silent"'
    wait_until(lambda: process.output().count(silent) >= 2, 30, f"the silence is told\n{process.output()[-2000:]}")
    for pid in servers:
        os.kill(pid, signal.SIGCONT)
    assert process.wait(60) == 0, process.output()
    waits = [event["evidence"] for event in events(process.output()) if event.get("limit") == "remote_silent"]
    assert waits[0]["silent_ms"] >= 2000 and waits[0]["requests"] > 0, waits


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


@case("limit-rate", alone=True)
def limit_rate(c):
    told = copied(c, serve_command(c), LONG, "-l", "8000", c.file(4 * MIB), f"{FAR}:/up")
    evidence = named(told, "rate_limit", 0.7)["evidence"]
    assert evidence["limit_bytes_per_second"] == 1_000_000, evidence
