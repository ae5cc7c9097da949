"""Both ends push at once, over one connection."""

import os

from cases_rekey import Master
from harness import GIB, MIB, case, same
from servers import serve, sshd_ours


@case("duplex-openssh-serve-1gib", timeout=300, alone=True)
def openssh(context):
    server = serve(context)
    source = context.file(GIB)
    server.here("down").hardlink_to(source)
    with Master(context, server) as master:
        master.both(source, "up", "down", context.folder / "down")
    same(source, server.here("up"))
    same(source, context.folder / "down")
    _, peak = server.process.memory()
    assert peak < 96 * MIB, f"{peak / MIB:.1f} MiB resident"


@case("duplex-openssh-sshd-ours-1gib", timeout=300, alone=True)
def openssh_ours(context):
    server = sshd_ours(context)
    source = context.file(GIB)
    server.here("down").hardlink_to(source)
    with Master(context, server) as master:
        master.both(source, "up", "down", context.folder / "down")
    same(source, server.here("up"))
    same(source, context.folder / "down")


# What asyncssh moves in each direction: it takes its time.
ASYNCSSH_MIB = int(os.environ.get("FULLBORE_DUPLEX_MIB", "256"))


def asyncssh_case(window):
    @case(f"duplex-asyncssh-serve-window-{window >> 10}k", timeout=600, alone=True)
    def run(context):
        """Two channels of one asyncssh connection, pushing at once, with windows of its choice."""
        import asyncio

        import asyncssh

        server = serve(context)
        source = context.file(ASYNCSSH_MIB * MIB)
        server.here("down").hardlink_to(source)

        async def body():
            async with asyncssh.connect(
                server.host,
                server.port,
                username=server.user,
                client_keys=[str(context.shared / "user_ed25519")],
                known_hosts=None,
                config=None,
            ) as connection:
                original = connection.create_session

                async def sized(factory, command=(), **options):
                    options["window"] = window
                    return await original(factory, command, **options)

                connection.create_session = sized
                async with connection.start_sftp_client() as first, connection.start_sftp_client() as second:
                    await asyncio.gather(
                        first.put(str(source), "/up"),
                        second.get("/down", str(context.folder / "down")),
                    )

        asyncio.run(body())
        same(source, server.here("up"))
        same(source, context.folder / "down")


for window_size in (64 << 10, 8 << 20, 1 << 30):
    asyncssh_case(window_size)
