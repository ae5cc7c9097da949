//! Security keys (PROTOCOL.u2f) behind an agent: the client logs in with them at our own server and at a real
//! sshd. The device is played here: it signs as hardware does, touched or not.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_lc_rs::digest;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
};
use fullbore::client::{Error, connect};
use fullbore_ssh::key::PublicKey;
use fullbore_ssh::wire::Put;
use support::{Folder, OurServer, Script, context, host, run, start_sshd};

const APPLICATION: &[u8] = b"ssh:";
const TOUCHED: u8 = 0x01;
const VERIFIED: u8 = 0x04;

/// A device with one key.
enum Device {
    Ed25519(Ed25519KeyPair),
    Ecdsa(EcdsaKeyPair),
}

impl Device {
    fn both() -> [Self; 2] {
        let ecdsa = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
        [
            Self::Ed25519(Ed25519KeyPair::generate().unwrap()),
            Self::Ecdsa(ecdsa.unwrap()),
        ]
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Ed25519(_) => "sk-ssh-ed25519@openssh.com",
            Self::Ecdsa(_) => "sk-ecdsa-sha2-nistp256@openssh.com",
        }
    }

    fn blob(&self) -> Vec<u8> {
        let mut blob = Vec::new();
        blob.put_string(self.name().as_bytes());
        match self {
            Self::Ed25519(key) => blob.put_string(key.public_key().as_ref()),
            Self::Ecdsa(key) => {
                blob.put_string(b"nistp256");
                blob.put_string(key.public_key().as_ref());
            }
        }
        blob.put_string(APPLICATION);
        blob
    }

    fn line(&self) -> String {
        let key = PublicKey::from_blob(&self.blob()).unwrap();
        key.to_line("device")
    }

    /// What the device signs is SHA256(application) || flags || counter || SHA256(data); flags and counter
    /// go with the signature.
    fn sign(&self, data: &[u8], flags: u8, counter: u32) -> Vec<u8> {
        let sha256 = |data: &[u8]| digest::digest(&digest::SHA256, data);
        let mut said = vec![flags];
        said.extend_from_slice(&counter.to_be_bytes());
        let message = [
            sha256(APPLICATION).as_ref(),
            &said[..],
            sha256(data).as_ref(),
        ]
        .concat();
        let body = match self {
            Self::Ed25519(key) => key.sign(&message).as_ref().to_vec(),
            Self::Ecdsa(key) => {
                let fixed = key.sign(&SystemRandom::new(), &message).unwrap();
                let (r, s) = fixed.as_ref().split_at(32);
                let mut body = Vec::new();
                body.put_mpint(r);
                body.put_mpint(s);
                body
            }
        };
        let mut signature = Vec::new();
        signature.put_string(self.name().as_bytes());
        signature.put_string(&body);
        signature.extend_from_slice(&said);
        signature
    }
}

/// How a device behaves.
#[derive(Clone, Copy)]
struct Manner {
    flags: u8,
    /// Whether what it says it has signed is what it has signed.
    is_honest: bool,
}

/// An agent in front of one device.
struct Agent {
    socket: PathBuf,
    signature_count: Arc<AtomicUsize>,
}

impl Agent {
    fn start(folder: &Folder, device: Device, manner: Manner) -> Self {
        let socket = folder.file("agent");
        // That of an earlier agent, if there was one.
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let signature_count = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&signature_count);
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                serve(stream.unwrap(), &device, manner, &count);
            }
        });
        Self {
            socket,
            signature_count,
        }
    }
}

/// draft-ietf-sshm-ssh-agent: lists the key, signs with it, until the client hangs up.
fn serve(mut stream: UnixStream, device: &Device, manner: Manner, count: &AtomicUsize) {
    const REQUEST_IDENTITIES: u8 = 11;
    const IDENTITIES_ANSWER: u8 = 12;
    const SIGN_REQUEST: u8 = 13;
    const SIGN_RESPONSE: u8 = 14;
    const FAILURE: u8 = 5;
    let mut word = [0; 4];
    while stream.read_exact(&mut word).is_ok() {
        let mut request = vec![0; u32::from_be_bytes(word) as usize];
        stream.read_exact(&mut request).unwrap();
        let mut reply = Vec::new();
        match request[0] {
            REQUEST_IDENTITIES => {
                reply.push(IDENTITIES_ANSWER);
                reply.put_u32(1);
                reply.put_string(&device.blob());
                reply.put_string(b"device");
            }
            SIGN_REQUEST => {
                let (blob, rest) = take_string(&request[1..]);
                assert_eq!(blob, device.blob(), "the key that was listed");
                let (data, rest) = take_string(rest);
                assert_eq!(rest, [0; 4], "no flags: those are RSA's");
                let counter = 1 + count.fetch_add(1, Ordering::Relaxed) as u32;
                let mut signature = device.sign(data, manner.flags, counter);
                if !manner.is_honest {
                    // The counter's last byte, which the signature covers.
                    *signature.last_mut().unwrap() ^= 1;
                }
                reply.push(SIGN_RESPONSE);
                reply.put_string(&signature);
            }
            _ => reply.push(FAILURE),
        }
        let mut framed = Vec::new();
        framed.put_string(&reply);
        stream.write_all(&framed).unwrap();
    }
}

