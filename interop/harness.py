"""What every case uses: its folder, keys, data, processes, and what they cost."""

import contextlib
import dataclasses
import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = [0, 1, 32 * KIB - 1, 32 * KIB, 32 * KIB + 1, 5 * MIB]
CASES = {}


class Skip(Exception):
    """The case cannot run here; says why."""


@dataclasses.dataclass
class Case:
    name: str
    function: object
    timeout: int
    alone: bool


def case(name, timeout=120, alone=False):
    """Registers a function that takes a Context. `alone`: not beside other cases."""

    def register(function):
        assert name not in CASES, name
        CASES[name] = Case(name, function, timeout, alone)
        return function

    return register


def which(program):
    path = shutil.which(program, path=os.environ["PATH"] + ":/usr/local/sbin:/usr/sbin:/sbin")
    if path is None:
        raise Skip(f"{program} is not installed")
    return path


def kill_session(leader):
    """Ends every process of the session that `leader` started."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            if int(fields[3]) == leader:
                os.kill(int(pid), signal.SIGKILL)


def make_shared_folder():
    """On memory if there is enough of it: the cases measure the programs, not the disk."""
    parent = None
    with contextlib.suppress(OSError):
        room = os.statvfs("/dev/shm")
        if room.f_bavail * room.f_frsize > 8 * GIB:
            parent = "/dev/shm"
    return Path(tempfile.mkdtemp(prefix="fullbore-interop-", dir=parent))


KEY_TYPES = {
    "ed25519": ["-t", "ed25519"],
    "ecdsa256": ["-t", "ecdsa", "-b", "256"],
    "ecdsa384": ["-t", "ecdsa", "-b", "384"],
    "ecdsa521": ["-t", "ecdsa", "-b", "521"],
    "rsa": ["-t", "rsa", "-b", "3072"],
}


def make_keys(shared):
    """User and host keys of every kind, made by OpenSSH, once for all cases."""
    keygen = which("ssh-keygen")
    for role in ("user", "host"):
        for name, flags in KEY_TYPES.items():
            command = [keygen, "-q", "-N", "", "-C", f"{role}-{name}", *flags, "-f", shared / f"{role}_{name}"]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    subprocess.run([keygen, "-q", "-N", "", "-t", "ed25519", "-f", shared / "ca"], check=True)
    lines = [(shared / f"user_{name}.pub").read_text() for name in KEY_TYPES]
    (shared / "authorized_keys").write_text("".join(lines))
    if shutil.which("puttygen"):
        command = ["puttygen", shared / "user_ed25519", "-o", shared / "user.ppk", "-O", "private"]
        subprocess.run(command, check=True)


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(MIB):
            digest.update(block)
    return digest.hexdigest()


def same(a, b):
    """Fails unless both files hold the same bytes."""
    size_a, size_b = os.path.getsize(a), os.path.getsize(b)
    assert size_a == size_b, f"{a!r} has {size_a} bytes, {b!r} {size_b}"
    assert sha256(a) == sha256(b), f"{a!r} and {b!r} differ"


def same_tree(a, b):
    """Fails unless both folders hold the same names with the same bytes."""

    def listing(top):
        top = os.fsencode(top)
        found = {}
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                found[os.path.relpath(path, top)] = sha256(path)
        return found

    left, right = listing(a), listing(b)
    only_left, only_right = sorted(left.keys() - right.keys()), sorted(right.keys() - left.keys())
    assert left == right, f"only in the first: {only_left[:5]}, only in the second: {only_right[:5]}"


HARD_NAMES = [
    b"plain",
    b"with space",
    b"-leading-dash",
    b"glob *?[a] {b}",
    b"bytes \xff\xfe",
    b"new\nline",
    b"quote'\"`$(x)\\",
    "nfc \u00e9".encode(),
    "nfd e\u0301".encode(),
    b"tab\tbell\x07escape\x1b[31m",
    b"~tilde",
    b"colon:name",
    b"#comment",
    b"n" * 255,
]


class Process:
    """A child whose output is kept, and whose cost can be read."""

    def __init__(self, context, command, **options):
        self.name = Path(str(command[0])).name
        context.counter += 1
        self.log = context.folder / f"out-{context.counter}-{self.name}"
        out = open(self.log, "wb")
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", out)
        options.setdefault("stderr", out if options["stdout"] is out else subprocess.STDOUT)
        if options["stderr"] is subprocess.STDOUT and options["stdout"] is not out:
            options["stderr"] = out
        options.setdefault("env", context.env)
        self.child = subprocess.Popen([os.fspath(c) if isinstance(c, Path) else c for c in command], **options)
        out.close()

    @property
    def pid(self):
        return self.child.pid

    def output(self):
        return self.log.read_text(errors="replace")

    def tree(self):
        """This process and all below it."""
        children = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
                children.setdefault(parent, []).append(int(pid))
        found, rest = [], [self.pid]
        while rest:
            pid = rest.pop()
            found.append(pid)
            rest += children.get(pid, [])
        return found

    def memory(self):
        """(resident now, resident at most) in bytes, the largest process of the tree."""
        now = peak = 0
        for pid in self.tree():
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("VmRSS:"):
                        now = max(now, int(line.split()[1]) * KIB)
                    if line.startswith("VmHWM:"):
                        peak = max(peak, int(line.split()[1]) * KIB)
        return now, peak

    def cpu_seconds(self):
        ticks = 0
        for pid in self.tree():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                ticks += sum(int(n) for n in fields[11:15])
        return ticks / os.sysconf("SC_CLK_TCK")

    def wait(self, timeout=100):
        return self.child.wait(timeout=timeout)

    def stop(self):
        with contextlib.suppress(ProcessLookupError):
            self.child.terminate()
        try:
            return self.child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.child.kill()
            return self.child.wait()


class Context:
    """One case's surroundings."""

    def __init__(self, binary, folder, shared, seed, number):
        self.binary, self.folder, self.shared = binary, folder, shared
        self.rng = random.Random(f"{seed}-{number}")
        # A loopback address that no other case has, so that ports never meet.
        self.host = f"127.{1 + os.getppid() % 250}.{number // 250}.{1 + number % 250}"
        self.next_port = 2200
        self.counter = 0
        self.processes = []
        self.closers = []
        self.home = folder / "home"
        (self.home / ".ssh").mkdir(parents=True, mode=0o700)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("SSH_", "XDG_"))}
        state = str(self.home / "state")
        self.env.update(HOME=str(self.home), XDG_STATE_HOME=state, LC_ALL="C.UTF-8", TERM="dumb")
        self.user = subprocess.check_output(["id", "-un"], text=True).strip()
        self.is_root = os.getuid() == 0

    def close(self):
        for closer in reversed(self.closers):
            with contextlib.suppress(Exception):
                closer()
        for process in reversed(self.processes):
            process.stop()

    def dir(self, name):
        path = self.folder / name
        path.mkdir(exist_ok=True)
        return path

    def port(self):
        self.next_port += 1
        return self.next_port

    def file(self, size, path=None):
        """A file of `size` bytes that no other size shares a prefix of; shared unless `path` is given."""
        path = path or self.shared / f"data-{size}"
        if path.exists() and path.stat().st_size == size:
            return path
        block = random.Random(size).randbytes(min(size, MIB))
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        with open(temporary, "wb") as out:
            for start in range(0, size, MIB):
                chunk = bytearray(block[: min(MIB, size - start)])
                chunk[:8] = (start + size).to_bytes(8, "big")[: len(chunk)]
                out.write(chunk)
        os.rename(temporary, path)
        return path

    def hard_tree(self, names=HARD_NAMES):
        """A folder with hard names, in files and as folders."""
        top = os.fsencode(self.dir("hard"))
        for i, name in enumerate(names):
            Path(os.fsdecode(os.path.join(top, name))).write_bytes(b"%d" % i + name)
        inner = os.path.join(top, b"folder \xfe\n*" if any(b"\xff" in name for name in names) else b"folder\n*")
        os.mkdir(inner)
        Path(os.fsdecode(os.path.join(inner, b"inside"))).write_bytes(b"x")
        return Path(os.fsdecode(top))

    def many(self, count):
        """A folder with `count` small files."""
        top = self.dir("many")
        for i in range(count):
            (top / f"name-{i:05}").write_bytes(b"%d" % i if i % 10 == 0 else b"")
        return top

    def spawn(self, command, **options):
        process = Process(self, command, **options)
        self.processes.append(process)
        return process

    def run(self, command, ok=True, timeout=100, **options):
        """Runs to the end; fails on another outcome than `ok`. Returns (code, output)."""
        process = Process(self, command, **options)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.child.kill()
            process.wait()
            raise AssertionError(f"{command} still ran after {timeout} s:\n{process.output()[-2000:]}") from None
        shown = " ".join(str(c) for c in command)
        if ok is not None:
            assert (code == 0) == ok, f"exit {code} of {shown}\n{process.output()[-3000:]}"
        return code, process.output()

    def wait_port(self, host, port, process=None, timeout=20):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
                return
            if process and process.child.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"nothing listens on {host}:{port}\n{process.output() if process else ''}")

    # Our own programs.

    def cp_command(self, server, *args, key="ed25519", options=()):
        command = [self.binary, "cp", "-F", "/dev/null", "-P", str(server.port), "-i", self.shared / f"user_{key}"]
        settings = [f"UserKnownHostsFile={self.home}/.ssh/known_hosts", "StrictHostKeyChecking=accept-new", *options]
        for option in settings:
            command += ["-o", option]
        return [*command, *args]

    def cp(self, server, *args, ok=True, key="ed25519", options=(), timeout=100, **rest):
        return self.run(self.cp_command(server, *args, key=key, options=options), ok=ok, timeout=timeout, **rest)


def wait_until(condition, timeout, what):
    """Polls until `condition` holds; for states of other processes that nothing announces."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"not within {timeout} s: {what}"
        time.sleep(0.02)
