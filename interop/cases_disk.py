"""Full disks and file-size limits: an error that says so, and nothing under the final name."""

import os
import resource
import subprocess

from cases_server import Sftp
from harness import MIB, Skip, case
from servers import serve, sshd, sshd_ours

SIZE = 64 * MIB


def small_disk(context, name):
    if not context.is_root:
        raise Skip("mounting a small tmpfs needs root")
    folder = context.dir(name)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True, check=False)
    if done.returncode:
        raise Skip(f"no tmpfs can be mounted here: {done.stderr.decode().strip()}")
    context.closers.append(lambda: subprocess.run(["umount", "-l", folder], check=False))
    return folder


def check(output, folder, words):
    assert any(word in output.lower() for word in words), output
    assert not (folder / "x").exists(), "a stump under the final name"


FULL = ("no space left", "disk is full", "enospc")
LIMIT = ("file too large", "size limit", "efbig")


@case("disk-full-put-serve")
def put_serve(context):
    folder = small_disk(context, "small")
    server = serve(context, root=folder)
    _, output = context.cp(server, context.file(SIZE), server.url("x"), ok=False)
    check(output, folder, FULL)


@case("disk-full-get-serve")
def get_serve(context):
    folder = small_disk(context, "small")
    server = serve(context)
    server.here("source").write_bytes(context.file(SIZE).read_bytes())
    _, output = context.cp(server, server.url("source"), folder / "x", ok=False)
    check(output, folder, FULL)


@case("disk-full-put-sshd-ours")
def put_sshd_ours(context):
    folder = small_disk(context, "small")
    server = sshd_ours(context)
    server.root, server.prefix = folder, str(folder)
    _, output = context.cp(server, context.file(SIZE), server.url("x"), ok=False)
    check(output, folder, FULL)


@case("disk-full-put-sshd")
def put_sshd(context):
    """OpenSSH's server says only `Failure`; that is passed on, with the reason that is behind nearly all."""
    folder = small_disk(context, "small")
    server = sshd(context)
    server.root, server.prefix = folder, str(folder)
    _, output = context.cp(server, context.file(SIZE), server.url("x"), ok=False)
    check(output, folder, ("its disk or a quota is full",))


@case("disk-full-sftp-serve")
def sftp_put(context):
    folder = small_disk(context, "small")
    server = serve(context, root=folder)
    client = Sftp(context, server)
    try:
        client.put(context.file(SIZE), "y")
    except AssertionError as why:
        assert "write remote" in str(why), why
    else:
        raise AssertionError("64 MiB on a disk of 8")


def limited(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@case("disk-limit-get")
def limit_get(context):
    server = serve(context)
    server.here("source").write_bytes(context.file(SIZE).read_bytes())
    target = context.dir("down")
    _, output = context.cp(server, server.url("source"), target / "x", ok=False, preexec_fn=limited(8 * MIB))
    check(output, target, LIMIT)


@case("disk-limit-put-serve")
def limit_put(context):
    server = serve(context, preexec_fn=limited(8 * MIB))
    _, output = context.cp(server, context.file(SIZE), server.url("x"), ok=False)
    check(output, server.root, LIMIT)
    context.cp(server, context.file(MIB), server.url("small"))
    assert os.path.getsize(server.here("small")) == MIB, "the server lives on"
