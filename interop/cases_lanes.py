"""Large files over several sessions and connections of OpenSSH behind `fullbore lab link`: how many, when, and what is refused."""

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from cases_limits import FAR, LONG, PORT, fullbore, link, sshd_command
from harness import MIB, case, same, wait_until

# Buffers that hold the link's 8 MB, so that the server's window is what limits.
WIDE = (*LONG, "--tcp-buffers", "64m")
LOSSY = ("--rtt", "100ms", "--rate", "100mbit", "--loss", "0.2%", "--congestion", "cubic")


def command(c, lines, link_options, *args):
    """A copy behind a link to sshd with `lines` in its configuration; its log is `sshd.log`."""
    far = sshd_command(c, "\n".join(["internal-sftp", "LogLevel VERBOSE", *lines])) + f" -E {c.folder}/sshd.log"
    return [*link(c, far, *link_options), *fullbore(c, "cp", "-v", *args)]


def uploaded(c, lines, link_options, *args, size):
    """(sessions, connections, all that was said) of an upload that went well."""
    source, target = c.file(size), c.folder / "there"
    _, said = c.run(command(c, lines, link_options, *args, source, f"{FAR}:{target}"))
    same(source, target)
    assert target.stat().st_mode & 0o7000 == 0, "the mark of lanes is gone"
    assert not list(c.folder.glob(".there.*")), "no temporary file is left"
    log = (c.folder / "sshd.log").read_text()
    return log.count("Starting session: subsystem 'sftp'"), log.count("Accepted publickey"), said


def best_rate(said):
    told = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    rates = [event["evidence"].get("bytes_per_second", 0) for event in told if event["event"] == "path"]
    return max(rates, default=0)


@case("lanes-window", alone=True)
def lanes_window(c):
    sessions, connections, said = uploaded(c, [], WIDE, size=160 * MIB)
    assert 4 <= sessions <= 10 and connections == 1, (sessions, connections, said)
    assert "4 lanes instead of 1: the server's window of 2.0 MiB limits" in said, said
    # One window allows 10.5 MB/s, the link 40.
    assert best_rate(said) > 25e6, said


@case("lanes-send-buffer", alone=True)
def lanes_send_buffer(c):
    # What a kernel's buffers are where nobody has changed that: 15 MB/s.
    options = (*LONG, "--tcp-buffers", "4m")
    _, connections, said = uploaded(c, [], options, size=240 * MIB)
    assert 2 <= connections <= 8, (connections, said)


@case("lanes-deep-download", alone=True)
def lanes_deep_download(c):
    # More has to be asked for than an unmarked file may have holes; BBR needs it to find the path's rate.
    source, target = c.file(160 * MIB), c.folder / "here"
    options = (*WIDE, "--congestion", "bbr")
    _, said = c.run(command(c, [], options, f"{FAR}:{source}", target))
    same(source, target)
    assert target.stat().st_mode & 0o7000 == 0, "the mark is gone"
    assert "connections instead of" not in said, "what a full queue loses asks for no further connection"
    # The link is 40 MB/s; with windows of twice the path this lay at 27.
    assert best_rate(said) > 35e6, said
    summary = next(json.loads(line) for line in said.splitlines() if '"event":"summary"' in line)
    assert summary["seconds"] < 9, summary


@case("lanes-short-path", alone=True)
def lanes_short_path(c):
    options = ("--rtt", "1ms", "--rate", "1gbit")
    sessions, connections, said = uploaded(c, [], options, size=160 * MIB)
    assert (sessions, connections) == (1, 1), (sessions, connections, said)


@case("lanes-one-session", alone=True)
def lanes_one_session(c):
    sessions, connections, said = uploaded(c, ["MaxSessions 1"], WIDE, size=48 * MIB)
    # What is known of OpenSSH does not say what this one allows.
    assert (sessions, connections) == (1, 1), (sessions, connections, said)
    assert said.count("at most 1 sessions") == 1, said


@case("lanes-two-sessions", alone=True)
def lanes_two_sessions(c):
    sessions, _, said = uploaded(c, ["MaxSessions 2"], WIDE, size=96 * MIB)
    assert sessions == 2, (sessions, said)
    assert said.count("at most 2 sessions") == 1, said


@case("lanes-loss", alone=True)
def lanes_loss(c):
    _, connections, said = uploaded(c, [], LOSSY, size=48 * MIB)
    assert connections >= 4, (connections, said)
    counts = [int(line.split()[1]) for line in said.splitlines() if "connections instead of" in line]
    assert 4 <= max(counts) <= 8, said


# Once somebody has logged in, holds what is left of the one connection that may be logging in at a time.
HOLDER = """
import socket, sys, time
while b"Accepted publickey" not in open(sys.argv[1], "rb").read():
    time.sleep(0.05)
held = socket.create_connection((sys.argv[2], int(sys.argv[3])))
time.sleep(1000)
"""


@case("lanes-no-more-connections", alone=True)
def lanes_no_more_connections(c):
    log = c.folder / "sshd.log"
    log.touch()
    sshd = command(c, ["MaxStartups 1", "LoginGraceTime 0"], LOSSY)
    far = sshd.index("--far") + 1
    (c.folder / "holder.py").write_text(HOLDER)
    holder = f"{sys.executable} {c.folder}/holder.py {log} {FAR} {PORT}"
    sshd[far] = f"{holder} & {sshd[far]}"
    # Twenty seconds for one connection, however fast it starts.
    source, target = c.file(24 * MIB), c.folder / "there"
    _, said = c.run([*sshd, source, f"{FAR}:{target}"])
    same(source, target)
    assert said.count("no further connections in this run") == 1, said
    # The first of the further ones was turned away, and it was the last that was tried.
    log = log.read_text()
    assert log.count("Accepted publickey") == 1 and log.count("past MaxStartups") == 1, log


def is_striped(path):
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mode & 0o1000 != 0
    return False


@case("lanes-killed", timeout=240, alone=True)
def lanes_killed(c):
    size = 160 * MIB
    source, target = c.file(size), c.folder / "there"
    for _ in range(3):
        process = c.spawn(command(c, [], WIDE, source, f"{FAR}:{target}"))
        wait_until(lambda: "lanes instead of" in process.output(), 60, "there are lanes")
        wait_until(lambda: any(is_striped(path) for path in c.folder.glob(".there.*")), 60, "the file is marked")
        time.sleep(c.rng.uniform(0, 3))
        for pid in process.tree():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2] == [b"cp"]:
                    os.kill(pid, signal.SIGKILL)
        process.wait(30)
        assert not target.exists()
        left = list(c.folder.glob(".there.*"))
        assert left and is_striped(left[0]), "what is left tells of lanes"
    uploaded(c, [], WIDE, size=size)
