"""`fullbore doctor`: what it finds, on real servers and behind emulated links, and that it leaves nothing there."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import servers
from cases_limits import FAR, fullbore, link, serve_command, sshd_command
from harness import case, wait_until


def doctor(c, server, *args, ok=True):
    command = c.cp_command(server, "--seconds", "1", *args)
    command[1] = "doctor"
    return c.run(command, ok=ok)


def found(output):
    line = next(line for line in output.splitlines() if line.startswith("{"))
    return json.loads(line)


@case("doctor-long", alone=True)
def doctor_long(c):
    link_options = ("--rtt", "200ms", "--rate", "320mbit", "--tcp-buffers", "64m")
    command = [*link(c, sshd_command(c), *link_options), *fullbore(c, "doctor", "--seconds", "3", FAR)]
    told = found(c.run(command)[1])
    assert told["version"].startswith("SSH-2.0-OpenSSH_") and told["profile"].startswith("OpenSSH"), told
    assert 199 < told["round_trip"]["min_ms"] < 240 and told["round_trip"]["pings"] == 10, told["round_trip"]
    phases = {phase["name"]: phase["round_trips"] for phase in told["phases"]}
    assert 0.9 < phases["TCP"] < 1.5 and sum(phases.values()) < 12, phases
    assert told["up"]["limit"] == "peer_window" and told["up"]["file"] == "/dev/null", told["up"]
    assert 8e6 < told["up"]["bytes_per_second"] < 11e6, told["up"]
    assert told["up_wide"]["bytes_per_second"] > 1.2 * told["up"]["bytes_per_second"], told["up_wide"]
    assert told["down"]["file"] == "/dev/zero" and told["down"]["bytes"] > 0, told["down"]
    window = next(cap for cap in told["caps"] if cap["layer"] == "the server's channel window")
    assert 9e6 < window["bytes_per_second"] < 11e6, window
    assert "2 MiB" in told["advice"][0]["finding"], told["advice"]
    gains = [advice["gain"] for advice in told["advice"]]
    assert gains == sorted(gains, reverse=True), gains


@case("doctor-small-buffer", alone=True)
def doctor_small_buffer(c):
    options = ("--rtt", "200ms", "--rate", "320mbit", "--tcp-buffers", "262144")
    command = [*link(c, serve_command(c), *options), *fullbore(c, "doctor", "--seconds", "2", FAR)]
    told = found(c.run(command)[1])
    assert told["up"]["limit"] in ("send_buffer", "tcp_receive_window"), told["up"]
    assert told["settings"]["net.ipv4.tcp_wmem"].endswith("262144"), told["settings"]
    assert "KiB" in told["advice"][0]["finding"], told["advice"]
    assert any("net.ipv4.tcp_wmem allows 256 KiB" in advice["finding"] for advice in told["advice"]), told["advice"]


@case("doctor-person")
def doctor_person(c):
    server = servers.sshd(c)
    _, output = doctor(c, server, f"{server.user}@{server.host}")
    for words in ("Connecting", "key exchange", "Round trip", "/dev/null", "/dev/zero", "net.ipv4.tcp_wmem", "OpenSSH"):
        assert words in output, (words, output)


@case("doctor-folder")
def doctor_folder(c):
    server = servers.sshd(c)
    told = found(doctor(c, server, "--json", server.url(""))[1])
    assert ".fullbore-doctor-" in told["up"]["file"] and told["up"]["file"] == told["down"]["file"], told
    assert told["up"]["bytes"] > 0 and told["down"]["bytes"] > 0, told
    assert os.listdir(server.root) == [], "the temporary file is gone"


@case("doctor-no-devices")
def doctor_no_devices(c):
    server = servers.serve(c)
    told = found(doctor(c, server, "--json", f"{server.user}@{server.host}")[1])
    assert ".fullbore-doctor-" in told["up"]["file"] and told["down"]["bytes"] > 0, told
    assert os.listdir(server.root) == [], "the temporary file is gone"


@case("doctor-read-only")
def doctor_read_only(c):
    server = servers.serve(c, "--read-only")
    code, output = doctor(c, server, "--json", f"{server.user}@{server.host}", ok=False)
    told = found(output)
    assert code == 1 and len(told["gaps"]) == 2 and told["round_trip"]["pings"] > 0, (code, told)


@case("doctor-interrupted")
def doctor_interrupted(c):
    server = servers.serve(c)
    command = c.cp_command(server, "--seconds", "60", f"{server.user}@{server.host}")
    command[1] = "doctor"
    process = c.spawn(command)
    wait_until(lambda: os.listdir(server.root), 30, "the temporary file is there")
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(10) == 130, process.output()
    assert os.listdir(server.root) == [], "the temporary file is gone"


@case("doctor-nobody-there")
def doctor_nobody_there(c):
    server = servers.Server(c, "none")
    code, output = doctor(c, server, f"{server.user}@{server.host}", ok=False)
    assert code == 255 and "refused" in output.lower(), (code, output)
    code, output = doctor(c, server, "--json", server.host, ok=False)
    assert code == 255 and found(output)["event"] == "failed", (code, output)
    code, output = doctor(c, server, "./file", ok=False)
    assert code == 1, (code, output)


@case("doctor-interrupted-anywhere", timeout=120)
def doctor_interrupted_anywhere(c):
    """Also while the temporary file is being made, or removed."""
    server = servers.serve(c)
    command = c.cp_command(server, "--seconds", "1", f"{server.user}@{server.host}")
    command[1] = "doctor"
    for _ in range(20):
        process = c.spawn(command)
        moment = c.rng.choice([c.rng.uniform(0, 1), c.rng.uniform(2.0, 2.6)])
        time.sleep(moment)
        if process.child.poll() is None:
            os.kill(process.pid, signal.SIGINT)
        process.wait(15)
        assert os.listdir(server.root) == [], (moment, process.output())


@case("doctor-no-folder")
def doctor_no_folder(c):
    server = servers.sshd(c)
    for name, words in (("missing", "no such file"), ("file", "is no folder there")):
        (server.root / "file").write_text("")
        code, output = doctor(c, server, server.url(name), ok=False)
        assert code == 1 and words in output.lower() and name in output, (code, output)


@case("doctor-mute", timeout=120)
def doctor_mute(c):
    """A server that carries nothing is not all right."""
    mute = Path(__file__).resolve().parent / "mute_sftp.py"
    server = servers.sshd(c, subsystem=f"{sys.executable} {mute}")
    code, output = doctor(c, server, "--json", f"{server.user}@{server.host}", ok=False)
    told = found(output)
    gaps = [gap["text"] for gap in told["gaps"]]
    assert code == 1 and len(gaps) == 2 and all("no byte was confirmed" in gap for gap in gaps), (code, gaps)


@case("doctor-full-path", alone=True, timeout=120)
def doctor_full_path(c):
    """A slow path with a long queue: its window is used up, and is not what limits."""
    options = ("--rtt", "20ms", "--rate", "20mbit", "--queue", "4s", "--congestion", "cubic")
    command = [*link(c, sshd_command(c), *options), *fullbore(c, "doctor", "--seconds", "8", FAR)]
    told = found(c.run(command)[1])
    for way in ("up", "down"):
        assert told[way]["limit"] == "tcp_congestion", told[way]
        assert 2.0e6 < told[way]["bytes_per_second"] < 2.6e6, told[way]
    assert all(advice["gain"] < 1.1 for advice in told["advice"]), told["advice"]
    assert any("the path is full" in advice["finding"] for advice in told["advice"]), told["advice"]
