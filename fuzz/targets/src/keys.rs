//! Keys, certificates and the agent's answers.

use fullbore_ssh::agent;
use fullbore_ssh::cert::Certificate;
use fullbore_ssh::key::{PrivateKey, PublicKey};

/// Public keys as blobs and as lines.
pub fn public_key(data: &[u8]) {
    if let Ok(key) = PublicKey::from_blob(data) {
        let blob = key.to_blob();
        let again = PublicKey::from_blob(&blob).expect("what was printed parses");
        assert_eq!(again.to_blob(), blob);
        let line = key.to_line("comment");
        let (from_line, _) = PublicKey::from_line(line.as_bytes()).expect("its line parses");
        assert_eq!(from_line.to_blob(), blob);
    }
    let _ = PublicKey::from_line(data);
    let _ = PublicKey::from_base64(data);
}

/// Private key files without a passphrase.
pub fn private_key(data: &[u8]) {
    let _ = PrivateKey::public_in_file(data);
    if let Ok(key) = PrivateKey::from_file(data, None) {
        let printed = key.to_openssh("comment").expect("a key that parsed prints");
        assert!(PrivateKey::from_file(printed.expose(), None).is_ok());
    }
}

/// Certificates as blobs and as lines.
pub fn certificate(data: &[u8]) {
    let _ = Certificate::from_line(data);
    if let Ok(certificate) = Certificate::from_blob(data) {
        assert_eq!(certificate.as_blob(), data);
        assert!(certificate.principals().count() <= data.len());
        let _ = certificate.valid_for_host("example.org", 1_700_000_000);
    }
}

/// What an agent sends.
pub fn agent(data: &[u8]) {
    let Ok(Some(len)) = agent::message_len(data) else {
        return;
    };
    if let Some(message) = data.get(..len) {
        let _ = agent::Reply::from_bytes(message);
    }
    let _ = agent::Reply::from_bytes(data);
}

fn sample() -> PrivateKey {
    PrivateKey::from_ed25519_seed(&[7; 32]).expect("any 32 bytes are a seed")
}

/// A key in both forms.
#[must_use]
pub fn public_key_seeds() -> Vec<Vec<u8>> {
    let key = sample().public_key().clone();
    let mut p256 = Vec::new();
    for part in [&b"ecdsa-sha2-nistp256"[..], b"nistp256", &[4; 65]] {
        put(&mut p256, part);
    }
    let mut rsa = Vec::new();
    for part in [&b"ssh-rsa"[..], &[1, 0, 1], &[0x7f; 256]] {
        put(&mut rsa, part);
    }
    vec![
        key.to_blob(),
        key.to_line("a comment").into_bytes(),
        p256,
        rsa,
    ]
}

/// A key file.
#[must_use]
pub fn private_key_seeds() -> Vec<Vec<u8>> {
    let file = sample().to_openssh("a comment").expect("a sample prints");
    vec![file.expose().to_vec()]
}

/// The fields of a certificate, with a signature that is not valid.
#[must_use]
pub fn certificate_seeds() -> Vec<Vec<u8>> {
    let ca = sample().public_key().to_blob();
    let mut blob = Vec::new();
    put(&mut blob, b"ssh-ed25519-cert-v01@openssh.com");
    put(&mut blob, &[1; 32]);
    put(&mut blob, &[2; 32]);
    blob.extend(1u64.to_be_bytes());
    blob.extend(1u32.to_be_bytes());
    put(&mut blob, b"id");
    let mut principals = Vec::new();
    put(&mut principals, b"user");
    put(&mut blob, &principals);
    blob.extend(0u64.to_be_bytes());
    blob.extend(u64::MAX.to_be_bytes());
    put(&mut blob, b"");
    put(&mut blob, b"");
    put(&mut blob, b"");
    put(&mut blob, &ca);
    let mut signature = Vec::new();
    put(&mut signature, b"ssh-ed25519");
    put(&mut signature, &[3; 64]);
    put(&mut blob, &signature);
    vec![blob]
}

/// A list of two keys, a signature, a failure.
#[must_use]
pub fn agent_seeds() -> Vec<Vec<u8>> {
    let mut identities = vec![12];
    identities.extend(2u32.to_be_bytes());
    for name in [&b"first"[..], b"second"] {
        put(&mut identities, &sample().public_key().to_blob());
        put(&mut identities, name);
    }
    let mut signature = vec![14];
    put(&mut signature, &[9; 83]);
    [identities, signature, vec![5]]
        .into_iter()
        .map(|body| {
            let mut message = Vec::new();
            put(&mut message, &body);
            message
        })
        .collect()
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(u32::try_from(bytes.len()).unwrap_or(0).to_be_bytes());
    out.extend(bytes);
}
