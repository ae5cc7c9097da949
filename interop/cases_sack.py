"""`fullbore lab sack` against TCP that is not ours: the running kernel's in a namespace, and a server of this machine."""

import json
import socket
import threading

from harness import Skip, case


def figures(c, *options):
    """{receiver: row}"""
    if not c.is_root:
        raise Skip("namespaces and TUN devices need root")
    path = c.folder / "sack.json"
    c.run([c.binary, "lab", "sack", *options, "--json", path, "--html", c.folder / "sack.html"])
    found = json.loads(path.read_text())
    assert not found["failures"], found["failures"]
    return {row["receiver"]: row for row in found["rows"]}


@case("sack-kernel", alone=True)
def sack_kernel(c):
    seed = str(c.rng.getrandbits(32))
    rows = figures(c, "--quick", "--senders", "kernel", "--receivers", "honest,dupack,dsack-storm,rack", "--seed", seed)
    for name, row in rows.items():
        assert row["bytes_acked"] >= row["window"], f"{name}: {row}"
        assert row["cpu_ns_per_ack"] > 100 and not row["given_up"], f"{name}: {row}"
    # The honest acknowledge every second segment, the hostile each; and only claims of loss bring any again.
    for name, least, most in (("honest", 1500, 4000), ("dupack", 1000, 2000), ("rack", 500, 2000)):
        per_ack = rows[name]["bytes_acked"] / rows[name]["acks"]
        assert least <= per_ack <= most, f"{name}: {per_ack} bytes for each acknowledgement"
    assert rows["honest"]["retransmissions"] == 0 and rows["rack"]["retransmissions"] > 0, rows


def stream(listener, request, served):
    """Sends without end to each who asks, until they go."""
    while True:
        try:
            connection, peer = listener.accept()
        except OSError:
            return
        with connection:
            asked = connection.recv(100)
            served.append((peer[0], asked == request))
            try:
                while asked == request:
                    connection.sendall(bytes(1 << 16))
            except OSError:
                continue


@case("sack-target", alone=True)
def sack_target(c):
    request, served = b"GET / HTTP/1.0\r\n\r\n", []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=stream, args=(listener, request, served), daemon=True).start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        options = ["--windows", "1m", "--rtts", "20ms", "--receivers", "honest,cover-all"]
        rows = figures(c, "--target", address, "--request", r"GET / HTTP/1.0\r\n\r\n", *options)
        listener.shutdown(socket.SHUT_RDWR)
    assert served == [("10.78.0.2", True)] * 2, served
    for row in rows.values():
        assert row["sender"] == "target" and row["bytes_acked"] >= 8 << 20, row
    assert rows["cover-all"]["acks"] > rows["honest"]["acks"], rows


@case("sack-target-nobody", alone=True, timeout=60)
def sack_target_nobody(c):
    if not c.is_root:
        raise Skip("TUN devices need root")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        command = [c.binary, "lab", "sack", "--target", address, "--receivers", "honest", "--html", c.folder / "sack.html"]
        _, output = c.run(command, ok=False)
    assert "sent nothing" in output, output
