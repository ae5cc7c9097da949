"""Rekeying every MiB while 64 MiB flow, asked for by either side or both, and each second when idle."""

import subprocess
import threading
import time

from cases_hostile import connect, still_serves
from cases_server import Sftp
from harness import MIB, case, same, wait_until, which
from servers import serve, sshd

SIZE = 64 * MIB
EACH_MIB = "RekeyLimit=1M"
# What `serve` reads from its --config file.
SERVE_CONFIG = 'rekey-limit = "1M"\n'


def serve_rekeying(context):
    config = context.folder / "serve.toml"
    config.write_text(SERVE_CONFIG)
    return serve(context, "--config", config)


# 64 MiB hold at least so many exchanges where each MiB asks for one: what is under way goes under the old keys.
EXCHANGES_MIN = 8


def exchanges(text):
    """Key exchanges that one of OpenSSH's programs says it has done, at its level DEBUG1."""
    return text.count("SSH2_MSG_NEWKEYS received")


def cp_case(name, make_server, options):
    """Of our own server's exchanges no log speaks; crates/fullbore/tests/rekey.rs counts those."""

    @case(f"rekey-cp-{name}", timeout=180)
    def run(context):
        server = make_server(context)
        source = context.file(SIZE)
        context.cp(server, source, server.url("x"), options=options)
        same(source, server.here("x"))
        put = exchanges(server.process.output())
        context.cp(server, server.url("x"), context.folder / "x", options=options)
        same(source, context.folder / "x")
        if server.name == "sshd":
            both = exchanges(server.process.output())
            assert min(put, both - put) >= EXCHANGES_MIN, f"{put} exchanges in the put, {both - put} in the get"


def sshd_telling(context, *lines):
    return sshd(context, *lines, log_level="DEBUG1")


def sshd_rekeying(context):
    return sshd_telling(context, "RekeyLimit 1M")


cp_case("sshd-client-asks", sshd_telling, [EACH_MIB])
cp_case("sshd-server-asks", sshd_rekeying, [])
cp_case("sshd-both-ask", sshd_rekeying, [EACH_MIB])
cp_case("serve-client-asks", serve, [EACH_MIB])
cp_case("serve-server-asks", serve_rekeying, [])
cp_case("serve-both-ask", serve_rekeying, [EACH_MIB])


def sftp_case(name, make_server, flags):
    @case(f"rekey-sftp-serve-{name}", timeout=180)
    def run(context):
        server = make_server(context)
        client = Sftp(context, server)
        client.known = [o for o in client.known if "LogLevel" not in o]
        client.flags, client.quiet = [*flags, "-oLogLevel=DEBUG1"], ()
        source = context.file(SIZE)
        client.put(source, "x")
        same(source, server.here("x"))
        client.get("x", context.folder / "x")
        same(source, context.folder / "x")
        logs = "".join(path.read_text(errors="replace") for path in context.folder.glob("out-*-sftp"))
        newkeys = exchanges(logs)
        assert newkeys >= 2 * SIZE // MIB // 2, f"only {newkeys} key exchanges in two transfers"


sftp_case("client-asks", serve, [f"-o{EACH_MIB}"])
sftp_case("server-asks", serve_rekeying, [])
sftp_case("both-ask", serve_rekeying, [f"-o{EACH_MIB}"])


def both_case(name, make_server, flags):
    """One OpenSSH connection, two channels, 64 MiB each way, keys changed every MiB."""

    @case(f"rekey-both-directions-at-once-{name}", timeout=180)
    def run(context):
        server = make_server(context)
        source = context.file(SIZE)
        server.here("down").write_bytes(source.read_bytes())
        with Master(context, server, *flags, "-oLogLevel=DEBUG1") as master:
            master.both(source, "up", "down", context.folder / "down")
            done = exchanges(master.process.output())
        same(source, server.here("up"))
        same(source, context.folder / "down")
        assert done >= 2 * EXCHANGES_MIN, f"only {done} key exchanges"


both_case("client-asks", serve, [f"-o{EACH_MIB}"])
both_case("server-asks", serve_rekeying, [])
both_case("both-ask", serve_rekeying, [f"-o{EACH_MIB}"])


class Master:
    """An OpenSSH connection that other programs share."""

    def __init__(self, context, server, *flags):
        self.context, self.server = context, server
        self.client = Sftp(context, server)
        known = [o for o in self.client.known if "LogLevel" not in o]
        self.path = context.folder / "master"
        command = [which("ssh"), *known, *flags, "-M", "-N", "-S", self.path]
        self.process = context.spawn([*command, "-p", str(server.port), self.client.at])

    def __enter__(self):
        wait_until(lambda: self.path.exists(), 20, "the shared connection is up")
        self.client.flags = [f"-oControlPath={self.path}"]
        return self

    def both(self, source, up, down, local):
        """Puts `source` to `up` while it gets `down` to `local`."""
        other = Sftp(self.context, self.server)
        other.flags = self.client.flags
        failures = []

        def guarded(action, *args):
            try:
                action(*args)
            except AssertionError as why:
                failures.append(why)

        threads = [
            threading.Thread(target=guarded, args=(self.client.put, source, up)),
            threading.Thread(target=guarded, args=(other.get, down, local)),
        ]
        for thread in threads:
            thread.start()
            # Batch files are named by the process that is started next.
            time.sleep(0.1)
        for thread in threads:
            thread.join()
        assert not failures, failures

    def __exit__(self, *_):
        self.process.stop()


@case("rekey-each-second-when-idle")
def idle(context):
    """OpenSSH's client with a time limit: the session lives through several exchanges without data."""
    server = serve(context)
    client = Sftp(context, server)
    client.known = [o for o in client.known if "LogLevel" not in o]
    command = [which("sftp"), *client.known, "-oLogLevel=DEBUG1", "-oRekeyLimit=default 1s"]
    command += ["-oServerAliveInterval=1", "-P", str(server.port), client.at]
    log = open(context.folder / "idle-log", "wb")
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=context.env)
    time.sleep(6)
    child.stdin.write(b"pwd\nbye\n")
    child.stdin.close()
    assert child.wait(20) == 0
    text = (context.folder / "idle-log").read_text(errors="replace")
    assert exchanges(text) >= 4, text[-2000:]
    assert "Remote working directory: /" in text


@case("rekey-openssh-after-each-packet", timeout=180)
def each_packet(context):
    """The least that OpenSSH's RekeyLimit takes: slow, and still right."""
    server = serve(context)
    client = Sftp(context, server)
    client.flags = ["-oRekeyLimit=16"]
    source = context.file(MIB)
    client.put(source, "x")
    same(source, server.here("x"))
    client.get("x", context.folder / "x")
    same(source, context.folder / "x")


# As crates/ssh/src/transport/pace.rs has them.
REKEYS_AT_ONCE, REKEY_PERIOD = 64, 0.1


@case("rekey-without-end-is-paced", timeout=60)
def endless(context):
    """A client that does nothing but ask for new keys gets so many and then one in each period."""
    server = serve(context)
    client = connect(context, server)
    done, start = 0, time.monotonic()
    while time.monotonic() < start + 3 + REKEYS_AT_ONCE * 0.05:
        client.transport.renegotiate_keys()
        # Paramiko says that it is done a moment before it is.
        client.transport.clear_to_send.wait(10)
        done += 1
    spent = time.monotonic() - start
    # An exchange itself moves a few KiB, which count as traffic.
    most = REKEYS_AT_ONCE + spent / REKEY_PERIOD * 1.2 + 10
    assert REKEYS_AT_ONCE < done < most, f"{done} exchanges in {spent:.1f} s"
    still_serves(context, server)
