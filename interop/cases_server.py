"""Every client against `fullbore serve`, and some against `fullbore sftp-server` behind OpenSSH."""

import contextlib
import os
import subprocess
import urllib.parse

from harness import GIB, HARD_NAMES, MIB, SIZES, Skip, case, same, same_tree, wait_until, which
from servers import serve, sshd_ours


class Client:
    """Puts and gets one file by name with one program. `many` lists a folder."""

    def __init__(self, context, server):
        self.context, self.server = context, server
        self.key = context.shared / "user_ed25519"
        self.at = f"{server.user}@{server.host}"
        self.known = [
            "-oUserKnownHostsFile=/dev/null",
            "-oStrictHostKeyChecking=no",
            "-oLogLevel=ERROR",
            "-oIdentitiesOnly=yes",
            f"-oIdentityFile={self.key}",
            "-F/dev/null",
        ]
        self.setup()

    def setup(self):
        pass

    def run(self, command, **options):
        return self.context.run(command, timeout=200, **options)

    def list(self, name):
        raise Skip("does not list")


class Sftp(Client):
    flags = ()
    quiet = ("-q",)  # hides the log of the ssh below it, too

    def batch(self, *lines):
        batch = self.context.folder / f"batch-{self.context.counter}"
        batch.write_bytes(b"".join(line + b"\n" for line in lines))
        command = [which("sftp"), *self.quiet, *self.known, *self.flags, "-b", batch, "-P", str(self.server.port), self.at]
        return self.run(command)

    def put(self, local, name):
        self.batch(b"put %s %s" % (quote(local), quote(self.server.path(name))))

    def get(self, name, local):
        self.batch(b"get %s %s" % (quote(self.server.path(name)), quote(local)))

    def list(self, name):
        _, output = self.batch(b"ls -1 %s" % quote(self.server.path(name)))
        return [os.path.basename(line) for line in output.splitlines() if not line.startswith("sftp>")]


def quote(path):
    """For OpenSSH's sftp: quoted, and taken literally."""
    data = os.fsencode(path)
    return b"".join(b"\\" + bytes([c]) if c in b"\\\"' *?[]#" else bytes([c]) for c in data)


class Scp(Client):
    def put(self, local, name):
        self.run([which("scp"), "-q", *self.known, "-P", str(self.server.port), local, self.server.url(name)])

    def get(self, name, local):
        self.run([which("scp"), "-q", *self.known, "-P", str(self.server.port), self.server.url(name), local])


class Pscp(Client):
    program = "pscp"

    def setup(self):
        key = self.context.shared / "host_ed25519.pub"
        _, shown = self.context.run([which("ssh-keygen"), "-lf", key])
        fingerprint = shown.split()[1]
        self.flags = ["-batch", "-P", str(self.server.port), "-i", self.context.shared / "user.ppk"]
        self.flags += ["-hostkey", fingerprint]

    def list(self, name):
        _, output = self.run([which("pscp"), "-sftp", *self.flags, "-ls", self.server.url(name)])
        return [line.split()[-1] for line in output.splitlines() if line[:1] in "-d"]

    def put(self, local, name):
        self.run([which("pscp"), "-sftp", *self.flags, local, self.server.url(name)])

    def get(self, name, local):
        self.run([which("pscp"), "-sftp", *self.flags, self.server.url(name), local])


class Psftp(Pscp):
    def batch(self, line):
        batch = self.context.folder / "batch"
        batch.write_text(line + "\n")
        return self.run([which("psftp"), *self.flags, "-b", batch, self.at])

    def put(self, local, name):
        self.batch(f'put "{local}" "{self.server.path(name)}"')

    def get(self, name, local):
        self.batch(f'get "{self.server.path(name)}" "{local}"')

    def list(self, name):
        _, output = self.batch(f'ls "{self.server.path(name)}"')
        return [line.split()[-1] for line in output.splitlines() if line[:1] in "-d"]


class Lftp(Client):
    def script(self, *lines):
        program = " ".join(["ssh", "-a", "-x", *map(str, self.known)])
        settings = [f'set sftp:connect-program "{program}"', "set net:max-retries 1", "set cmd:fail-exit yes"]
        opening = f"open -u {self.server.user}, -p {self.server.port} sftp://{self.server.host}"
        return self.run([which("lftp"), "-c", "; ".join([*settings, opening, *lines])])

    def put(self, local, name):
        self.script(f'put "{local}" -o "{self.server.path(name)}"')

    def get(self, name, local):
        self.script(f'get "{self.server.path(name)}" -o "{local}"')

    def list(self, name):
        _, output = self.script(f'cls -1 "{self.server.path(name)}"')
        return [os.path.basename(line) for line in output.splitlines()]


