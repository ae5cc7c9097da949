"""`fullbore cp` in the combinations that the other cases leave out: trees of links, servers that refuse, files
that change meanwhile, every way to verify, one copy beside another, a server that stops."""

import os
import signal
import time

from harness import MIB, Skip, case, same, same_tree
from servers import serve, sshd

SFTP_SERVERS = ("/usr/lib/openssh/sftp-server", "/usr/libexec/sftp-server", "/usr/lib/ssh/sftp-server")


def refusing(context, *requests):
    """sshd whose sftp-server refuses some requests."""
    program = next((path for path in SFTP_SERVERS if os.path.exists(path)), None)
    if program is None:
        raise Skip("no sftp-server is installed")
    return sshd(context, subsystem=f"{program} -P {','.join(requests)}")


def temps(folder):
    return [name for name in os.listdir(os.fsencode(folder)) if name.endswith(b".fullbore")]


def tree(context):
    top = context.dir("tree")
    (top / "deep/er").mkdir(parents=True)
    (top / "deep/er/file").write_bytes(b"x" * 40_000)
    (top / "small").write_bytes(b"small")
    (top / "empty").write_bytes(b"")
    (top / "folder-link").symlink_to("deep/er")
    (top / "file-link").symlink_to("small")
    os.chmod(top / "small", 0o604)
    for path in ("small", "deep/er/file", "deep/er", "deep"):
        os.utime(top / path, (1_000_000_000, 1_100_000_000))
    return top


for server_name, factory in (("sshd", sshd), ("serve", serve)):

    def tree_case(name, make_server):
        @case(f"cp-tree-{name}")
        def run(context):
            """Links are followed, modes and times kept, folders too; into a folder that is there, and one that is not."""
            server = make_server(context)
            source = tree(context)
            context.cp(server, "-r", "-p", source, server.url("new"))
            server.here("there").mkdir()
            context.cp(server, "-r", "-p", source, server.url("there"))
            context.cp(server, "-r", "-p", server.url("new"), context.folder / "back")
            for copy in (server.here("new"), server.here("there/tree"), context.folder / "back"):
                assert not (copy / "file-link").is_symlink() and (copy / "file-link").read_bytes() == b"small"
                assert (copy / "folder-link/file").stat().st_size == 40_000
                assert (copy / "small").stat().st_mode & 0o777 == 0o604
                for path in ("small", "deep/er/file", "deep/er", "deep"):
                    assert int((copy / path).stat().st_mtime) == 1_100_000_000, path
                assert not temps(copy)
            same_tree(server.here("new"), context.folder / "back")

        @case(f"cp-sources-{name}")
        def sources(context):
            """Several sources, folders among them, one missing: the others arrive, the exit tells."""
            server = make_server(context)
            server.here("to").mkdir()
            top = tree(context)
            missing = context.folder / "missing"
            _, output = context.cp(server, "-r", top, context.file(70_000), missing, server.url("to"), ok=False)
            assert "missing" in output, output
            same(context.file(70_000), server.here("to/data-70000"))
            assert (server.here("to/tree/small")).read_bytes() == b"small"
            code, output = context.cp(server, context.file(1), top / "small", server.url("no-folder"), ok=False)
            assert code == 1 and "folder" in output, output

        @case(f"cp-says-how-{name}")
        def says(context):
            """-v names address, algorithms and login; -q says nothing; errors name no errno number."""
            server = make_server(context)
            _, output = context.cp(server, "-v", context.file(70_000), server.url("x"))
            for word in (f"connected to {server.host}:{server.port}", "-> ", "gcm", "user_ed25519", "SSH-2.0"):
                assert word in output, (word, output)
            _, output = context.cp(server, "-q", context.file(70_000), server.url("x"))
            assert not output, output
            _, output = context.cp(server, "-q", server.url("none"), context.folder / "y", ok=False)
            assert "none" in output and "os error" not in output, output

    tree_case(server_name, factory)


@case("cp-refused-setstat-is-a-warning")
def refused_setstat(context):
    server = refusing(context, "setstat", "fsetstat")
    for size in (1000, 300_000):
        _, output = context.cp(server, "-p", context.file(size), server.url(f"x{size}"))
        assert "warning" in output and "mode and times" in output, output
        same(context.file(size), server.here(f"x{size}"))


