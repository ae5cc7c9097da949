"""`fullbore lab link`: what it emulates, measured with plain sockets, and that nothing of it stays behind."""

import json
import os
import signal
from pathlib import Path

from harness import MIB, Skip, case, wait_until

PROBE = Path(__file__).resolve().parent / "link_probe.py"


def link(c, *options):
    if not c.is_root:
        raise Skip("namespaces and TUN devices need root")
    return [c.binary, "lab", "link", *options]


def measured(c, *options, mbit, size=8 * MIB):
    """(what the probe found, the emulator's own report)"""
    report = c.folder / "report.json"
    rate = mbit * 125_000
    command = link(c, "--rate", f"{mbit}mbit", *options, "--json", report, "--far", f"python3 {PROBE} serve")
    command += ["--far-port", "7", "--", "python3", PROBE, "measure", str(size), str(rate)]
    out = c.folder / "found.json"
    with open(out, "wb") as file:
        c.run(command, stdout=file)
    return json.loads(out.read_text()), json.loads(report.read_text())


def about(found, wanted, share, what):
    assert abs(found - wanted) <= wanted * share, f"{what}: {found}, not {wanted} within {share:.0%}"


@case("link-long", alone=True)
def link_long(c):
    found, report = measured(c, "--rtt", "200ms", "--seed", str(c.rng.getrandbits(32)), mbit=320)
    about(found["rtt"], 0.2, 0.02, "round trip")
    for way in ("up", "down"):
        about(found[f"{way}_rate"], 40e6, 0.03, f"{way} rate")
        assert report[way]["dropped_device"] == 0, report
    assert found["is_same"]


@case("link-gigabit", alone=True)
def link_gigabit(c):
    found, report = measured(c, "--rtt", "20ms", "--queue", "5ms", mbit=1000, size=64 * MIB)
    about(found["rtt"], 0.02, 0.02, "round trip")
    assert found["is_same"]
    # The stream's 46,000 segments travel by TSO, a millisecond's worth in each packet.
    assert report["down"]["segments_out"] - report["down"]["packets_out"] > 30_000, report
    assert report["down"]["late_p99_us"] < 5_000, report


@case("link-loss", alone=True)
def link_loss(c):
    found, report = measured(c, "--rtt", "10ms", "--queue", "2s", "--loss", "5%", "--congestion", "cubic", mbit=100, size=MIB)
    for way in ("up", "down"):
        share = report[way]["dropped_loss"] / report[way]["segments_in"]
        # Some 10,000 packets: a standard deviation is 0.22 points.
        assert 0.037 < share < 0.063, (way, share, report)
    assert report["up"]["dropped_queue"] == 0, report
    about(found["up_count"], found["up_sent"] * 0.95, 0.02, "datagrams that arrived")
    assert "cubic" in report["stack"], report
    assert found["is_same"]


def left_behind(marker):
    """Processes, outside this one, that name `marker`."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in words and int(pid) != os.getpid():
            found.append(words)
    return found


def ended(c, signal_number):
    """Starts a link whose two ends wait for ever, ends the emulator, and looks for what stays."""
    marks = [c.folder / "mark-near", c.folder / "mark-far"]
    far = f"python3 {PROBE} wait {marks[1]}"
    # In the background, too, which nothing but the end of its PID namespace ends.
    near = f"setsid -f python3 {PROBE} wait {marks[0]}; trap '' TERM; sleep 600"
    process = c.spawn(link(c, "--rtt", "1ms", "--far", far, "--", "sh", "-c", near))
    wait_until(lambda: all(mark.exists() for mark in marks), 20, "both ends run")
    os.kill(process.pid, signal_number)
    code = process.wait(20)
    wait_until(lambda: not left_behind(str(c.folder / "mark-")), 10, f"nothing is left behind of {marks}")
    return code, process.output()


@case("link-terminated")
def link_terminated(c):
    code, output = ended(c, signal.SIGTERM)
    assert code == 128 + signal.SIGTERM, (code, output)
    assert "late: p50" in output, output


@case("link-killed")
def link_killed(c):
    code, _ = ended(c, signal.SIGKILL)
    assert code == -signal.SIGKILL, code


@case("link-exit-code")
def link_exit_code(c):
    assert c.run(link(c, "-q", "--", "sh", "-c", "exit 7"), ok=False)[0] == 7
    assert c.run(link(c, "-q", "--", "sh", "-c", "kill -9 $$"), ok=False)[0] == 137
    code, output = c.run(link(c, "-q", "--", "/no/such/program"), ok=False)
    assert code == 127 and "cannot start /no/such/program" in output, output
    code, output = c.run(link(c, "-q", "--far", "exit 3", "--far-port", "9", "--", "true"), ok=False)
    assert code == 127 and "exit code 3" in output, output
    code, output = c.run(link(c, "-q", "--congestion", "no-such", "--", "true"), ok=False)
    assert code == 127 and "the kernel has" in output, output


@case("link-user-namespace")
def link_user_namespace(c):
    """Whoever may be root of a namespace of their own needs no other root."""
    if c.run(["unshare", "-Ur", "true"], ok=None)[0] != 0:
        print("this machine gives no user namespaces: nothing to test")
        return
    command = ["unshare", "-Ur", c.binary, "lab", "link", "--rtt", "40ms", "--far", f"python3 {PROBE} serve"]
    # Echoes of a datagram, and a flood that a slow link cuts short.
    command += ["--rate", "10mbit", "--far-port", "7", "--", "python3", PROBE, "measure", "1000", "1250000"]
    out = c.folder / "found.json"
    with open(out, "wb") as file:
        c.run(command, stdout=file)
    found = json.loads(out.read_text())
    assert found["is_same"] and found["rtt"] >= 0.04, found
