"""Servers that cases talk to: each is a host, a port, a user and how paths are written there."""

import asyncio
import os
import threading
from pathlib import Path

from harness import KEY_TYPES, Skip, which


class Server:
    def __init__(self, context, name, root=None, prefix=""):
        self.context, self.name = context, name
        self.host, self.port, self.user = context.host, context.port(), context.user
        self.root = root or context.dir(f"root-{name}")
        # What stands in front of a path below the root when a client names it.
        self.prefix = prefix
        self.process = None

    def path(self, name):
        """How a client names the file `name` below the root."""
        return f"{self.prefix}/{name}"

    def url(self, name):
        """For `fullbore cp` and `scp`."""
        return f"{self.user}@{self.host}:{self.path(name)}"

    def here(self, name):
        """The same file, seen from this side."""
        return self.root / name

    def start(self, command, **options):
        self.process = self.context.spawn(command, **options)
        self.context.wait_port(self.host, self.port, self.process)
        return self


def serve(context, *args, keys=None, root=None, host_key="ed25519", **options):
    """`fullbore serve` with its root as `/`."""
    server = Server(context, "serve", root=root)
    command = [context.binary, "serve", "--listen", f"{server.host}:{server.port}", "--root", server.root]
    command += ["--host-key", context.shared / f"host_{host_key}"]
    command += ["--authorized-keys", keys or context.shared / "authorized_keys", *args]
    return server.start(command, **options)


def sshd(context, *lines, subsystem="internal-sftp", host_keys=tuple(KEY_TYPES), log_level="VERBOSE", **options):
    """OpenSSH's server, as the user who runs the tests; paths are absolute."""
    program = which("sshd")
    if context.is_root:
        os.makedirs("/run/sshd", exist_ok=True)
    server = Server(context, "sshd")
    server.prefix = str(server.root)
    config = context.folder / "sshd_config"
    settings = [
        f"ListenAddress {server.host}:{server.port}",
        *[f"HostKey {context.shared}/host_{name}" for name in host_keys],
        f"AuthorizedKeysFile {context.shared}/authorized_keys",
        "PermitRootLogin yes",
        "StrictModes no",
        "UsePAM no",
        "PidFile none",
        "MaxStartups 100",
        f"LogLevel {log_level}",
        f"Subsystem sftp {subsystem}",
        *lines,
    ]
    config.write_text("\n".join(settings) + "\n")
    return server.start([program, "-D", "-e", "-f", config], **options)


def sshd_ours(context, *lines, **options):
    """OpenSSH's server with our sftp-server behind it."""
    return sshd(context, *lines, subsystem=f"{context.binary} sftp-server", **options)


def dropbear(context):
    """Dropbear with OpenSSH's sftp-server behind it."""
    if not Path("/usr/lib/sftp-server").exists() and not Path("/usr/lib/openssh/sftp-server").exists():
        raise Skip("dropbear has no sftp-server to start")
    server = Server(context, "dropbear")
    server.prefix = str(server.root)
    key = context.folder / "dropbear_key"
    context.run([which("dropbearkey"), "-t", "ed25519", "-f", key])
    # It reads ~/.ssh/authorized_keys of the user's real home, unless -D names a folder (newer ones only).
    command = [which("dropbear"), "-F", "-E", "-r", key, "-p", f"{server.host}:{server.port}"]
    _, usage = context.run([which("dropbear"), "-h"], ok=None)
    keys = context.dir("dropbear-keys")
    os.chmod(keys, 0o700)
    (keys / "authorized_keys").write_text((context.shared / "authorized_keys").read_text())
    os.chmod(keys / "authorized_keys", 0o600)
    if "-D " in usage:
        return server.start([*command, "-D", keys])
    return server.start(private_home(context, command, keys))


def private_home(context, command, keys):
    """Runs `command` where the user's ~/.ssh is the folder `keys`: a mount that only it sees."""
    if not context.is_root:
        raise Skip("needs root to give the server a home of its own")
    home = Path(f"~{context.user}").expanduser()
    (home / ".ssh").mkdir(mode=0o700, exist_ok=True)
    script = 'mount --bind "$0" "$1" && shift && exec "$@"'
    return [which("unshare"), "-m", "sh", "-c", script, keys, home / ".ssh", *command]


def asyncssh_server(context, sftp_factory=None, **settings):
    """asyncssh's server in a thread, rooted in the case's folder."""
    import asyncssh

    server = Server(context, "asyncssh")
    started, loop = threading.Event(), asyncio.new_event_loop()
    failure = []

    class Sftp(asyncssh.SFTPServer):
        def __init__(self, channel):
            super().__init__(channel, chroot=os.fsencode(server.root))

    async def listen():
        await asyncssh.listen(
            server.host,
            server.port,
            server_host_keys=[str(context.shared / "host_ed25519")],
            authorized_client_keys=str(context.shared / "authorized_keys"),
            sftp_factory=sftp_factory or Sftp,
            **settings,
        )

    def body():
        try:
            loop.run_until_complete(listen())
        except Exception as why:
            failure.append(why)
        started.set()
        loop.run_forever()

    threading.Thread(target=body, daemon=True).start()
    assert started.wait(20) and not failure, failure
    return server


def paramiko_server(context, subsystem=None):
    """paramiko's server in a thread; `subsystem` replaces its SFTP by a handler of raw channels."""
    import paramiko_peer

    server = Server(context, "paramiko")
    paramiko_peer.listen(server, context.shared / "host_ed25519", subsystem)
    return server


CLIENT_CASE_SERVERS = {
    "sshd": sshd,
    "sshd-ours": sshd_ours,
    "dropbear": dropbear,
    "asyncssh": asyncssh_server,
    "paramiko": paramiko_server,
    "serve": serve,
}
