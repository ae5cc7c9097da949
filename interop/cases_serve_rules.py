"""What `fullbore serve` allows: keys and their options, read-only, and what `sftp-server` says as OpenSSH's."""

import os
import subprocess
import time

from cases_server import Sftp
from harness import case, same, which
from servers import serve


def with_line(context, prefix):
    """An authorized_keys with one key behind `prefix`."""
    keys = context.folder / "keys"
    keys.write_text(f"{prefix}{(context.shared / 'user_ed25519.pub').read_text()}")
    return keys


def rule(name, prefix, works):
    @case(f"serve-rule-{name}")
    def run(context):
        server = serve(context, keys=with_line(context, prefix))
        context.cp(server, context.file(70_000), server.url("x"), ok=works)
        assert server.here("x").exists() == works


rule("plain", "", True)
rule("restrict", "restrict ", True)
rule("internal-sftp", 'restrict,command="internal-sftp" ', True)
rule("from-here", 'from="127.0.0.1,10.0.0.0/8" ', True)
rule("from-elsewhere", 'from="10.0.0.0/8" ', False)
rule("from-not-here", 'from="!127.0.0.1,127.*" ', False)
rule("not-yet-expired", 'expiry-time="29990101" ', True)
rule("expired", 'expiry-time="20200101" ', False)
rule("unknown-option", "no-such-option ", False)
rule("commented-out", "# ", False)


@case("serve-rule-another-key-is-refused")
def other_key(context):
    server = serve(context, keys=with_line(context, ""))
    _, output = context.cp(server, context.file(1), server.url("x"), key="ecdsa256", ok=False)
    assert "denied" in output.lower() or "refused" in output.lower(), output


@case("serve-rule-user-name")
def user_name(context):
    server = serve(context, "--user", "somebody")
    context.cp(server, context.file(1), server.url("x"), ok=False)
    server.user = "somebody"
    context.cp(server, context.file(1), server.url("x"))


@case("serve-rule-read-only")
def read_only(context):
    server = serve(context, "--read-only")
    server.here("x").write_bytes(context.file(70_000).read_bytes())
    context.cp(server, server.url("x"), context.folder / "x")
    same(server.here("x"), context.folder / "x")
    context.cp(server, context.file(1), server.url("y"), ok=False)
    client = Sftp(context, server)
    for line in (b"rm /x", b"mkdir /d", b"rename /x /z", b"chmod 777 /x", b"symlink x /l", b"ln /x /h"):
        try:
            client.batch(line)
        except AssertionError:
            continue
        raise AssertionError(f"{line} worked on a read-only server")
    assert sorted(os.listdir(server.root)) == ["x"]


@case("serve-rule-user-certificate")
def certificate(context):
    keygen = which("ssh-keygen")
    keys = context.folder / "keys"
    keys.write_text(f"cert-authority {(context.shared / 'ca.pub').read_text()}")
    for suffix in ("", ".pub"):
        (context.folder / f"id{suffix}").write_bytes((context.shared / f"user_ed25519{suffix}").read_bytes())
    (context.folder / "id").chmod(0o600)
    server = serve(context, keys=keys)
    client = Sftp(context, server)
    client.known = [o for o in client.known if "IdentityFile" not in o]
    client.flags = ["-i", context.folder / "id"]
    sign = [keygen, "-q", "-s", context.shared / "ca", "-I", "id"]
    context.run([*sign, "-n", context.user, "-V", "-1h:+1h", context.folder / "id.pub"])
    client.put(context.file(1), "x")
    for bad in (["-n", "nobody-else", "-V", "-1h:+1h"], ["-n", context.user, "-V", "-2h:-1h"]):
        context.run([*sign, *bad, context.folder / "id.pub"])
        try:
            client.put(context.file(1), "y")
        except AssertionError:
            continue
        raise AssertionError(f"{bad} was let in")


