"""`fullbore cp` against every server: sizes, trees, hard names, many names, the biggest file."""

import os

from harness import GIB, HARD_NAMES, SIZES, case, same, same_tree
from servers import CLIENT_CASE_SERVERS


def put_and_get(context, server, size):
    source = context.file(size)
    context.cp(server, source, server.url(f"up-{size}"))
    same(source, server.here(f"up-{size}"))
    down = context.folder / f"down-{size}"
    context.cp(server, server.url(f"up-{size}"), down)
    same(source, down)
    left = [n for n in os.listdir(server.root) if not n.startswith("up-")]
    assert not left, f"left behind: {left}"


def is_utf8(name):
    """paramiko decodes every name as UTF-8 before its server sees it."""
    try:
        return bool(name.decode())
    except UnicodeDecodeError:
        return False


def for_each_server(name, make_server):
    @case(f"cp-{name}-sizes")
    def sizes(context):
        server = make_server(context)
        for size in SIZES:
            put_and_get(context, server, size)

    @case(f"cp-{name}-replace")
    def replace(context):
        server = make_server(context)
        for size in (70_000, 3, 70_000):
            context.cp(server, context.file(size), server.url("same-name"))
            same(context.file(size), server.here("same-name"))
            context.cp(server, server.url("same-name"), context.folder / "same-name")
            same(context.file(size), context.folder / "same-name")

    @case(f"cp-{name}-names")
    def names(context):
        server = make_server(context)
        tree = context.hard_tree(HARD_NAMES if name != "paramiko" else [n for n in HARD_NAMES if is_utf8(n)])
        context.cp(server, "-r", tree, server.url("hard"))
        same_tree(tree, server.here("hard"))
        context.cp(server, "-r", server.url("hard"), context.folder / "back")
        same_tree(tree, context.folder / "back")

    @case(f"cp-{name}-many", timeout=240)
    def many(context):
        server = make_server(context)
        tree = context.many(MANY.get(name, 10_000))
        context.cp(server, "-r", tree, server.url("many"), timeout=200)
        same_tree(tree, server.here("many"))
        context.cp(server, "-r", server.url("many"), context.folder / "back", timeout=200)
        same_tree(tree, context.folder / "back")

    @case(f"cp-{name}-preserve")
    def preserve(context):
        server = make_server(context)
        source = context.file(1000, context.folder / "timed")
        os.chmod(source, 0o640)
        os.utime(source, (1_000_000_000, 1_100_000_000))
        context.cp(server, "-p", source, server.url("timed"))
        context.cp(server, "-p", server.url("timed"), context.folder / "back")
        for path in (server.here("timed"), context.folder / "back"):
            info = os.stat(path)
            assert int(info.st_mtime) == 1_100_000_000, info
            assert info.st_mode & 0o777 == 0o640, info

    @case(f"cp-{name}-refusals")
    def refusals(context):
        server = make_server(context)
        code, output = context.cp(server, server.url("no-such-file"), context.folder / "x", ok=False)
        assert "no-such-file" in output and not (context.folder / "x").exists(), output
        code, output = context.cp(server, context.file(1), server.url("no/such/folder/file"), ok=False)
        assert "no/such/folder" in output, output
        _, output = context.cp(server, "--verify", context.file(70_000), server.url("verified"))
        same(context.file(70_000), server.here("verified"))


    @case(f"cp-{name}-lists-10000", timeout=150)
    def listing(context):
        """A pattern makes the server list the folder; one name of 10,000 fits it."""
        server = make_server(context)
        folder = server.here("many")
        folder.mkdir()
        for i in range(10_000):
            (folder / f"name-{i:05}").touch()
        (folder / "name-09999").write_bytes(b"the last")
        target = context.dir("target")
        context.cp(server, server.url("many/*-0999[9]"), target)
        assert os.listdir(target) == ["name-09999"] and (target / "name-09999").read_bytes() == b"the last"
        # All of them are there: as many as copied, none twice.
        _, output = context.cp(server, server.url("many/name-000??"), target)
        assert len(os.listdir(target)) == 101, output


# asyncssh and paramiko handle one small request at a time in Python.
MANY = {"paramiko": 1_000, "asyncssh": 1_000}

for server_name, factory in CLIENT_CASE_SERVERS.items():
    for_each_server(server_name, factory)


