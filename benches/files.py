"""Many small files over loopback: fullbore, rsync and tar over ssh in one run, alternating, medians.

    benches/files.py [--rounds N] [--quick]     (or through benches/run.py --only files)

10,000 files of 4 KiB. Every program logs in anew each time, and that counts. benches/link.py measures the same over a long
link.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "interop")]

import harness  # noqa: E402

SFTP_SERVER = "/usr/lib/openssh/sftp-server"
FILE_BYTES = 4096
FILES_PER_FOLDER = 250
# Two runs of the same program differ by this much here: "no slower" means within it.
NOISE = 1.03

# (way, ours, the program that it must not be slower than)
FLOORS = [(way, ours, "rsync") for ours in ("cp-sshd", "cp-serve") for way in ("get", "put")]
NAMES = {
    "cp-sshd": "`fullbore cp -r` - `sshd`",
    "cp-serve": "`fullbore cp -r` - `fullbore serve`",
    "tar": "`tar` over `ssh`",
    "rsync": "`rsync -r` over `ssh`",
}


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

    def command(self, program, server, way, tree, target):
        """What to run: a list, or a line for the shell."""
        login = f"{server.user}@{server.host}"
        ssh = " ".join(self.ssh(server.port))
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
        there = f"sftp://{login}:{server.port}/{far}"
        ends = [there, target] if way == "get" else [tree, there]
        return self.context.cp_command(server, "-q", "-r", *ends)

    def measure(self, program, server, way, tree):
        target = self.folder / "copy"
        shutil.rmtree(target, ignore_errors=True)
        command = [str(part) for part in self.command(program, server, way, tree, target)]
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
        plans = {"cp-sshd": openssh, "cp-serve": ours, "rsync": openssh, "tar": openssh}
        tree = self.tree(self.args.count)
        results = {}
        for round_number in range(self.args.rounds + 1):
            for program, server in plans.items():
                for way in ("get", "put"):
                    seconds, cpu = self.measure(program, server, way, tree)
                    if round_number == 0:
                        continue  # warms the caches
                    found = (seconds / self.args.count * 1e3, cpu / self.args.count * 1e3)
                    results.setdefault((program, way), []).append(found)
                    print(f"round {round_number} {program:9} {way}: {found[0]:.3f} ms a file, {found[1]:.3f} of it CPU here", flush=True)
        return {key: [statistics.median(column) for column in zip(*rows)] for key, rows in results.items()}


def tables(medians, count):
    """Lines of Markdown, and whether every floor is kept."""
    lines = [f"{count:,} files of 4 KiB over loopback: milliseconds a file", ""]
    lines += ["| program | get | put | CPU at the near end, get / put |", "|---|---|---|---|"]
    for name, title in NAMES.items():
        get, put = medians[name, "get"], medians[name, "put"]
        lines.append(f"| {title} | {get[0]:.3f} | {put[0]:.3f} | {get[1]:.3f} / {put[1]:.3f} |")
    lines += ["", "| figure | measured | floor | kept |", "|---|---|---|---|"]
    all_kept = True
    for way, ours, theirs in FLOORS:
        ratio = medians[ours, way][0] / medians[theirs, way][0]
        kept = ratio <= NOISE
        all_kept &= kept
        lines.append(f"| {NAMES[ours]}, {way} | {ratio:.2f} x {NAMES[theirs]} | no slower | {'yes' if kept else '**no**'} |")
    return lines, all_kept


def run(args):
    """The tables' lines, and whether every floor is kept."""
    bench = Bench(args)
    try:
        medians = bench.run()
    finally:
        bench.close()
    return tables(medians, args.count)


def settings(binary, rounds, quick):
    return argparse.Namespace(binary=binary, rounds=rounds, count=2_000 if quick else 10_000)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=HERE.parent / "target/release/fullbore")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="2,000 files")
    args = parser.parse_args()
    lines, kept = run(settings(args.binary, args.rounds, args.quick))
    print("\n" + "\n".join(lines))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
