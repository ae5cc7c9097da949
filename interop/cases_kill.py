"""Client or server killed at random moments while a live file is replaced: a reader sees the old or the new file."""

import os
import threading
import time

from harness import MIB, case, sha256
from servers import serve, sshd

SIZE = 16 * MIB
KILLS = 20


class Reader(threading.Thread):
    """Reads a file again and again; every read must be one of the allowed contents."""

    def __init__(self, path, allowed):
        super().__init__()
        self.path, self.allowed = path, allowed
        self.is_over = threading.Event()
        self.reads, self.wrong = 0, []

    def run(self):
        while not self.is_over.is_set():
            found = sha256(self.path)
            self.reads += 1
            if found not in self.allowed:
                self.wrong.append(found)
            time.sleep(0.002)


def kill_case(name, make_server, is_put, victim):
    @case(f"kill-{name}", timeout=240)
    def run(context):
        server = make_server(context)
        old, new = context.file(SIZE, context.folder / "old"), context.file(SIZE + 1, context.folder / "new")
        down = context.dir("down")
        live = server.here("live") if is_put else down / "live"
        live.write_bytes(old.read_bytes())
        if not is_put:
            server.here("new").write_bytes(new.read_bytes())
            server.here("old").write_bytes(old.read_bytes())
        arguments = {
            which: (path, server.url("live")) if is_put else (server.url(which), live)
            for which, path in (("old", old), ("new", new))
        }
        # How long an undisturbed copy takes decides when to kill.
        start = time.monotonic()
        context.cp(server, *arguments["new"])
        whole = time.monotonic() - start
        reader = Reader(live, {sha256(old), sha256(new)})
        reader.start()
        killed = 0
        try:
            for i in range(KILLS):
                wanted = "old" if i % 2 == 0 else "new"
                moment = context.rng.uniform(0, whole)
                process = context.spawn(context.cp_command(server, *arguments[wanted]))
                time.sleep(moment)
                if victim == "client":
                    killed += process.child.poll() is None
                    process.child.kill()
                    process.wait()
                else:
                    server.process.child.kill()
                    server.process.wait()
                    code = process.wait(60)
                    killed += code != 0
                    assert code in (0, 1, 255), f"exit {code}\n{process.output()}"
                    server.process = context.spawn(server.process.child.args)
                    context.wait_port(server.host, server.port, server.process)
                # Then it goes on, and ends right.
                context.cp(server, *arguments[wanted])
                assert sha256(live) == sha256(old if wanted == "old" else new), f"kill {i} after {moment:.3f} s"
        finally:
            reader.is_over.set()
            reader.join()
        assert not reader.wrong, f"{len(reader.wrong)} of {reader.reads} reads saw something else"
        assert killed > KILLS // 4, f"only {killed} of {KILLS} kills hit a running copy"
        left = {p.name for p in live.parent.iterdir()} - {"live", "new", "old"}
        assert not left, f"left behind: {left}"


kill_case("client-put-serve", serve, True, "client")
kill_case("client-get-serve", serve, False, "client")
kill_case("client-put-sshd", sshd, True, "client")
kill_case("server-put-serve", serve, True, "server")
kill_case("server-get-serve", serve, False, "server")


@case("kill-interrupt-is-prompt")
def interrupt(context):
    """Ctrl-C ends a copy at once, with the partial file kept for the next time."""
    import signal

    server = serve(context)
    source = context.file(64 * MIB)
    process = context.spawn(context.cp_command(server, "-l", "8000", source, server.url("x")))
    while not os.listdir(server.root) and process.child.poll() is None:
        time.sleep(0.01)
    start = time.monotonic()
    process.child.send_signal(signal.SIGINT)
    code = process.wait(10)
    assert time.monotonic() - start < 2, "Ctrl-C took its time"
    assert code in (130, -signal.SIGINT), f"exit {code}\n{process.output()}"
    assert not server.here("x").exists()


@case("kill-in-place-is-said")
def in_place(context):
    """What is written to directly is incomplete then: named, and made whole by the same command."""
    import signal

    server = serve(context)
    source = context.file(24 * MIB)
    command = context.cp_command(server, "--in-place", source, server.url("x"))
    process = context.spawn([*command[:2], "-l", "8000", *command[2:]])
    while not server.here("x").exists() or server.here("x").stat().st_size == 0:
        assert process.child.poll() is None, process.output()
        time.sleep(0.01)
    process.child.send_signal(signal.SIGINT)
    assert process.wait(10) in (130, -signal.SIGINT), process.output()
    output = process.output()
    assert "x: incomplete" in output and "goes on" not in output, output
    context.run(command)
    assert sha256(server.here("x")) == sha256(source)


@case("kill-sigterm-ends-serve-cleanly")
def sigterm(context):
    server = serve(context)
    context.cp(server, context.file(1), server.url("x"))
    server.process.child.terminate()
    assert server.process.wait(10) == 0, server.process.output()