# These take a minute each for a GiB; FULLBORE_SLOW_PEERS asks for them too.
SLOW_SERVERS = ("paramiko", "asyncssh")


def big(name):
    @case(f"cp-{name}-1gib", timeout=300, alone=True)
    def one_gib(context):
        put_and_get(context, CLIENT_CASE_SERVERS[name](context), GIB)


for server_name in CLIENT_CASE_SERVERS:
    if server_name not in SLOW_SERVERS or "FULLBORE_SLOW_PEERS" in os.environ:
        big(server_name)


@case("cp-globs-and-several-sources")
def globs(context):
    server = CLIENT_CASE_SERVERS["sshd"](context)
    for name in ("a1", "a2", "b1", "a*"):
        server.here(name).write_text(name)
    target = context.dir("target")
    context.cp(server, server.url("a?"), server.url("b1"), target)
    assert sorted(os.listdir(target)) == ["a*", "a1", "a2", "b1"]
    other = context.dir("other")
    context.cp(server, server.url("a\\*"), other)
    assert sorted(os.listdir(other)) == ["a*"]
    context.cp(server, server.url("none*"), other, ok=False)


@case("cp-home-and-urls")
def home_and_urls(context):
    server = CLIENT_CASE_SERVERS["serve"](context)
    context.cp(server, context.file(70_000), f"{server.user}@{server.host}:")
    same(context.file(70_000), server.here("data-70000"))
    url = f"sftp://{server.user}@{server.host}:{server.port}/data-70000"
    context.cp(server, url, context.folder / "back")
    same(context.file(70_000), context.folder / "back")


@case("cp-remote-to-remote")
def remote_to_remote(context):
    first, second = CLIENT_CASE_SERVERS["serve"](context), CLIENT_CASE_SERVERS["sshd"](context)
    first.here("x").write_bytes(context.file(5 << 20).read_bytes())
    # The first slash ends the host: what follows it is below the start folder, as in OpenSSH's URLs.
    source = f"sftp://{first.user}@{first.host}:{first.port}//x"
    target = f"sftp://{second.user}@{second.host}:{second.port}/{second.path('y')}"
    context.cp(first, source, target)
    same(first.here("x"), second.here("y"))


@case("cp-growing-and-endless-files")
def size_is_a_hint(context):
    server = CLIENT_CASE_SERVERS["sshd"](context)
    down = context.folder / "cpuinfo"
    context.cp(server, f"{server.user}@{server.host}:/proc/cpuinfo", down)
    assert down.stat().st_size > 100, "a file of size 0 that has content"
    context.cp(server, "/proc/cpuinfo", server.url("cpuinfo"))
    assert server.here("cpuinfo").stat().st_size > 100


@case("cp-jump-host")
def jump(context):
    """Options of the command line are for the last host; the others have the configuration's."""
    server = CLIENT_CASE_SERVERS["sshd"](context)
    inner = CLIENT_CASE_SERVERS["serve"](context)
    hop = f"{server.user}@{server.host}:{server.port}"
    # As with ssh: flags are for the last host, what the hop needs stands in the configuration.
    _, output = context.cp(inner, "-J", hop, context.file(5 << 20), inner.url("refused"), ok=False)
    assert "ssh_config" in output, output
    config = context.folder / "ssh_config"
    config.write_text(
        f"UserKnownHostsFile {context.home}/.ssh/known_hosts\nStrictHostKeyChecking accept-new\n"
        f"IdentityFile {context.shared}/user_ed25519\n"
    )
    command = [context.binary, "cp", "-F", config, "-P", str(inner.port), "-J", hop]
    context.run([*command, context.file(5 << 20), inner.url("through")])
    same(context.file(5 << 20), inner.here("through"))
    assert "direct-tcpip" in server.process.output() or "Accepted publickey" in server.process.output()


@case("cp-changed-host-key-is-refused")
def changed_key(context):
    server = CLIENT_CASE_SERVERS["serve"](context)
    context.cp(server, context.file(1), server.url("x"))
    known = context.home / ".ssh/known_hosts"
    other = (context.shared / "user_ed25519.pub").read_text().split()
    known.write_text(f"[{server.host}]:{server.port} {other[0]} {other[1]}\n")
    _, output = context.cp(server, context.file(1), server.url("y"), ok=False)
    assert "known_hosts" in output, output
    assert not server.here("y").exists()
