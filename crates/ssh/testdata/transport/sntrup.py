"""Makes sntrup.txt: what OpenSSH's server answers to the client's value in kex/tests.rs.

    sntrup.py HOST PORT CLIENT_PUBLIC_HEX > sntrup.txt

The server needs an Ed25519 host key and `KexAlgorithms sntrup761x25519-sha512@openssh.com`. Each run makes another one.
"""
import socket
import struct
import sys

VERSION = b"SSH-2.0-recorder"


def string(data):
    return struct.pack(">I", len(data)) + data


def packet(payload):
    padding = 8 - (5 + len(payload)) % 8
    padding += 8 if padding < 4 else 0
    return struct.pack(">IB", 1 + len(payload) + padding, padding) + payload + bytes(padding)


def main(host, port, public):
    names = [b"sntrup761x25519-sha512@openssh.com", b"ssh-ed25519", *[b"aes128-ctr"] * 2]
    names += [*[b"hmac-sha2-256"] * 2, *[b"none"] * 2, b"", b""]
    kexinit = b"\x14" + bytes(range(16)) + b"".join(string(name) for name in names) + bytes(5)
    stream = socket.create_connection((host, int(port))).makefile("rwb")
    stream.write(VERSION + b"\r\n" + packet(kexinit) + packet(b"\x1e" + string(bytes.fromhex(public))))
    stream.flush()
    server_version = stream.readline().strip()

    def received():
        length, padding = struct.unpack(">IB", stream.read(5))
        return stream.read(length - 1)[: length - 1 - padding]

    server_kexinit, reply = received(), received()
    fields, at = [], 1
    while at < len(reply):
        (length,) = struct.unpack_from(">I", reply, at)
        fields.append(reply[at + 4 : at + 4 + length])
        at += 4 + length
    print(f"# V_C V_S I_C I_S K_S Q_S signature (hex, a line each), of {server_version.decode()}")
    for field in (VERSION, server_version, kexinit, server_kexinit, *fields):
        print(field.hex())


main(*sys.argv[1:])
