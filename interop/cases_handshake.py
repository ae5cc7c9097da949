"""Round trips of a whole copy on an emulated link, from the start of the program to its end.

Each command runs on two links that differ only in their round-trip time. What it takes longer on the longer
one, in units of the difference, is its round trips: processor time, which is the same on both, cancels out.
"""

import json
from pathlib import Path

from cases_link import link
from harness import case, which

PROBE = Path(__file__).resolve().parent / "handshake_probe.py"

# The far end of every link, see `fullbore lab link --help`.
FAR = "10.77.0.2"

# Seconds. The difference is what is measured with.
SHORT, LONG = 0.1, 0.3

# TCP's handshake is one. The last is the file's byte: a copy of one byte ends with it. sshd leaves Nagle's
# algorithm on until a session runs, so that what stands behind its version line waits until that is
# acknowledged: one more than what our messages wait for.
FIRST_CONTACT, REMEMBERED = 5 + 1, 4 + 1
SERVE_FIRST_CONTACT, SERVE_REMEMBERED = 5, 4


def round_trips(c, far, port, entries):
    """Round trips of each entry's command, by name."""
    wanted = c.folder / "commands.json"
    wanted.write_text(json.dumps(entries))
    walls = []
    for rtt in (SHORT, LONG):
        out = c.folder / f"walls-{rtt}.json"
        command = ["-q", "--rtt", f"{rtt * 1000:.0f}ms", "--rate", "1gbit", "--far", far, "--far-port", str(port)]
        c.run(link(c, *command, "--", "python3", PROBE, wanted, out))
        walls.append(json.loads(out.read_text()))
    found = {name: (walls[1][name] - wall) / (LONG - SHORT) for name, wall in walls[0].items()}
    print("round trips:", {name: round(count, 2) for name, count in found.items()})
    return found


def check(found, name, wanted):
    assert abs(found[name] - wanted) < 0.5, f"{name}: {found[name]:.2f} round trips, not {wanted}"


def known_host(c, port, names):
    """known_hosts as somebody has it who has been there with keys of all kinds."""
    host = FAR if port == 22 else f"[{FAR}]:{port}"
    lines = [f"{host} {(c.shared / f'host_{name}.pub').read_text()}" for name in names]
    (c.home / ".ssh/known_hosts").write_text("".join(lines))


def copies(c, port, path):
    """One byte got by us: at a first contact, and at the next."""
    state = str(c.home / "state/fullbore/servers")
    command = [c.binary, "cp", "-q", "-F", "/dev/null", "-B", "-P", port, "-i", c.shared / "user_ed25519"]
    for option in (f"UserKnownHostsFile={c.home}/.ssh/known_hosts", "StrictHostKeyChecking=yes", "IdentityAgent=none"):
        command += ["-o", option]
    command += ["--in-place", f"{c.user}@{FAR}:{path}", c.folder / "got"]
    command = [str(word) for word in command]
    return [
        {"name": "cp, first contact", "command": command, "runs": 3, "forget": state},
        {"name": "cp, remembered", "command": command, "runs": 3, "forget": None},
    ]


@case("handshake-sshd", alone=True)
def handshake_sshd(c):
    # In the order in which a stock sshd finds its keys: a guess is right by RSA.
    keys = ("rsa", "ecdsa256", "ed25519")
    known_host(c, 22, keys)
    lines = [
        f"ListenAddress {FAR}:22",
        *[f"HostKey {c.shared}/host_{name}" for name in keys],
        f"AuthorizedKeysFile {c.shared}/authorized_keys",
        "PermitRootLogin yes",
        "StrictModes no",
        "UsePAM no",
        "UseDNS no",
        "PidFile none",
        "Subsystem sftp internal-sftp",
    ]
    config = c.folder / "sshd_config"
    config.write_text("\n".join(lines) + "\n")
    Path("/run/sshd").mkdir(exist_ok=True)
    (c.folder / "one").write_bytes(b"x")
    batch = c.folder / "batch"
    batch.write_text(f"get {c.folder}/one {c.folder}/theirs\n")
    options = [f"UserKnownHostsFile={c.home}/.ssh/known_hosts", "StrictHostKeyChecking=yes", "IdentityAgent=none"]
    options += [f"IdentityFile={c.shared}/user_ed25519"]
    sftp = [which("sftp"), "-q", "-F", "/dev/null", "-b", batch, *[word for o in options for word in ("-o", o)], f"{c.user}@{FAR}"]
    entries = copies(c, 22, c.folder / "one")
    entries.append({"name": "sftp", "command": [str(word) for word in sftp], "runs": 1, "forget": None})
    found = round_trips(c, f"{which('sshd')} -D -f {config}", 22, entries)
    assert (c.folder / "got").read_bytes() == (c.folder / "theirs").read_bytes() == b"x"
    check(found, "cp, first contact", FIRST_CONTACT)
    check(found, "cp, remembered", REMEMBERED)
    # Its login alone takes more; the exact number is its version's.
    assert found["sftp"] > 2 * REMEMBERED, found


@case("handshake-serve", alone=True)
def handshake_serve(c):
    known_host(c, 2022, ("ed25519",))
    root = c.dir("root")
    (root / "one").write_bytes(b"x")
    serve = f"{c.binary} serve --listen {FAR}:2022 --root {root} --host-key {c.shared}/host_ed25519"
    serve += f" --authorized-keys {c.shared}/authorized_keys"
    found = round_trips(c, serve, 2022, copies(c, 2022, "/one"))
    assert (c.folder / "got").read_bytes() == b"x"
    check(found, "cp, first contact", SERVE_FIRST_CONTACT)
    check(found, "cp, remembered", SERVE_REMEMBERED)