fn take_string(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (len, rest) = bytes.split_first_chunk::<4>().unwrap();
    rest.split_at(u32::from_be_bytes(*len) as usize)
}

/// Logs in with the agent's key alone, as the server's `authorized_keys` lets it in under `options`.
fn log_in(
    (folder, port): (&Folder, u16),
    device: Device,
    options: &str,
    manner: Manner,
) -> Result<(), Error> {
    let line = format!("{options}{}\n", device.line());
    fs::write(folder.file("authorized_keys"), line).unwrap();
    let name = device.name();
    let agent = Agent::start(folder, device, manner);
    let option = format!("IdentityAgent={}", agent.socket.display());
    let outcome = run(async {
        let host = host(folder, port, &[&option]);
        let sftp = connect(&host, &context(&Script::default())).await?;
        sftp.stat(b".").await.map(drop)
    });
    // A refusal is one of the signature, not of a key that was never tried.
    assert!(agent.signature_count.load(Ordering::Relaxed) > 0, "{name}");
    outcome
}

/// What the line of `authorized_keys` says in front, how the device behaves, and whether that is enough.
const CASES: [(&str, u8, bool, bool); 7] = [
    ("", TOUCHED, true, true),
    ("", 0, true, false),
    ("no-touch-required ", 0, true, true),
    ("verify-required ", TOUCHED, true, false),
    ("verify-required ", TOUCHED | VERIFIED, true, true),
    ("", TOUCHED, false, false),
    ("no-touch-required ", 0, false, false),
];

fn check_all(folder: &Folder, port: u16) {
    for (options, flags, is_honest, is_in) in CASES {
        for device in Device::both() {
            let what = format!(
                "{} {options:?} flags {flags}, honest: {is_honest}",
                device.name()
            );
            let manner = Manner { flags, is_honest };
            match log_in((folder, port), device, options, manner) {
                Ok(()) => assert!(is_in, "{what}: let in"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(!is_in, "{what}: {text}");
                    assert!(text.contains("Permission denied"), "{what}: {text}");
                    assert!(text.contains("agent key"), "{what}: {text}");
                }
            }
        }
    }
}

#[test]
fn our_server_takes_a_touched_security_key_of_the_agent() {
    let server = OurServer::start(|_| {});
    check_all(&server.folder, server.port);
}

#[test]
fn sshd_takes_a_touched_security_key_of_the_agent() {
    let Some(sshd) = start_sshd() else { return };
    check_all(&sshd.folder, sshd.port);
}

/// A file that names a key on a device, with the agent to sign for it: `IdentitiesOnly` lets no other through.
#[test]
fn a_public_key_file_chooses_the_agents_security_key() {
    let server = OurServer::start(|_| {});
    for device in Device::both() {
        let folder = &server.folder;
        let line = device.line();
        let file = folder.write("sk.pub", line.as_bytes());
        fs::write(folder.file("authorized_keys"), &line).unwrap();
        let manner = Manner {
            flags: TOUCHED,
            is_honest: true,
        };
        let agent = Agent::start(folder, device, manner);
        run(async {
            let options = chosen(&agent.socket, &file);
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            let host = host(folder, server.port, &options);
            let sftp = connect(&host, &context(&Script::default())).await.unwrap();
            sftp.stat(b".").await.unwrap();
        });
        assert_eq!(agent.signature_count.load(Ordering::Relaxed), 1);
    }
}

fn chosen(agent: &Path, file: &Path) -> [String; 3] {
    [
        format!("IdentityAgent={}", agent.display()),
        format!("IdentityFile={}", file.display()),
        "IdentitiesOnly=yes".to_owned(),
    ]
}
