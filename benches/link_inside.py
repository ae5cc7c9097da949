#!/usr/bin/env python3
"""Runs at the near end of an emulated link: starts servers at the far end and measures copies to and from them.

    link_inside.py PLAN.json FOUND.json        (link.py writes the one and reads the other)
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "interop")]

import harness  # noqa: E402
import servers  # noqa: E402

MIB = 1 << 20
SFTP_SERVER = "/usr/lib/openssh/sftp-server"
FILE_BYTES = 4096
FILES_PER_FOLDER = 250
# Of the bytes: from here to there the rate counts as steady.
STEADY = (0.5, 0.95)
# A copy that is cut off counts as steady from here on: slow start may last as long as no packet is lost.
STEADY_SECONDS = 10
# What the link's device is called at both ends.
DEVICE = "link0"

NGINX = """
daemon off; worker_processes 1; user {user}; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ }}
http {{
    access_log off; sendfile on; client_max_body_size 0; client_body_temp_path {folder}/body;
    server {{
        listen {host}:{port} ssl;
        ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;
        root {root}; dav_methods PUT;
    }}
}}
"""


class FarContext(harness.Context):
    """Starts its servers at the far end."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.host = os.environ["FULLBORE_FAR"]

    def spawn(self, command, **options):
        return super().spawn(["nsenter", f"--net={os.environ['FULLBORE_FAR_NETNS']}", *command], **options)


def nginx(context):
    server = servers.Server(context, "nginx")
    folder = context.dir("nginx")
    cert = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    cert += ["-subj", "/CN=far", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    context.run(cert)
    text = NGINX.format(user=context.user, folder=folder, host=server.host, port=server.port, root=server.root)
    (folder / "nginx.conf").write_text(text)
    return server.start([harness.which("nginx"), "-p", folder, "-c", folder / "nginx.conf"])


class Sampler:
    """Reads until told to stop: bytes that came through the link to an end, and the largest processes."""

    def __init__(self, net_pid, server, client_pid):
        self.devices = Path(f"/proc/{net_pid}/net/dev")
        self.processes = {"server_peak": server, "client_peak": harness.Process.__new__(harness.Process)}
        self.processes["client_peak"].child = type("Child", (), {"pid": client_pid})
        self.peaks = dict.fromkeys(self.processes, 0)
        self.samples = []
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.body)
        self.sample()
        self.thread.start()

    def sample(self):
        line = next(line for line in self.devices.read_text().splitlines() if line.strip().startswith(DEVICE))
        self.samples.append((time.monotonic(), int(line.split(":")[1].split()[0])))

    def body(self):
        count = 0
        while not self.is_over.wait(0.05):
            self.sample()
            count += 1
            if count % 4 == 0:
                for key, process in self.processes.items():
                    self.peaks[key] = max(self.peaks[key], process.memory()[1])

    def stop(self):
        self.is_over.set()
        self.thread.join()
        self.sample()

    def steady_late(self):
        """The same for a copy that was cut off."""
        end = self.samples[-1]
        start = next((s for s in self.samples if s[0] - self.samples[0][0] >= STEADY_SECONDS), self.samples[0])
        return (end[1] - start[1]) / max(end[0] - start[0], 1e-9)

    def steady(self):
        """Bytes of IP a second over the part of the copy that counts as steady."""
        start, end = self.samples[0][1], self.samples[-1][1]
        reached = [next(s for s in self.samples if s[1] - start >= (end - start) * share) for share in STEADY]
        return (reached[1][1] - reached[0][1]) / max(reached[1][0] - reached[0][0], 1e-9)