class Rclone(Client):
    def setup(self):
        self.flags = ["--config", "/dev/null", "--sftp-host", self.server.host, "--sftp-port", str(self.server.port)]
        self.flags += ["--sftp-user", self.server.user, "--sftp-key-file", self.key, "--retries", "1"]
        self.flags += ["--sftp-shell-type", "none"]

    def put(self, local, name):
        self.run([which("rclone"), *self.flags, "copyto", local, f":sftp:{self.server.path(name)}"])

    def get(self, name, local):
        self.run([which("rclone"), *self.flags, "copyto", f":sftp:{self.server.path(name)}", local])

    def list(self, name):
        _, output = self.run([which("rclone"), *self.flags, "lsf", f":sftp:{self.server.path(name)}"])
        return output.splitlines()


class Curl(Client):
    host_key = "ecdsa256"

    def setup(self):
        self.flags = ["-sS", "--insecure", "--key", self.key, "--pubkey", f"{self.key}.pub"]
        self.at_url = f"sftp://{self.server.user}@{self.server.host}:{self.server.port}"

    def url(self, name):
        return self.at_url + urllib.parse.quote(os.fsencode(self.server.path(name)))

    def put(self, local, name):
        self.run([which("curl"), *self.flags, "-T", local, self.url(name)])

    def get(self, name, local):
        self.run([which("curl"), *self.flags, "-o", local, self.url(name)])

    def list(self, name):
        _, output = self.run([which("curl"), *self.flags, "-l", f"{self.at_url}{self.server.path(name)}/"])
        return [n for n in output.splitlines() if n not in (".", "..")]


class Sshfs(Client):
    def setup(self):
        if not os.access("/dev/fuse", os.W_OK):
            raise Skip("no /dev/fuse")
        self.mount = self.context.dir("mount")
        command = [which("sshfs"), f"{self.at}:/", self.mount, "-p", str(self.server.port)]
        for option in (o.removeprefix("-o") for o in self.known if o.startswith("-o")):
            command += ["-o", option]
        code, output = self.run(command, ok=None)
        if code and "fuse" in output:
            raise Skip(f"FUSE refuses: {output.strip()}")
        assert code == 0, output
        self.context.closers.append(lambda: subprocess.run(["fusermount", "-u", self.mount], check=False))

    def put(self, local, name):
        with open(local, "rb") as source, open(f"{self.mount}/{name}", "wb") as target:
            while block := source.read(MIB):
                target.write(block)

    def get(self, name, local):
        with open(f"{self.mount}/{name}", "rb") as source, open(local, "wb") as target:
            while block := source.read(MIB):
                target.write(block)

    def list(self, name):
        return os.listdir(f"{self.mount}/{name}")


class Paramiko(Client):
    def setup(self):
        import paramiko

        self.transport = paramiko.Transport((self.server.host, self.server.port))
        key = paramiko.Ed25519Key.from_private_key_file(str(self.key))
        self.transport.connect(username=self.server.user, pkey=key)
        self.sftp = paramiko.SFTPClient.from_transport(self.transport)
        self.context.closers.append(self.transport.close)

    def put(self, local, name):
        self.sftp.put(str(local), self.server.path(name))

    def get(self, name, local):
        self.sftp.get(self.server.path(name), str(local))

    def list(self, name):
        return self.sftp.listdir(self.server.path(name))


class Asyncssh(Client):
    def setup(self):
        import asyncio

        self.asyncio = asyncio

    def do(self, action):
        import asyncssh

        async def body():
            async with asyncssh.connect(
                self.server.host,
                self.server.port,
                username=self.server.user,
                client_keys=[str(self.key)],
                known_hosts=None,
                config=None,
            ) as connection:
                async with connection.start_sftp_client() as sftp:
                    return await action(sftp)

        return self.asyncio.run(body())

    def put(self, local, name):
        self.do(lambda sftp: sftp.put(os.fsencode(local), self.server.path(name)))

    def get(self, name, local):
        self.do(lambda sftp: sftp.get(self.server.path(name), os.fsencode(local)))

    def list(self, name):
        return self.do(lambda sftp: sftp.listdir(self.server.path(name)))


