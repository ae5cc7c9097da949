//! Security keys at the server: touch and user verification.

use super::*;

/// A security key's request, signed by us in the device's stead.
fn sk_request(flags: u8, certificate: Option<&[u8]>) -> (ServerAuth, Vec<u8>) {
    let device = PrivateKey::from_ed25519_seed(&[9; 32]).expect("a key");
    let mut blob = Vec::new();
    blob.put_string(b"sk-ssh-ed25519@openssh.com");
    device.public_key().put_fields(&mut blob);
    blob.put_string(b"ssh:");
    let name = if certificate.is_some() {
        Algorithm::SkEd25519.certificate_name()
    } else {
        Algorithm::SkEd25519.name()
    };
    let blob = certificate.map_or(blob.clone(), |options| sk_certificate(&blob, options));
    let fields = KeyFields {
        user: b"u",
        host_key: None,
        algorithm: name,
        key_blob: &blob,
    };
    let sha256 = |data: &[u8]| aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, data);
    let mut signed = sha256(b"ssh:").as_ref().to_vec();
    signed.extend_from_slice(&[flags, 0, 0, 0, 1]);
    signed.extend_from_slice(sha256(&fields.signed_data(SESSION_ID)).as_ref());
    let inner = device.sign(Algorithm::Ed25519, &signed).expect("signs");
    let mut signature = Vec::new();
    signature.put_string(b"sk-ssh-ed25519@openssh.com");
    signature.put_string(&inner[inner.len() - 64..]);
    signature.extend_from_slice(&[flags, 0, 0, 0, 1]);
    let mut message = Vec::new();
    fields.put(&mut message, true);
    message.put_string(&signature);
    (ServerAuth::default(), message)
}

/// A certificate for that key; `critical` is its packed critical options.
fn sk_certificate(key_blob: &[u8], critical: &[u8]) -> Vec<u8> {
    let ca = PrivateKey::from_ed25519_seed(&[1; 32]).expect("a key");
    let mut blob = Vec::new();
    blob.put_string(b"sk-ssh-ed25519-cert-v01@openssh.com");
    blob.put_string(b"nonce");
    blob.put_raw(&key_blob[4 + "sk-ssh-ed25519@openssh.com".len()..]);
    blob.put_u64(0);
    blob.put_u32(1);
    blob.put_string(b"id");
    blob.put_string(b"\0\0\0\x01u");
    blob.put_u64(0);
    blob.put_u64(u64::MAX);
    blob.put_string(critical);
    blob.put_string(b"");
    blob.put_string(b"");
    blob.put_string(&ca.public_key().to_blob());
    let signature = ca.sign(Algorithm::Ed25519, &blob).expect("signs");
    blob.put_string(&signature);
    blob
}

#[test]
fn a_security_key_must_be_touched_unless_told_otherwise() {
    let verify_required = {
        let mut options = Vec::new();
        options.put_string(b"verify-required");
        options.put_string(b"");
        options
    };
    let plain = None;
    let cert: Option<&[u8]> = Some(b"");
    let strict: Option<&[u8]> = Some(&verify_required);
    for (flags, certificate, answer, is_in) in [
        (1, plain, AuthAnswer::Accept, true),
        (0, plain, AuthAnswer::Accept, false),
        (0, plain, AuthAnswer::AcceptWithoutTouch, true),
        (
            0,
            plain,
            AuthAnswer::Partial(MethodSet::of(&[Method::Password])),
            false,
        ),
        (1, cert, AuthAnswer::Accept, true),
        // The certificate does not say no-touch-required.
        (0, cert, AuthAnswer::AcceptWithoutTouch, false),
        (1, strict, AuthAnswer::Accept, false),
        (5, strict, AuthAnswer::Accept, true),
    ] {
        let (config, message) = sk_request(flags, certificate);
        let mut server = served(config);
        server
            .handle_message(&plain_session(), &message)
            .expect("right");
        let request = server.request().expect("asked");
        assert!(
            matches!(request.credential, Credential::Key { sk: Some(sk), .. } if sk.counter == 1)
        );
        server.answer(answer.clone()).expect("asked");
        assert_eq!(server.is_authenticated(), is_in, "{flags} {answer:?}");
    }
}
