"""Each key exchange, cipher, MAC, host key and user key once, in both roles."""

from harness import KEY_TYPES, MIB, case, same, wait_until, which
from servers import asyncssh_server, dropbear, serve, sshd
from cases_server import Sftp

OPENSSH_KEX = [
    "sntrup761x25519-sha512@openssh.com",
    "curve25519-sha256",
    "curve25519-sha256@libssh.org",
    "ecdh-sha2-nistp256",
    "ecdh-sha2-nistp384",
    "ecdh-sha2-nistp521",
    "diffie-hellman-group14-sha256",
    "diffie-hellman-group16-sha512",
    "diffie-hellman-group18-sha512",
    "diffie-hellman-group-exchange-sha256",
]
CIPHERS = [
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes128-ctr",
    "aes192-ctr",
    "aes256-ctr",
]
MACS = [
    "hmac-sha2-256",
    "hmac-sha2-512",
    "hmac-sha2-256-etm@openssh.com",
    "hmac-sha2-512-etm@openssh.com",
]
SIZE = 200_000


class SftpWith(Sftp):
    options = ()

    def setup(self):
        self.flags = [f"-o{option}" for option in self.options]


def both_roles(name, *options):
    @case(f"algorithm-cp-{name}")
    def as_client(context):
        server = sshd(context, *[o.replace("=", " ") for o in options])
        source = context.file(SIZE)
        context.cp(server, source, server.url("x"), options=options)
        same(source, server.here("x"))
        context.cp(server, server.url("x"), context.folder / "x", options=options)
        same(source, context.folder / "x")

    @case(f"algorithm-serve-{name}")
    def as_server(context):
        server = serve(context)
        client = SftpWith(context, server)
        client.flags = [f"-o{option}" for option in options]
        source = context.file(SIZE)
        client.put(source, "x")
        same(source, server.here("x"))
        client.get("x", context.folder / "x")
        same(source, context.folder / "x")


for kex in OPENSSH_KEX:
    both_roles(f"kex-{kex}", f"KexAlgorithms={kex}")
for cipher in CIPHERS:
    both_roles(f"cipher-{cipher}", f"Ciphers={cipher}")
for mac in MACS:
    both_roles(f"mac-{mac}", "Ciphers=aes128-ctr", f"MACs={mac}")
both_roles("compression", "Compression=yes")


def with_keys(name):
    @case(f"algorithm-cp-key-{name}")
    def as_client(context):
        server = sshd(context, host_keys=[name])
        context.cp(server, context.file(SIZE), server.url("x"), key=name)
        same(context.file(SIZE), server.here("x"))

    @case(f"algorithm-serve-key-{name}")
    def as_server(context):
        server = serve(context, host_key=name)
        client = Sftp(context, server)
        client.known = [o for o in client.known if "IdentityFile" not in o]
        client.flags = ["-i", context.shared / f"user_{name}"]
        client.put(context.file(SIZE), "x")
        same(context.file(SIZE), server.here("x"))


for key_type in KEY_TYPES:
    with_keys(key_type)


@case("algorithm-rsa-sha2-512")
def rsa_512(context):
    server = sshd(context, "HostKeyAlgorithms rsa-sha2-512", host_keys=["rsa"])
    context.cp(server, context.file(SIZE), server.url("x"), key="rsa")
    same(context.file(SIZE), server.here("x"))


@case("algorithm-cp-kex-mlkem768x25519-sha256")
def mlkem_client(context):
    server = asyncssh_server(context, kex_algs=["mlkem768x25519-sha256"])
    context.cp(server, context.file(SIZE), server.url("x"))
    same(context.file(SIZE), server.here("x"))


@case("algorithm-serve-kex-mlkem768x25519-sha256")
def mlkem_server(context):
    import asyncio

    import asyncssh

    server = serve(context)

    async def body():
        async with asyncssh.connect(
            server.host,
            server.port,
            username=server.user,
            client_keys=[str(context.shared / "user_ed25519")],
            known_hosts=None,
            config=None,
            kex_algs=["mlkem768x25519-sha256"],
        ) as connection:
            async with connection.start_sftp_client() as sftp:
                await sftp.put(str(context.file(SIZE)), "/x")

    asyncio.run(body())
    same(context.file(SIZE), server.here("x"))