@case("cp-without-posix-rename")
def no_posix_rename(context):
    server = refusing(context, "posix-rename")
    for size in (70_000, 1000, 300_000):
        _, output = context.cp(server, context.file(size), server.url("x"))
        same(context.file(size), server.here("x"))
    assert "cannot replace a file in one step" in output, output
    assert not temps(server.root)


@case("cp-verify-each-way")
def verify(context):
    """check-file; sha256sum on the server; reading back where neither is there."""
    for server, word in (
        (serve(context), "check-file"),
        (sshd(context), "sha256sum"),
        (sshd(context, "ForceCommand internal-sftp"), "reading it back"),
    ):
        source, back = context.file(300_000), context.folder / "back"
        _, output = context.cp(server, "-v", "--verify", source, server.url("x"))
        assert word in output, (word, output)
        _, output = context.cp(server, "-v", "--verify", server.url("x"), back)
        assert word in output, (word, output)
        same(source, back)
        server.process.child.kill()


@case("cp-fsync")
def fsync(context):
    server = sshd(context)
    for size in (1000, 300_000):
        context.cp(server, "--fsync", context.file(size), server.url("x"))
        context.cp(server, "--fsync", server.url("x"), context.folder / "back")
        same(context.file(size), context.folder / "back")


@case("cp-growing-and-shrinking")
def changing(context):
    """What arrives is what was read; that it changed is said."""
    server = sshd(context)
    for is_growing in (True, False):
        source = context.folder / f"changing-{is_growing}"
        source.write_bytes(b"x" * (48 * MIB))
        process = context.spawn(context.cp_command(server, "-l", "200000", source, server.url("x")))
        while not temps(server.root):
            assert process.child.poll() is None, process.output()
        if is_growing:
            with open(source, "ab") as file:
                file.write(b"y" * MIB)
        else:
            os.truncate(source, 47 * MIB)
        process.wait()
        assert ("grew" if is_growing else "shrank") in process.output(), process.output()
        same(source, server.here("x"))


@case("cp-two-at-once")
def two_at_once(context):
    """The same copy twice at the same time: nothing wrong ever has the name, one of them at least succeeds."""
    server = sshd(context)
    source = context.file(96 * MIB)
    command = context.cp_command(server, "-l", "400000", source, server.url("x"))
    first = context.spawn(command)
    while not temps(server.root):
        assert first.child.poll() is None, first.output()
    second = context.spawn(command)
    first.wait()
    second.wait()
    codes = (first.child.returncode, second.child.returncode)
    assert codes[0] == 0, first.output()
    assert codes[1] == 0 or "another copy" in second.output(), second.output()
    same(source, server.here("x"))
    assert not temps(server.root)


@case("cp-stopped-sftp-server-is-named", timeout=150)
def stopped(context):
    """sshd lives on and answers; the SFTP server does not."""
    program = next((path for path in SFTP_SERVERS if os.path.exists(path)), None)
    if program is None:
        raise Skip("no sftp-server is installed")
    server = sshd(context, subsystem=program)
    source = context.file(64 * MIB)
    options = ["ServerAliveInterval=5"]
    process = context.spawn(context.cp_command(server, "-l", "100000", source, server.url("x"), options=options))
    while not temps(server.root):
        assert process.child.poll() is None, process.output()
    victims = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            with open(f"/proc/{pid}/stat") as file:
                session = int(file.read().rsplit(")", 1)[1].split()[3])
        except OSError:
            continue
        if words[0] == program.encode() and is_below(int(pid), server.process.child.pid):
            victims.append((int(pid), session))
    assert len(victims) == 1, victims
    os.kill(victims[0][0], signal.SIGSTOP)
    try:
        start = time.monotonic()
        process.wait(timeout=120)
        assert time.monotonic() - start < 110
    finally:
        os.kill(victims[0][0], signal.SIGCONT)
    assert process.child.returncode == 255, process.output()
    assert "SFTP server" in process.output(), process.output()
    assert "for 60 s it has neither opened it again nor answered" in process.output(), process.output()
    assert not server.here("x").exists()


def is_below(pid, ancestor):
    while pid > 1:
        if pid == ancestor:
            return True
        with open(f"/proc/{pid}/stat") as file:
            pid = int(file.read().rsplit(")", 1)[1].split()[1])
    return False