class Inside:
    def __init__(self, plan):
        self.plan = plan
        self.shared = harness.make_shared_folder()
        self.folder = self.shared / "bench"
        self.folder.mkdir()
        harness.make_keys(self.shared)
        self.context = FarContext(Path(plan["binary"]), self.folder, self.shared, seed=0, number=1)
        self.ssh_options = ["-oUserKnownHostsFile=/dev/null", "-oStrictHostKeyChecking=no", "-oLogLevel=ERROR"]
        self.ssh_options += ["-F/dev/null", "-i", str(self.shared / "user_ed25519")]
        # A folder of its own: what a copy that was cut off leaves goes away with it.
        self.target = self.folder / "to" / "copy"
        self.start_servers()

    def start_servers(self):
        wanted = set(self.plan["programs"])
        openssh = ours = None
        if wanted & {"scp", "cp-sshd", "tar", "rsync"}:
            openssh = servers.sshd(self.context, "LogLevel ERROR", subsystem=SFTP_SERVER, host_keys=["ed25519"])
        if wanted & {"cp-serve", "cp-udp"}:
            ours = servers.serve(self.context, "--udp", str(self.context.next_port + 1), root=self.folder)
        web = nginx(self.context) if "https" in wanted else None
        by_program = {"https": web, "cp-serve": ours, "cp-udp": ours}
        self.servers = {program: by_program.get(program, openssh) for program in self.plan["programs"]}

    def close(self):
        self.context.close()
        shutil.rmtree(self.shared, ignore_errors=True)

    def tree(self, count):
        top = self.folder / "tree"
        content = os.urandom(FILE_BYTES)
        for number in range(count):
            folder = top / f"d{number // FILES_PER_FOLDER:03}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"f{number:06}").write_bytes(content)
        return top

    def command(self, program, way, source):
        """What to run, and where the copy will be."""
        server = self.servers[program]
        login = f"{server.user}@{server.host}"
        ssh = " ".join(["ssh", *self.ssh_options, "-p", str(server.port)])
        target = self.target
        if program == "https":
            target = target if way == "get" else server.here("up")
            url = f"https://{server.host}:{server.port}/{'source' if way == 'get' else 'up'}"
            if way == "get" and not server.here("source").exists():
                os.link(source, server.here("source"))
            transfer = ["-o", target] if way == "get" else ["-T", source]
            return ["curl", "-sSfk", *transfer, url], target
        if program == "scp":
            ends = [f"{login}:{source}", target] if way == "get" else [source, f"{login}:{target}"]
            return ["scp", "-q", *self.ssh_options, "-P", str(server.port), *ends], target
        if program == "tar":
            target.mkdir()
            pack, unpack = f"tar -C {source} -cf - .", f"tar -C {target} -xf -"
            line = f"{ssh} {login} '{pack}' | {unpack}" if way == "get" else f"{pack} | {ssh} {login} '{unpack}'"
            return ["bash", "-o", "pipefail", "-c", line], target
        if program == "rsync":
            ends = [f"{login}:{source}/", f"{target}/"] if way == "get" else [f"{source}/", f"{login}:{target}/"]
            return ["rsync", "-r", "-W", "-e", ssh, *ends], target
        far = source if way == "get" else target
        # Behind `serve` the root is the folder that holds both.
        far = f"/{far.relative_to(self.folder)}" if program in ("cp-serve", "cp-udp") else far
        there = f"sftp://{login}:{server.port}/{far}"
        ends = [there, target] if way == "get" else [source, there]
        words = ["-r"] if source.is_dir() else []
        words += ["--transport", "udp"] if program == "cp-udp" else []
        return self.context.cp_command(server, "-q", *words, *ends), target

    def measure(self, program, way, source):
        server = self.servers[program]
        server.here("up").unlink(missing_ok=True)
        shutil.rmtree(self.target.parent, ignore_errors=True)
        self.target.parent.mkdir()
        command, target = self.command(program, way, source)
        command = [str(part) for part in command]
        cpu_before = server.process.cpu_seconds()
        start = time.monotonic()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=self.context.env)
        sampler = Sampler("self" if way == "get" else server.process.pid, server.process, child.pid)
        cutting = threading.Timer(self.plan["seconds_max"], child.terminate) if self.plan["seconds_max"] else None
        if cutting:
            cutting.start()
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - start
        sampler.stop()
        child.returncode = os.waitstatus_to_exitcode(status)
        if cutting:
            cutting.cancel()
        is_whole = child.returncode == 0
        assert is_whole or seconds >= (self.plan["seconds_max"] or 1e9), f"exit {child.returncode}: {' '.join(command)}"
        time.sleep(0.3)  # the server's processes for this connection end and are counted
        if is_whole:
            subprocess.run(["diff", "-rq", source, target], check=True)
        cpu = server.process.cpu_seconds() - cpu_before + usage.ru_utime + usage.ru_stime
        return {"seconds": seconds, "steady": sampler.steady() if is_whole else sampler.steady_late(), "cpu": cpu, **sampler.peaks}

    def run(self):
        count = self.plan.get("files")
        found = []
        for number in range(self.plan["rounds"]):
            for program in self.plan["programs"]:
                mib = self.plan["mib"]
                source = self.tree(count) if count else self.context.file(mib * MIB, self.folder / f"source-{mib}")
                for way in ("get", "put"):
                    if number > 0 and program in self.plan.get("once", []):
                        continue
                    row = self.measure(program, way, source)
                    found.append({"program": program, "way": way, **row})
                    print(f"  round {number + 1} {program:9} {way}: {row['seconds']:7.2f} s, steady {row['steady'] * 8e-6:6.1f} Mbit/s, "
                          f"CPU {row['cpu']:5.2f} s, peak {row['client_peak'] // MIB} / {row['server_peak'] // MIB} MiB", flush=True)
        return found


def main():
    # When the link is ended, its files go, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    plan = json.loads(Path(sys.argv[1]).read_text())
    inside = Inside(plan)
    try:
        found = inside.run()
    finally:
        inside.close()
    Path(sys.argv[2]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