class SftpOverDbclient(Sftp):
    """OpenSSH's sftp with dropbear's client underneath."""

    def setup(self):
        key = self.context.folder / "dropbear_user"
        self.context.run([which("dropbearconvert"), "openssh", "dropbear", self.key, key])
        program = self.context.folder / "ssh-program"
        # sftp speaks OpenSSH's options; dropbear's client has its own.
        program.write_text(
            f'#!/bin/sh\nexec {which("dbclient")} -y -y -i {key} -p {self.server.port} '
            f'{self.at} -s sftp 2>>{self.context.folder}/dbclient-log\n'
        )
        program.chmod(0o755)
        self.flags = ["-S", program]


CLIENTS = {
    "sftp": Sftp,
    "scp": Scp,
    "pscp": Pscp,
    "psftp": Psftp,
    "lftp": Lftp,
    "rclone": Rclone,
    "curl": Curl,
    "sshfs": Sshfs,
    "paramiko": Paramiko,
    "asyncssh": Asyncssh,
    "dbclient": SftpOverDbclient,
}


def round_trip(context, client, server, size):
    source = context.file(size)
    client.put(source, f"up-{size}")
    wait_until(lambda: server.here(f"up-{size}").exists(), 5, "the uploaded file is there")
    same(source, server.here(f"up-{size}"))
    client.get(f"up-{size}", context.folder / f"down-{size}")
    same(source, context.folder / f"down-{size}")


def for_each_client(name, make_client, server_name, make_server):
    def start(context):
        options = {"host_key": make_client.host_key} if hasattr(make_client, "host_key") else {}
        server = make_server(context, **options)
        return make_client(context, server), server

    @case(f"{name}-{server_name}-sizes")
    def sizes(context):
        client, server = start(context)
        for size in SIZES:
            round_trip(context, client, server, size)

    if name == "scp":
        return

    @case(f"{name}-{server_name}-lists-10000")
    def listing(context):
        client, server = start(context)
        folder = server.here("many")
        folder.mkdir()
        for i in range(10_000):
            (folder / f"name-{i:05}").touch()
        found = sorted(n for n in client.list("many") if n not in (".", ".."))
        assert found == sorted(os.listdir(folder)), (len(found), found[:3])


for client_name, client_class in CLIENTS.items():
    for_each_client(client_name, client_class, "serve", serve)
for client_name in ("sftp", "paramiko", "asyncssh"):
    for_each_client(client_name, CLIENTS[client_name], "sshd-ours", sshd_ours)


def big(client_name):
    @case(f"{client_name}-serve-1gib", timeout=300, alone=True)
    def one_gib(context):
        server = serve(context)
        round_trip(context, CLIENTS[client_name](context, server), server, GIB)


# These take a minute each for their own work; FULLBORE_SLOW_PEERS asks for them too.
SLOW_CLIENTS = ("paramiko", "asyncssh", "dbclient")
for client_name in CLIENTS:
    if client_name not in SLOW_CLIENTS or "FULLBORE_SLOW_PEERS" in os.environ:
        big(client_name)


@case("paramiko-serve-names")
def paramiko_names(context):
    server = serve(context)
    client = Paramiko(context, server)
    for i, name in enumerate(HARD_NAMES):
        with client.sftp.open(b"/" + name, "wb") as file:
            file.write(b"%d" % i)
        path = os.path.join(os.fsencode(server.root), name)
        with open(path, "rb") as file:
            assert file.read() == b"%d" % i, name
    assert sorted(os.listdir(os.fsencode(server.root))) == sorted(HARD_NAMES)


@case("asyncssh-serve-names")
def asyncssh_names(context):
    server = serve(context)
    # It takes no backslash in a name.
    tree = context.hard_tree([n for n in HARD_NAMES if b"\\" not in n])
    client = Asyncssh(context, server)
    client.do(lambda sftp: sftp.put(os.fsencode(tree), b"/hard", recurse=True))
    same_tree(tree, server.here("hard"))
    back = os.fsencode(context.folder / "back")
    client.do(lambda sftp: sftp.get(b"/hard", back, recurse=True))
    same_tree(tree, context.folder / "back")


@case("sftp-serve-names")
def sftp_names(context):
    server = serve(context)
    # A newline ends a line of a batch file.
    tree = context.hard_tree([n for n in HARD_NAMES if b"\n" not in n])
    client = Sftp(context, server)
    client.batch(b"put -r %s /" % quote(tree))
    same_tree(tree, server.here("hard"))
    client.batch(b"get -r /hard %s" % quote(context.folder / "back"))
    same_tree(tree, context.folder / "back")