@case("serve-rule-host-certificate")
def host_certificate(context):
    """Whoever trusts the authority needs to know no key, be it OpenSSH's client or ours; a wrong one is not served."""
    keygen, ca = which("ssh-keygen"), context.shared / "ca"
    for kind in ("ed25519", "rsa"):
        for suffix in ("", ".pub"):
            (context.folder / f"{kind}{suffix}").write_bytes((context.shared / f"host_{kind}{suffix}").read_bytes())
        (context.folder / kind).chmod(0o600)
        sign = [keygen, "-q", "-s", ca, "-I", "id", "-h", "-n", context.host, "-V", "-1h:+1h"]
        context.run([*sign, context.folder / f"{kind}.pub"])
        key = context.folder / kind
        server = serve(context, "--host-key", key, root=context.dir(f"root-{kind}"), host_key=kind)
        # The plain key of the test's own stands first; who asks for a certificate gets the other's.
        known = context.folder / "known"
        known.write_text(f"@cert-authority * {(context.shared / 'ca.pub').read_text()}")
        trusting = ["StrictHostKeyChecking=yes", f"UserKnownHostsFile={known}"]
        client = Sftp(context, server)
        client.known = [f"-o{option}" for option in trusting] + client.known
        client.put(context.file(70_000), "theirs")
        same(context.file(70_000), server.here("theirs"))
        command = [context.binary, "cp", "-F", "/dev/null", "-P", str(server.port)]
        command += ["-i", context.shared / "user_ed25519"]
        for option in trusting:
            command += ["-o", option]
        context.run([*command, context.file(70_000), server.url("ours")])
        same(context.file(70_000), server.here("ours"))
    (context.folder / "rsa-cert.pub").write_bytes((context.folder / "ed25519-cert.pub").read_bytes())
    command = [context.binary, "serve", "--listen", f"{context.host}:0", "--host-key", context.folder / "rsa"]
    _, output = context.run(command, ok=False)
    assert "rsa-cert.pub" in output, output


@case("serve-rule-login-grace")
def login_grace(context):
    """A connection that never says who it is goes away by itself."""
    import socket

    config = context.folder / "serve.toml"
    config.write_text('login-grace = 2\n')
    server = serve(context, "--config", config)
    start = time.monotonic()
    with socket.create_connection((server.host, server.port)) as raw:
        raw.settimeout(20)
        while raw.recv(65536):
            pass
    assert time.monotonic() - start < 10


@case("serve-with-no-flags")
def no_flags(context):
    """Useful as it is: loopback, state under the user's own folder, what to type printed."""
    env = dict(context.env, XDG_DATA_HOME=str(context.folder / "data"))
    process = context.spawn([context.binary, "serve"], cwd=context.dir("here"), env=env)
    end = time.monotonic() + 10
    while "fullbore cp" not in process.output():
        assert process.child.poll() is None and time.monotonic() < end, process.output()
        time.sleep(0.05)
    process.child.terminate()
    assert process.wait(10) == 0, process.output()


# `fullbore sftp-server` on its own, as OpenSSH's is.


def talk(context, data, *flags):
    command = [context.binary, "sftp-server", *flags]
    return subprocess.run(command, input=data, capture_output=True, timeout=30, env=context.env, check=False)


INIT = b"\0\0\0\5\1\0\0\0\3"


@case("sftp-server-exit-codes")
def exit_codes(context):
    assert talk(context, INIT).returncode == 0
    assert talk(context, INIT + b"\0\4\0\1\5").returncode == 11
    assert talk(context, b"\0\0\0\5\5\0\0\0\1").returncode == 255
    done = talk(context, INIT, "-h")
    assert done.returncode == 1, done


@case("sftp-server-lists-requests")
def requests(context):
    names = "open close read write lstat fstat setstat fsetstat opendir readdir remove mkdir rmdir realpath stat rename"
    names += " readlink symlink posix-rename statvfs fstatvfs hardlink fsync lsetstat limits expand-path copy-data"
    names += " home-directory users-groups-by-id"
    found = talk(context, b"", "-Q", "requests").stdout.decode().split()
    assert [n for n in found if n in names.split()] == names.split(), found


@case("sftp-server-refuses-what-it-was-told-to")
def deny(context):
    server_flags = ["-P", "remove,rename", "-R"]
    done = talk(context, INIT, *server_flags)
    assert b"posix-rename" not in done.stdout, done.stdout
