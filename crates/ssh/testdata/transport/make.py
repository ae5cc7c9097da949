"""Makes packets.txt, exchanges.txt and agreements.txt from code that is not ours.

asyncssh 2.24 gives packets and whole exchanges (it runs both ends over loopback), cryptography the
agreements. Needs both from PyPI. The exchanges hold fresh random values: each run makes other ones.
"""
import asyncio
import hashlib

import asyncssh
from asyncssh import kex_dh
from asyncssh.encryption import get_encryption
from cryptography.hazmat.primitives.asymmetric import ec, x25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


def pattern(label, length):
    out = b""
    while len(out) < length:
        out += hashlib.sha256(f"{label}{len(out)}".encode()).digest()
    return out[:length]


def packets():
    ciphers = {
        "aes128-gcm@openssh.com": (16, 12, 16),
        "aes256-gcm@openssh.com": (32, 12, 16),
        "chacha20-poly1305@openssh.com": (64, 0, 8),
        "aes128-ctr": (16, 16, 16),
        "aes192-ctr": (24, 16, 16),
        "aes256-ctr": (32, 16, 16),
    }
    macs = {
        "hmac-sha2-256": 32,
        "hmac-sha2-512": 64,
        "hmac-sha2-256-etm@openssh.com": 32,
        "hmac-sha2-512-etm@openssh.com": 64,
    }
    with open("packets.txt", "w") as out:
        print("# cipher mac iv key mac_key sequence payload wire (hex), - for none", file=out)
        for cipher, (key_len, iv_len, block) in ciphers.items():
            aead = "ctr" not in cipher
            for mac, mac_len in {"-": 0}.items() if aead else macs.items():
                etm = "etm" in mac
                # Counters that carry out of their low 32 bits, and sequence numbers that wrap.
                iv = pattern(cipher + "iv", iv_len)
                iv = iv[:-4] + b"\xff\xff\xff\xfe" if iv else iv
                key, mac_key = pattern(cipher + "key", key_len), pattern(mac, mac_len)
                encryption = get_encryption(
                    cipher.encode(), key, iv, mac.encode() if not aead else b"", mac_key, etm)
                for n, length in enumerate((1, 20, 300)):
                    sequence = (0xFFFFFFFE + n) % 2**32
                    payload = pattern(f"payload{n}", length)
                    counted = 1 + length + (0 if aead or etm else 4)
                    padding = block - counted % block
                    padding += block if padding < 4 else 0
                    body = bytes([padding]) + payload + bytes(padding)
                    header = len(body).to_bytes(4, "big")
                    wire, tag = encryption.encrypt_packet(sequence, header, body)
                    print(cipher, mac, iv.hex() or "-", key.hex(), mac_key.hex() or "-", sequence,
                          payload.hex(), (wire + tag).hex(), file=out)


async def exchanges():
    with open("exchanges.txt", "w") as out:
        print("# method, then: V_C V_S I_C I_S K_S gex client_public server_public K signature H"
              " (hex as in the hash, - for none), then 64 bytes for each letter A-F", file=out)
        record = {}

        def wrap(cls):
            inner = cls._verify_reply

            def verify_reply(self, key, key_data, sig):
                secret = {}
                compute = self._compute_client_shared

                def shared():
                    secret["k"] = compute()
                    return secret["k"]

                self._compute_client_shared = shared
                inner(self, key, key_data, sig)
                k, conn = secret["k"], self._conn
                h = self._compute_hash(key_data, k)
                record["fields"] = [
                    conn._client_version, conn._server_version, conn._client_kexinit,
                    conn._server_kexinit, key_data, self._gex_data, self._format_client_key(),
                    self._format_server_key(), k, sig, h]
                record["keys"] = [self.compute_key(k, h, x, h, 64)
                                  for x in (b"A", b"B", b"C", b"D", b"E", b"F")]

            cls._verify_reply = verify_reply

        wrap(kex_dh._KexDHBase)
        host_key = asyncssh.generate_private_key("ssh-ed25519")
        methods = ["mlkem768x25519-sha256", "curve25519-sha256", "ecdh-sha2-nistp256",
                   "ecdh-sha2-nistp384", "ecdh-sha2-nistp521", "diffie-hellman-group14-sha256",
                   "diffie-hellman-group16-sha512", "diffie-hellman-group18-sha512",
                   "diffie-hellman-group-exchange-sha256"]
        for method in methods:
            server = await asyncssh.listen("127.0.0.1", 0, server_host_keys=[host_key],
                                           kex_algs=[method])
            try:
                await asyncssh.connect("127.0.0.1", server.get_port(), known_hosts=None,
                                       username="x", kex_algs=[method], client_keys=None,
                                       password="x")
            except asyncssh.PermissionDenied:
                pass
            server.close()
            print(method, *[f.hex() or "-" for f in record["fields"] + record["keys"]], file=out)


def agreements():
    with open("agreements.txt", "w") as out:
        print("# method private public remote_public shared (hex magnitudes)", file=out)
        ours = x25519.X25519PrivateKey.from_private_bytes(pattern("x25519", 32))
        theirs = x25519.X25519PrivateKey.from_private_bytes(pattern("x25519 remote", 32))
        print("curve25519-sha256", ours.private_bytes_raw().hex(),
              ours.public_key().public_bytes_raw().hex(),
              theirs.public_key().public_bytes_raw().hex(),
              ours.exchange(theirs.public_key()).hex(), file=out)
        for name, curve, length, top in (("nistp256", ec.SECP256R1(), 32, 0x7F),
                                         ("nistp384", ec.SECP384R1(), 48, 0x7F),
                                         ("nistp521", ec.SECP521R1(), 66, 0x01)):
            def draw(label):
                raw = bytearray(pattern(label + name, length))
                raw[0] &= top
                return bytes(raw)

            private = draw("ours")
            ours = ec.derive_private_key(int.from_bytes(private, "big"), curve)
            theirs = ec.derive_private_key(int.from_bytes(draw("theirs"), "big"), curve)
            point = (Encoding.X962, PublicFormat.UncompressedPoint)
            print("ecdh-sha2-" + name, private.hex(), ours.public_key().public_bytes(*point).hex(),
                  theirs.public_key().public_bytes(*point).hex(),
                  ours.exchange(ec.ECDH(), theirs.public_key()).hex(), file=out)
        for method, p in (("diffie-hellman-group14-sha256", kex_dh._group14_p),
                          ("diffie-hellman-group16-sha512", kex_dh._group16_p),
                          ("diffie-hellman-group18-sha512", kex_dh._group18_p)):
            private, remote = pattern(method, 64), pattern(method + "remote", 64)
            x, y = int.from_bytes(private, "big"), int.from_bytes(remote, "big")
            length = (p.bit_length() + 7) // 8
            print(method, private.hex(), pow(2, x, p).to_bytes(length, "big").hex(),
                  pow(2, y, p).to_bytes(length, "big").hex(),
                  pow(2, x * y, p).to_bytes(length, "big").hex(), file=out)


packets()
agreements()
asyncio.run(exchanges())