def names_case(name, is_possible):
    """Each hard name that the program can be told, put and got one by one."""

    @case(f"{name}-serve-names")
    def run(context):
        options = {"host_key": CLIENTS[name].host_key} if hasattr(CLIENTS[name], "host_key") else {}
        server = serve(context, **options)
        client = CLIENTS[name](context, server)
        for i, hard in enumerate(filter(is_possible, HARD_NAMES)):
            source = context.folder / f"source-{i}"
            source.write_bytes(b"%d" % i + hard)
            client.put(source, os.fsdecode(hard))
            assert sorted(os.listdir(os.fsencode(server.root))) == [hard], hard
            same(source, server.here(os.fsdecode(hard)))
            client.get(os.fsdecode(hard), context.folder / f"back-{i}")
            same(source, context.folder / f"back-{i}")
            server.here(os.fsdecode(hard)).unlink()


def is_text(name):
    try:
        return name.decode().isprintable()
    except UnicodeDecodeError:
        return False


names_case("sshfs", lambda name: True)
names_case("scp", lambda name: not set(name) & set(b"*?[]\\"))
names_case("curl", lambda name: True)
# PuTTY's programs have patterns of their own; rclone writes bytes that are no text in an alphabet of its own.
names_case("pscp", lambda name: is_text(name) and not set(name) & set(b"*?[]\\\"'"))
names_case("psftp", lambda name: is_text(name) and not set(name) & set(b"*?[]\\\"'"))
names_case("lftp", lambda name: is_text(name) and not set(name) & set(b"*?[]\\\"'"))
names_case("rclone", is_text)


@case("ssh-subsystem-serve")
def ssh_subsystem(context):
    """`ssh -s host sftp` by hand: VERSION comes, end of input ends the session with 0."""
    server = serve(context)
    client = Client(context, server)
    init = b"\0\0\0\5\1\0\0\0\3"
    command = [which("ssh"), *client.known, "-p", str(server.port), "-s", client.at, "sftp"]
    done = subprocess.run(command, input=init, capture_output=True, timeout=30, env=context.env, check=False)
    assert done.stdout[4:9] == b"\2\0\0\0\3", done
    assert done.returncode == 0, done


@case("sftp-serve-metadata")
def metadata(context):
    server = serve(context)
    client = Sftp(context, server)
    local = context.file(70_000)
    client.batch(
        b"mkdir /d",
        b"put %s /d/a" % quote(local),
        b"rename /d/a /d/b",
        b"chmod 600 /d/b",
        b"symlink b /d/link",
        b"ln /d/b /d/hard",
        b"cp /d/b /d/copy",
        b"df /d",
        b"ls -la /d",
        b"rm /d/hard",
        b"mkdir /e",
        b"rmdir /e",
    )
    folder = server.here("d")
    assert sorted(os.listdir(folder)) == ["b", "copy", "link"]
    assert os.readlink(folder / "link") == "b"
    assert os.stat(folder / "b").st_mode & 0o777 == 0o600
    same(local, folder / "copy")


@case("sftp-serve-resumes")
def sftp_resume(context):
    server = serve(context)
    client = Sftp(context, server)
    source = context.file(5 * MIB)
    server.here("part").write_bytes(source.read_bytes()[: 2 * MIB])
    client.batch(b"reput %s /part" % quote(source))
    same(source, server.here("part"))
    half = context.folder / "half"
    half.write_bytes(source.read_bytes()[: 3 * MIB])
    client.batch(b"reget /part %s" % quote(half))
    same(source, half)


@case("sshfs-serve-edits")
def sshfs_edits(context):
    server = serve(context)
    client = Sshfs(context, server)
    path = client.mount / "edited"
    with open(path, "wb") as file:
        file.write(b"a" * 100_000)
    with open(path, "r+b") as file:
        file.seek(50_000)
        file.write(b"middle")
        file.truncate(80_000)
    content = server.here("edited").read_bytes()
    assert len(content) == 80_000 and content[50_000:50_006] == b"middle"
    os.rename(path, client.mount / "moved")
    os.unlink(client.mount / "moved")
    with contextlib.suppress(FileNotFoundError):
        raise AssertionError(server.here("moved").stat())
