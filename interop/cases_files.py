"""Many files and folders: all of them arrive, in the memory of a few; and what is known of servers."""

import os

from harness import MIB, case, same_tree
from servers import serve, sshd

# A third of it is what one large file takes.
PEAK_BYTES_MAX = 48 * MIB


def spread(top, folders, files):
    """`folders` folders with `files` files each; the content is the name."""
    for number in range(folders):
        folder = top / f"{number // 40:03}/{number % 40:02}"
        folder.mkdir(parents=True)
        for name in range(files):
            (folder / f"f{name:04}").write_bytes(b"%d/%d" % (number, name))


def count(top):
    return sum(len(names) for _, _, names in os.walk(top))


def copy_counted(context, server, *args):
    """Copies, and fails when either end took more memory than a few files would."""
    process = context.spawn(context.cp_command(server, "-q", "-r", *args))
    assert process.child.stdout is None
    largest = 0
    while process.child.poll() is None:
        largest = max(largest, process.memory()[1])
        try:
            process.child.wait(timeout=0.1)
        except Exception:  # noqa: BLE001
            continue
    assert process.child.returncode == 0, process.output()
    served = server.process.memory()[1]
    assert largest < PEAK_BYTES_MAX, f"cp took {largest / MIB:.0f} MiB"
    assert served < PEAK_BYTES_MAX, f"the server took {served / MIB:.0f} MiB"


@case("files-100000", timeout=300, alone=True)
def hundred_thousand(context):
    """One flat folder and one tree with 50,000 files each, up and down."""
    server = serve(context)
    source = context.dir("source")
    (source / "flat").mkdir()
    for number in range(50_000):
        (source / f"flat/name-{number:06}").write_bytes(b"%d" % number)
    spread(source, folders=500, files=100)
    copy_counted(context, server, source, server.url("up"))
    assert count(server.here("up")) == 100_000
    copy_counted(context, server, server.url("up"), context.folder / "back")
    same_tree(source, context.folder / "back")


for server_name, factory in (("sshd", sshd), ("serve", serve)):

    def folders_case(name, make_server):
        @case(f"files-many-folders-{name}", timeout=200)
        def run(context):
            """More folders than a server has handles or lets be listed at once."""
            server = make_server(context)
            source = context.dir("source")
            spread(source, folders=2000, files=1)
            context.cp(server, "-q", "-r", source, server.url("up"))
            context.cp(server, "-q", "-r", server.url("up"), context.folder / "back")
            same_tree(source, context.folder / "back")

    folders_case(server_name, factory)


@case("files-few-handles")
def few_handles(context):
    """A client with few descriptors: fewer files are open at once, and none fails."""
    server = serve(context)
    source = context.dir("source")
    spread(source, folders=50, files=20)
    # Hard and soft: it cannot raise it.
    limited = ["sh", "-c", 'ulimit -n 70; exec "$@"', "sh"]
    for ends in ((source, server.url("up")), (server.url("up"), context.folder / "back")):
        context.run([*limited, *context.cp_command(server, "-q", "-r", *ends)])
    same_tree(source, context.folder / "back")


@case("quirks-file")
def quirks_file(context):
    """`-v` says what is known of the server; the user's file corrects it; a mistake in it is told with its line."""
    server = sshd(context)
    source = context.file(100_000)
    _, said = context.cp(server, "-v", source, server.url("a"))
    assert "taken for OpenSSH: serves in order, at most 10 sessions a connection" in said, said
    context.env["XDG_CONFIG_HOME"] = str(context.home)
    path = context.home / "fullbore/quirks.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('[[server]]\nmatch = "OpenSSH_*"\nhandles-max = 1\nserves-in-order = false\n')
    tree = context.dir("tree")
    spread(tree, folders=10, files=5)
    _, said = context.cp(server, "-v", "-r", tree, server.url("b"))
    assert "may serve out of order" in said and "at most 1 open files" in said, said
    same_tree(tree, server.here("b"))
    path.write_text('[[server]]\nmatch = "OpenSSH_*"\nhandles = 1\n')
    code, said = context.cp(server, source, server.url("c"), ok=False)
    assert code == 255 and "quirks.toml: line 3: handles: there is no such setting" in said, said
