"""Many small files: fullbore, rsync and tar over ssh in one run, alternating, medians.

    benches/files.py [--rounds N] [--quick] [--only near|far]     (or through benches/run.py --only files)

near: 10,000 files of 4 KiB over loopback. far: 2,000 of them behind 100 ms, which a relay adds to each
direction by halves; it limits no rate. Every program logs in anew each time, and that counts.
"""

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "interop")]

import harness  # noqa: E402

SFTP_SERVER = "/usr/lib/openssh/sftp-server"
FILE_BYTES = 4096
FILES_PER_FOLDER = 250
RTT = 0.1
# Two runs of the same program differ by this much here: "no slower" means within it.
NOISE = 1.03

# (situation, way, ours, the program that it must not be slower than)
FLOORS = [
    ("far", "get", "cp-sshd", "tar"),
    ("far", "put", "cp-sshd", "tar"),
    ("near", "get", "cp-sshd", "rsync"),
    ("near", "put", "cp-sshd", "rsync"),
    ("near", "get", "cp-serve", "rsync"),
    ("near", "put", "cp-serve", "rsync"),
]
NAMES = {
    "cp-sshd": "`fullbore cp -r` - `sshd`",
    "cp-serve": "`fullbore cp -r` - `fullbore serve`",
    "tar": "`tar` over `ssh`",
    "rsync": "`rsync -r` over `ssh`",
}


class Relay:
    """Passes connections on to a port, each byte half a round trip later."""

    def __init__(self, host, port, rtt):
        self.target, self.delay = (host, port), rtt / 2
        self.loop = asyncio.new_event_loop()
        started = threading.Event()
        self.thread = threading.Thread(target=self.body, args=(host, started), daemon=True)
        self.thread.start()
        started.wait()

    def body(self, host, started):
        async def listen():
            server = await asyncio.start_server(self.accept, host, 0, limit=1 << 20)
            self.port = server.sockets[0].getsockname()[1]
            started.set()
            await server.serve_forever()

        self.loop.run_until_complete(listen())

    async def accept(self, reader, writer):
        # The handshake is a round trip, too.
        await asyncio.sleep(self.delay * 2)
        there = await asyncio.open_connection(*self.target, limit=1 << 20)
        await asyncio.gather(self.carry(reader, there[1]), self.carry(there[0], writer), return_exceptions=True)

    async def carry(self, reader, writer):
        waiting = asyncio.Queue()

        async def deliver():
            while True:
                at, data = await waiting.get()
                await asyncio.sleep(at - self.loop.time())
                if not data:
                    return writer.close()
                writer.write(data)

        task = self.loop.create_task(deliver())
        data = b"-"
        while data:
            try:
                data = await reader.read(1 << 18)
            except OSError:
                data = b""
            waiting.put_nowait((self.loop.time() + self.delay, data))
        await task


