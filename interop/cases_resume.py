"""Interrupted copies go on where they stopped, and only if what is there is the beginning of what is sent."""

import os

from harness import MIB, case, same
from servers import serve, sshd

SIZE = 192 * MIB
# A server that cannot hash what it has gets the last 16 MiB before the break again: blocks may be missing there.
BREAK = 32 * MIB
# Kbit/s, so that the break is hit.
LIMIT = ["-l", "2000000"]


def stop_half_way(context, server, source, target, watch, at):
    """Kills a copy once `watch` finds a partial file of `at` bytes."""
    process = context.spawn(context.cp_command(server, *LIMIT, source, target))
    while process.child.poll() is None:
        if any(path.stat().st_size >= at for path in watch()):
            process.child.kill()
    process.wait()


def resume_case(name, make_server, is_put):
    @case(f"resume-{name}")
    def run(context):
        server = make_server(context)
        source = context.file(SIZE)
        down = context.dir("down")
        if is_put:
            arguments, folder = (source, server.url("x")), server.root
        else:
            server.here("source").write_bytes(source.read_bytes())
            arguments, folder = (server.url("source"), down / "x"), down

        def watch():
            return [p for p in folder.iterdir() if p.is_file() and p.name not in ("x", "source")]

        stop_half_way(context, server, *arguments, watch, BREAK)
        assert not (folder / "x").exists(), "half a file under the final name, or the copy was too fast"
        assert watch(), "nothing to resume from"
        _, output = context.cp(server, "-v", *arguments)
        same(source, folder / "x")
        assert not watch(), f"left behind: {os.listdir(folder)}"
        assert "resumed behind" in output, output


for server_name, factory in (("serve", serve), ("sshd", sshd)):
    resume_case(f"put-{server_name}", factory, True)
    resume_case(f"get-{server_name}", factory, False)


def changed_case(name, make_server, where):
    @case(f"resume-changed-prefix-{name}")
    def run(context):
        """The partial file is not the source's beginning: said, and sent anew."""
        server = make_server(context)
        source = context.file(SIZE)

        def watch():
            return [p for p in server.root.iterdir() if p.name != "x"]

        stop_half_way(context, server, source, server.url("x"), watch, BREAK)
        for path in watch():
            with open(path, "r+b") as file:
                for start, length in where(path.stat().st_size):
                    file.seek(start)
                    file.write(b"!" * length)
        _, output = context.cp(server, source, server.url("x"))
        same(source, server.here("x"))
        assert "not the beginning" in output, output


# Our server hashes all that is there; of another one's, what lies before the blocks that may be missing is read.
changed_case("serve", serve, lambda size: [(0, 1)])
changed_case("sshd", sshd, lambda size: [(size - 22 * MIB, 6 * MIB)])
