"""paramiko as a server, and raw SFTP over its channels for both roles."""

import contextlib
import os
import socket
import struct
import threading

import paramiko


class Auth(paramiko.ServerInterface):
    def check_auth_publickey(self, username, key):
        return paramiko.AUTH_SUCCESSFUL

    def get_allowed_auths(self, username):
        return "publickey"

    def check_channel_request(self, kind, chanid):
        return paramiko.OPEN_SUCCEEDED


class Files(paramiko.SFTPServerInterface):
    """The files below ROOT, in the plainest way."""

    ROOT = None

    def real(self, path):
        return os.path.join(self.ROOT, self.canonicalize(path).lstrip("/"))

    def guarded(self, action):
        try:
            action()
        except OSError as why:
            return paramiko.SFTPServer.convert_errno(why.errno)
        return paramiko.SFTP_OK

    def list_folder(self, path):
        try:
            folder = self.real(path)
            found = []
            for name in os.listdir(folder):
                info = os.lstat(os.path.join(folder, name))
                found.append(paramiko.SFTPAttributes.from_stat(info, name))
            return found
        except OSError as why:
            return paramiko.SFTPServer.convert_errno(why.errno)

    def _stat(self, function, path):
        try:
            return paramiko.SFTPAttributes.from_stat(function(self.real(path)))
        except OSError as why:
            return paramiko.SFTPServer.convert_errno(why.errno)

    def stat(self, path):
        return self._stat(os.stat, path)

    def lstat(self, path):
        return self._stat(os.lstat, path)

    def open(self, path, flags, attr):
        try:
            fd = os.open(self.real(path), flags, 0o644)
            mode = "r+b" if flags & os.O_RDWR else "wb" if flags & os.O_WRONLY else "rb"
            handle = paramiko.SFTPHandle(flags)
            handle.readfile = handle.writefile = os.fdopen(fd, mode)
            handle.stat = lambda: paramiko.SFTPAttributes.from_stat(os.fstat(fd))
            handle.chattr = lambda attr: self.guarded(lambda: paramiko.SFTPServer.set_file_attr(self.real(path), attr))
            return handle
        except OSError as why:
            return paramiko.SFTPServer.convert_errno(why.errno)

    def remove(self, path):
        return self.guarded(lambda: os.unlink(self.real(path)))

    def rename(self, old, new):
        def plain():
            if os.path.lexists(self.real(new)):
                raise FileExistsError(17, "exists")
            os.rename(self.real(old), self.real(new))

        return self.guarded(plain)

    def posix_rename(self, old, new):
        return self.guarded(lambda: os.rename(self.real(old), self.real(new)))

    def mkdir(self, path, attr):
        return self.guarded(lambda: os.mkdir(self.real(path)))

    def rmdir(self, path):
        return self.guarded(lambda: os.rmdir(self.real(path)))

    def chattr(self, path, attr):
        return self.guarded(lambda: paramiko.SFTPServer.set_file_attr(self.real(path), attr))


class Raw(paramiko.SubsystemHandler):
    """Hands the open channel to a function."""

    FUNCTION = None

    def start_subsystem(self, name, transport, channel):
        with contextlib.suppress(EOFError, OSError):
            type(self).FUNCTION(channel)


def listen(server, host_key, function=None):
    """Accepts connections in threads."""
    listener = socket.create_server((server.host, server.port))
    key = paramiko.Ed25519Key.from_private_key_file(str(host_key))
    files = type("Rooted", (Files,), {"ROOT": str(server.root)})

    def accept():
        while True:
            connection, _ = listener.accept()
            transport = paramiko.Transport(connection)
            transport.add_server_key(key)
            if function is None:
                transport.set_subsystem_handler("sftp", paramiko.SFTPServer, files)
            else:
                raw = type("Handler", (Raw,), {"FUNCTION": staticmethod(function)})
                transport.set_subsystem_handler("sftp", raw)
            with contextlib.suppress(paramiko.SSHException, EOFError):
                transport.start_server(threading.Event(), Auth())

    threading.Thread(target=accept, daemon=True).start()


# Raw SFTP packets.

INIT, VERSION, OPEN, CLOSE, READ, WRITE, LSTAT, FSTAT = 1, 2, 3, 4, 5, 6, 7, 8
SETSTAT, FSETSTAT, OPENDIR, READDIR, REMOVE, MKDIR, RMDIR, REALPATH, STAT, RENAME = range(9, 19)
READLINK, SYMLINK, STATUS, HANDLE, DATA, NAME, ATTRS, EXTENDED = 19, 20, 101, 102, 103, 104, 105, 200
OPEN_READ, OPEN_WRITE, OPEN_CREAT, OPEN_TRUNC = 1, 2, 8, 16


def string(data):
    data = data.encode() if isinstance(data, str) else data
    return struct.pack(">I", len(data)) + data


def packet(kind, body):
    return struct.pack(">IB", len(body) + 1, kind) + body


def request(kind, number, *parts):
    return packet(kind, struct.pack(">I", number) + b"".join(parts))


def u32(n):
    return struct.pack(">I", n)


def u64(n):
    return struct.pack(">Q", n)


def read_exactly(channel, n):
    data = b""
    while len(data) < n:
        got = channel.recv(n - len(data))
        if not got:
            raise EOFError(f"the stream ended {n - len(data)} bytes early")
        data += got
    return data


def read_packet(channel):
    """(type, body) of the next SFTP packet."""
    (length,) = struct.unpack(">I", read_exactly(channel, 4))
    data = read_exactly(channel, length)
    return data[0], data[1:]


class RawSftp:
    """A client that says exactly what it is told to."""

    def __init__(self, server, key, window=None, max_packet=None):
        self.transport = paramiko.Transport((server.host, server.port))
        private = paramiko.Ed25519Key.from_private_key_file(str(key))
        self.transport.connect(username=server.user, pkey=private)
        self.channel = self.transport.open_session(window_size=window, max_packet_size=max_packet)
        self.channel.invoke_subsystem("sftp")
        self.channel.settimeout(60)
        self.number = 0
        self.channel.sendall(packet(INIT, u32(3)))
        kind, _ = read_packet(self.channel)
        assert kind == VERSION, kind

    def send(self, kind, *parts):
        self.number += 1
        self.channel.sendall(request(kind, self.number, *parts))
        return self.number

    def call(self, kind, *parts):
        """(type, body behind the number) of the reply."""
        number = self.send(kind, *parts)
        reply, body = read_packet(self.channel)
        assert struct.unpack(">I", body[:4])[0] == number, "a reply to something else"
        return reply, body[4:]

    def open(self, path, flags=OPEN_READ):
        kind, body = self.call(OPEN, string(path), u32(flags), u32(0))
        assert kind == HANDLE, (kind, body)
        return body

    def close(self):
        self.transport.close()


def status_code(body):
    return struct.unpack(">I", body[:4])[0]
