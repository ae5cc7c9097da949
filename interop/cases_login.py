"""Passwords, questions and second factors against other programs; encrypted keys; the first look at a host's key."""

import shlex

from cases_server import Sftp
from harness import case, same, wait_until, which
from servers import asyncssh_server, serve, sshd

SIZE = 70_000
NO_KEYS = "PubkeyAuthentication=no"


def answering(context, *pairs):
    """Has questions answered by a program: of (what the question holds, answer) the first that fits. Returns the
    file that keeps what was asked."""
    asked = context.folder / "asked"
    rules = "\n".join(f"*{shlex.quote(part)}*) echo {shlex.quote(answer)};;" for part, answer in pairs)
    program = context.folder / "askpass"
    program.write_text(f'#!/bin/sh\necho "$1" >>{shlex.quote(str(asked))}\ncase "$1" in\n{rules}\n*) exit 1;;\nesac\n')
    program.chmod(0o755)
    context.env.update(SSH_ASKPASS=str(program), SSH_ASKPASS_REQUIRE="force", DISPLAY=":none")
    return asked


def asking_server(context, password=None, questions=None):
    """asyncssh's server: a banner, a password that may have expired, or questions with their answers."""
    import asyncssh

    valid = {"password": password}

    class Login(asyncssh.SSHServer):
        def connection_made(self, connection):
            self.connection = connection

        def begin_auth(self, username):
            self.connection.send_auth_banner("Mind the gap.\n")
            return True

        def password_auth_supported(self):
            return valid["password"] is not None

        def validate_password(self, username, given):
            if given == "expired":
                raise asyncssh.PasswordChangeRequired("It has expired.")
            return given == valid["password"]

        def change_password(self, username, old, new):
            valid["password"] = new
            return old == "expired"

        def kbdint_auth_supported(self):
            return questions is not None

        def get_kbdint_challenge(self, username, language, methods):
            return "Second look", "Answer all.", "", [(text, is_shown) for text, _, is_shown in questions]

        def validate_kbdint_response(self, username, answers):
            return answers == [answer for _, answer, _ in questions]

    return asyncssh_server(context, server_factory=Login)


def put_and_get(context, server, *options):
    source = context.file(SIZE)
    _, output = context.cp(server, source, server.url("x"), options=options)
    same(source, server.here("x"))
    context.cp(server, server.url("x"), context.folder / "back", options=options)
    same(source, context.folder / "back")
    return output


@case("login-cp-password")
def password(context):
    server = asking_server(context, password="correct horse")
    asked = answering(context, ("assword", "correct horse"))
    output = put_and_get(context, server, NO_KEYS)
    assert "Mind the gap." in output, output
    assert len(asked.read_text().splitlines()) == 2, asked.read_text()


@case("login-cp-password-is-changed")
def password_change(context):
    server = asking_server(context, password="never")
    asked = answering(context, ("ew password", "battery staple"), ("again", "battery staple"), ("assword", "expired"))
    source = context.file(SIZE)
    _, output = context.cp(server, source, server.url("x"), options=[NO_KEYS])
    same(source, server.here("x"))
    assert "It has expired." in asked.read_text() + output, asked.read_text() + output
    # From now on the new one counts.
    answering(context, ("assword", "battery staple"))
    context.cp(server, server.url("x"), context.folder / "back", options=[NO_KEYS])
    same(source, context.folder / "back")


@case("login-cp-keyboard-interactive")
def keyboard_interactive(context):
    server = asking_server(context, questions=[("PIN: ", "1234", False), ("Colour: ", "no, blue", True)])
    asked = answering(context, ("PIN", "1234"), ("Colour", "no, blue"))
    put_and_get(context, server, NO_KEYS)
    assert "PIN" in asked.read_text() and "Colour" in asked.read_text(), asked.read_text()
    answering(context, ("PIN", "1234"), ("Colour", "red"))
    _, output = context.cp(server, context.file(1), server.url("y"), options=[NO_KEYS], ok=False)
    assert "keyboard-interactive" in output, output


@case("login-cp-two-keys-at-sshd")
def two_keys(context):
    """Partial success: the first key alone is not enough, and neither is it twice."""
    server = sshd(context, "AuthenticationMethods publickey,publickey")
    context.cp(server, context.file(1), server.url("y"), options=["BatchMode=yes"], ok=False)
    put_and_get(context, server, f"IdentityFile={context.shared}/user_rsa")


@case("login-sftp-serve-password")
def serve_password(context):
    """OpenSSH's client logs in to our server with a password whose hash our program made."""
    answering(context, ("assword", "correct horse"), ("again", "correct horse"))
    _, text = context.run([context.binary, "hash-password"])
    stored = context.folder / "hash"
    stored.write_text(text)
    nobody = context.folder / "nobody"
    nobody.write_text("")
    server = serve(context, "--password-hash", stored, keys=nobody)
    source = context.file(SIZE)
    for method in ("password", "keyboard-interactive"):
        client = Sftp(context, server)
        client.known += ["-oPubkeyAuthentication=no", f"-oPreferredAuthentications={method}"]
        client.known += ["-oNumberOfPasswordPrompts=1"]
        # Batch files switch questions off; the option in front of that one counts.
        client.flags = ["-oBatchMode=no"]
        client.put(source, method)
        same(source, server.here(method))
        answering(context, ("assword", "wrong"))
        try:
            client.put(source, "refused")
        except AssertionError:
            assert "refused password" in server.process.output(), server.process.output()
        else:
            raise AssertionError("a wrong password was let in")
        answering(context, ("assword", "correct horse"))


@case("login-cp-encrypted-key")
def encrypted_key(context):
    key = context.folder / "locked"
    key.write_bytes((context.shared / "user_ed25519").read_bytes())
    key.chmod(0o600)
    context.run([which("ssh-keygen"), "-q", "-p", "-N", "open sesame", "-f", key])
    asked = answering(context, ("locked", "open sesame"))
    server = sshd(context)
    command = [context.binary, "cp", "-F", "/dev/null", "-P", str(server.port), "-i", key]
    command += ["-o", f"UserKnownHostsFile={context.home}/.ssh/known_hosts", "-o", "StrictHostKeyChecking=accept-new"]
    context.run([*command, context.file(SIZE), server.url("x")])
    same(context.file(SIZE), server.here("x"))
    assert asked.read_text().count("\n") == 1, asked.read_text()


@case("login-cp-first-use-is-asked")
def first_use(context):
    """`no` leaves nothing behind; `yes` is remembered, in a form that OpenSSH reads."""
    server = sshd(context)
    known = context.home / ".ssh/known_hosts"

    def copy(ok):
        command = context.cp_command(server, context.file(SIZE), server.url("x"), options=["StrictHostKeyChecking=ask"])
        at = command.index("StrictHostKeyChecking=accept-new")
        del command[at - 1 : at + 1]
        return context.run(command, ok=ok)

    asked = answering(context, ("continue", "no"))
    copy(ok=False)
    assert not server.here("x").exists() and not (known.exists() and known.read_text())
    assert "SHA256:" in asked.read_text(), asked.read_text()
    asked.unlink()
    answering(context, ("continue", "yes"))
    copy(ok=True)
    copy(ok=True)
    assert asked.read_text().count("SHA256:") == 1, asked.read_text()
    wait_until(known.exists, 5, "the key is remembered")
    _, found = context.run([which("ssh-keygen"), "-F", f"[{server.host}]:{server.port}", "-f", known])
    assert "found" in found, found