@case("algorithm-nothing-in-common-is-explained")
def nothing_in_common(context):
    server = sshd(context, "Ciphers aes256-ctr")
    _, output = context.cp(server, context.file(1), server.url("x"), options=["Ciphers=aes128-gcm@openssh.com"], ok=False)
    assert "aes256-ctr" in output and "aes128-gcm@openssh.com" in output, output


# What `fullbore` does not speak, by the keyword of sshd_config that leaves a server nothing else.
LEGACY = {
    "KexAlgorithms": "diffie-hellman-group14-sha1,diffie-hellman-group1-sha1",
    "HostKeyAlgorithms": "ssh-rsa",
    "Ciphers": "aes128-cbc,3des-cbc",
    "MACs": "hmac-sha1,hmac-md5",
}


def legacy(keyword, names):
    @case(f"algorithm-only-old-{keyword.lower()}-is-explained")
    def run(context):
        """SHA-1, CBC and the like: an error that names what each side offers, from either."""
        lines = [f"{keyword} {names}"] + (["Ciphers aes128-ctr"] if keyword == "MACs" else [])
        server = sshd(context, *lines, host_keys=["rsa"])
        options = ["Ciphers=aes128-ctr"] if keyword == "MACs" else []
        _, output = context.cp(server, context.file(1), server.url("x"), options=options, ok=False)
        assert all(name in output for name in names.split(",")), output
        ours = {"KexAlgorithms": "curve25519-sha256", "HostKeyAlgorithms": "rsa-sha2-512"}
        ours |= {"Ciphers": "aes128-gcm@openssh.com", "MACs": "hmac-sha2-256"}
        assert ours[keyword] in output, output


for legacy_keyword, legacy_names in LEGACY.items():
    legacy(legacy_keyword, legacy_names)


@case("algorithm-certificates")
def certificates(context):
    """A user certificate at OpenSSH's server; a host certificate from it."""
    keygen = which("ssh-keygen")
    for name, flags in (("user_ed25519", ["-n", context.user]), ("host_ed25519", ["-h", "-n", context.host])):
        for suffix in ("", ".pub"):
            (context.folder / f"{name}{suffix}").write_bytes((context.shared / f"{name}{suffix}").read_bytes())
        (context.folder / name).chmod(0o600)
        command = [keygen, "-q", "-s", context.shared / "ca", "-I", name, *flags, "-V", "-1h:+1h"]
        context.run([*command, context.folder / f"{name}.pub"])
    server = sshd(
        context,
        f"TrustedUserCAKeys {context.shared}/ca.pub",
        f"HostCertificate {context.folder}/host_ed25519-cert.pub",
        "AuthorizedKeysFile none",
        host_keys=["ed25519"],
    )
    known = context.home / ".ssh/known_hosts"
    known.write_text(f"@cert-authority * {(context.shared / 'ca.pub').read_text()}")
    command = [context.binary, "cp", "-F", "/dev/null", "-P", str(server.port), "-i", context.folder / "user_ed25519"]
    command += ["-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes"]
    context.run([*command, context.file(SIZE), server.url("x")])
    same(context.file(SIZE), server.here("x"))


@case("algorithm-agent")
def agent(context):
    """Keys that only the agent holds."""
    socket = context.folder / "agent"
    context.spawn([which("ssh-agent"), "-D", "-a", socket])
    wait_until(socket.exists, 10, "the agent listens")
    context.env["SSH_AUTH_SOCK"] = str(socket)
    for name in ("ed25519", "rsa", "ecdsa384"):
        context.run([which("ssh-add"), "-q", context.shared / f"user_{name}"])
    server = sshd(context)
    command = [context.binary, "cp", "-F", "/dev/null", "-P", str(server.port)]
    command += ["-o", f"UserKnownHostsFile={context.home}/.ssh/known_hosts", "-o", "StrictHostKeyChecking=accept-new"]
    context.run([*command, context.file(SIZE), server.url("x")])
    same(context.file(SIZE), server.here("x"))


@case("algorithm-dropbear-small-packets")
def dropbear_uploads(context):
    """Dropbear's window is 24 KiB and its packets are 32 KiB: an upload lives on small credits."""
    server = dropbear(context)
    source = context.file(32 * MIB)
    context.cp(server, source, server.url("x"))
    same(source, server.here("x"))