class Bench:
    def __init__(self, args):
        self.args = args
        self.shared = harness.make_shared_folder()
        self.folder = self.shared / "bench"
        self.folder.mkdir()
        harness.make_keys(self.shared)
        self.context = harness.Context(args.binary.resolve(), self.folder, self.shared, seed=0, number=2)

    def close(self):
        self.context.close()
        shutil.rmtree(self.shared, ignore_errors=True)

    def tree(self, count):
        """`count` files in folders of 250."""
        top = self.folder / f"tree-{count}"
        content = os.urandom(FILE_BYTES)
        for number in range(count):
            folder = top / f"d{number // FILES_PER_FOLDER:03}"
            if number % FILES_PER_FOLDER == 0:
                folder.mkdir(parents=True)
            (folder / f"f{number:06}").write_bytes(content)
        return top

    def ssh(self, port):
        known = ["-oUserKnownHostsFile=/dev/null", "-oStrictHostKeyChecking=no", "-oLogLevel=ERROR", "-F/dev/null"]
        return ["ssh", *known, "-i", str(self.shared / "user_ed25519"), "-p", str(port)]

    def commands(self, program, server, port, way, tree, target):
        """What to run: a list, or a line for the shell."""
        login = f"{server.user}@{server.host}"
        ssh = " ".join(self.ssh(port))
        if program == "tar":
            pack, unpack = f"tar -C {tree} -cf - .", f"tar -C {target} -xf -"
            target.mkdir()
            line = f"{ssh} {login} '{pack}' | {unpack}" if way == "get" else f"{pack} | {ssh} {login} '{unpack}'"
            return ["bash", "-o", "pipefail", "-c", line]
        if program == "rsync":
            ends = [f"{login}:{tree}/", f"{target}/"] if way == "get" else [f"{tree}/", f"{login}:{target}/"]
            return ["rsync", "-r", "-W", "-e", ssh, *ends]
        far = tree if way == "get" else target
        # Behind `serve` the root is the folder that holds both.
        far = f"/{far.name}" if program == "cp-serve" else far
        there = f"sftp://{login}:{port}/{far}"
        ends = [there, target] if way == "get" else [tree, there]
        return self.context.cp_command(server, "-q", "-r", *ends)

    def measure(self, program, server, port, way, tree):
        target = self.folder / "copy"
        shutil.rmtree(target, ignore_errors=True)
        command = [str(part) for part in self.commands(program, server, port, way, tree, target)]
        start = time.monotonic()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=self.context.env)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0, f"exit {child.returncode}: {' '.join(command)}"
        self.check(tree, target)
        return seconds, usage.ru_utime + usage.ru_stime

    def check(self, tree, target):
        found = 0
        for folder, _, names in os.walk(target):
            for name in names:
                path = Path(folder) / name
                assert path.read_bytes() == (tree / path.relative_to(target)).read_bytes(), path
                found += 1
        assert found == sum(len(names) for _, _, names in os.walk(tree)), f"{found} files arrived"

    def run(self):
        import servers

        openssh = servers.sshd(self.context, "LogLevel ERROR", subsystem=SFTP_SERVER, host_keys=["ed25519"])
        ours = servers.serve(self.context, root=self.folder)
        near = {"cp-sshd": openssh, "cp-serve": ours, "rsync": openssh, "tar": openssh}
        situations = {"near": (self.args.near, near), "far": (self.args.far, near)}
        results = {}
        for situation, (count, plans) in situations.items():
            if self.args.only not in (None, situation):
                continue
            tree = self.tree(count)
            ports = {name: server.port for name, server in plans.items()}
            if situation == "far":
                ports = {name: Relay(server.host, server.port, RTT).port for name, server in plans.items()}
            for round_number in range(self.args.rounds + 1):
                for program, server in plans.items():
                    for way in ("get", "put"):
                        seconds, cpu = self.measure(program, server, ports[program], way, tree)
                        if round_number == 0:
                            continue  # warms the caches
                        found = (seconds / count * 1e3, cpu / count * 1e3)
                        results.setdefault((situation, program, way), []).append(found)
                        print(f"round {round_number} {situation} {program:9} {way}: {found[0]:.3f} ms a file, {found[1]:.3f} of it CPU here", flush=True)
        return {key: [statistics.median(column) for column in zip(*rows)] for key, rows in results.items()}


def tables(medians, args):
    """Lines of Markdown, and whether every floor is kept."""
    lines = []
    titles = {"near": f"{args.near:,} files, loopback", "far": f"{args.far:,} files, 100 ms"}
    for situation, title in titles.items():
        rows = [name for name in NAMES if (situation, name, "get") in medians]
        if not rows:
            continue
        lines += [f"{title}: milliseconds a file", "", "| program | get | put | CPU here, get / put |", "|---|---|---|---|"]
        for name in rows:
            get, put = medians[situation, name, "get"], medians[situation, name, "put"]
            lines.append(f"| {NAMES[name]} | {get[0]:.3f} | {put[0]:.3f} | {get[1]:.3f} / {put[1]:.3f} |")
        lines.append("")
    lines += ["| figure | measured | floor | kept |", "|---|---|---|---|"]
    all_kept = True
    for situation, way, ours, theirs in FLOORS:
        if (situation, ours, way) not in medians:
            continue
        ratio = medians[situation, ours, way][0] / medians[situation, theirs, way][0]
        kept = ratio <= NOISE
        all_kept &= kept
        what = f"{titles[situation]}, {NAMES[ours]}, {way}"
        lines.append(f"| {what} | {ratio:.2f} x {NAMES[theirs]} | no slower | {'yes' if kept else '**no**'} |")
    return lines, all_kept


def run(args):
    """The tables' lines, and whether every floor is kept."""
    bench = Bench(args)
    try:
        medians = bench.run()
    finally:
        bench.close()
    return tables(medians, args)


def settings(binary, rounds, quick, only=None):
    near, far = (2_000, 1_000) if quick else (10_000, 2_000)
    return argparse.Namespace(binary=binary, rounds=rounds, near=near, far=far, only=only)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=HERE.parent / "target/release/fullbore")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="2,000 and 1,000 files")
    parser.add_argument("--only", choices=["near", "far"])
    args = parser.parse_args()
    lines, kept = run(settings(args.binary, args.rounds, args.quick, args.only))
    print("\n" + "\n".join(lines))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
