use super::*;
use crate::key::PrivateKey;
use crate::wire::Put;

macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!("../../testdata/auth/", $name)).as_slice()
    };
}

/// 2020-01-01 and 2030-01-01.
const FROM: u64 = 1_577_836_800;
const UNTIL: u64 = 1_893_456_000;
const NOW: u64 = 1_750_000_000;

fn cert(line: &[u8]) -> Certificate {
    Certificate::from_line(line).expect("a certificate of ssh-keygen")
}

fn address(text: &str) -> Option<IpAddr> {
    Some(text.parse().expect("an address"))
}

#[test]
fn certificates_of_ssh_keygen_are_read() {
    let one = cert(data!("user-ed25519-cert.pub"));
    let (key, _) = PublicKey::from_line(data!("ed25519.pub")).expect("a key");
    let (ca, _) = PublicKey::from_line(data!("ca.pub")).expect("a key");
    assert_eq!(one.key(), &key);
    assert_eq!(one.ca_key(), &ca);
    assert_eq!(one.ca_algorithm(), Algorithm::Ed25519);
    assert_eq!(one.kind(), CertificateKind::User);
    assert_eq!(one.serial(), 7);
    assert_eq!(one.key_id(), b"user one");
    assert_eq!(
        one.principals().collect::<Vec<_>>(),
        [b"alice".as_slice(), b"bob"]
    );
    assert_eq!((one.valid_after(), one.valid_before()), (FROM, UNTIL));
    assert_eq!(one.force_command(), Some(&b"internal-sftp"[..]));
    assert!(!one.is_verify_required());
    assert!(one.has_extension("permit-pty") && !one.has_extension("permit-port-forwarding"));
    assert_eq!(Certificate::from_blob(one.as_blob()).as_ref(), Ok(&one));
}

#[test]
fn every_key_and_ca_type_is_read() {
    for (line, key_type, ca_algorithm) in [
        (
            data!("user-ecdsa256-cert.pub"),
            KeyType::EcdsaP256,
            Algorithm::RsaSha256,
        ),
        (
            data!("user-ecdsa384-cert.pub"),
            KeyType::EcdsaP384,
            Algorithm::EcdsaP384,
        ),
        (
            data!("user-ecdsa521-cert.pub"),
            KeyType::EcdsaP521,
            Algorithm::Ed25519,
        ),
        (
            data!("user-rsa2048-cert.pub"),
            KeyType::Rsa,
            Algorithm::RsaSha512,
        ),
        (
            data!("user-sk-ed25519-cert.pub"),
            KeyType::SkEd25519,
            Algorithm::Ed25519,
        ),
        (
            data!("user-sk-ecdsa-cert.pub"),
            KeyType::SkEcdsaP256,
            Algorithm::Ed25519,
        ),
    ] {
        let cert = cert(line);
        assert_eq!(cert.key().key_type(), key_type);
        assert_eq!(cert.ca_algorithm(), ca_algorithm);
        assert_eq!(cert.valid_for_user(b"alice", NOW, None), Ok(()));
        assert!(matches!(
            cert.valid_for_host("alice", NOW),
            Err(CertificateError::WrongKind(CertificateKind::User))
        ));
    }
    assert!(cert(data!("user-sk-ecdsa-cert.pub")).is_verify_required());
    assert!(cert(data!("user-sk-ed25519-cert.pub")).has_extension("no-touch-required"));
}

#[test]
fn a_ca_signature_with_sha1_is_refused() {
    assert_eq!(
        Certificate::from_line(data!("user-sha1-cert.pub")),
        Err(CertificateError::CaSignature(KeyError::WrongAlgorithm(
            "ssh-rsa".to_owned()
        )))
    );
}

#[test]
fn the_validity_window_holds_its_first_second_and_not_its_last() {
    let one = cert(data!("user-ecdsa256-cert.pub"));
    let at = |now| one.valid_for_user(b"alice", now, None);
    assert_eq!(at(FROM - 1), Err(CertificateError::NotYetValid(FROM)));
    assert_eq!(at(FROM), Ok(()));
    assert_eq!(at(UNTIL - 1), Ok(()));
    assert_eq!(at(UNTIL), Err(CertificateError::Expired(UNTIL)));
    let ever = cert(data!("user-forever-cert.pub"));
    assert_eq!(ever.valid_for_user(b"alice", u64::MAX - 1, None), Ok(()));
}

#[test]
fn principals_of_users_are_compared_byte_for_byte() {
    let one = cert(data!("user-ecdsa256-cert.pub"));
    let user = |name: &[u8]| one.valid_for_user(name, NOW, None);
    assert_eq!(user(b"alice"), Ok(()));
    for name in [&b""[..], b"Alice", b"alic", b"alice ", b"*"] {
        assert!(matches!(
            user(name),
            Err(CertificateError::WrongPrincipal(_))
        ));
    }
    assert_eq!(
        cert(data!("user-no-principals-cert.pub")).valid_for_user(b"alice", NOW, None),
        Err(CertificateError::NoPrincipals)
    );
}

#[test]
fn source_addresses_are_obeyed() {
    let one = cert(data!("user-ed25519-cert.pub"));
    let from = |source| one.valid_for_user(b"bob", NOW, source);
    assert_eq!(from(address("192.0.2.77")), Ok(()));
    assert_eq!(from(address("::ffff:192.0.2.77")), Ok(()));
    assert_eq!(from(address("2001:db8:1::2")), Ok(()));
    assert_eq!(
        from(address("192.0.3.1")),
        Err(CertificateError::SourceAddress)
    );
    assert_eq!(from(None), Err(CertificateError::SourceAddress));
}

#[test]
fn an_unknown_critical_option_is_refused() {
    let one = cert(data!("user-unknown-option-cert.pub"));
    assert_eq!(
        one.valid_for_user(b"alice", NOW, None),
        Err(CertificateError::CriticalOption(
            "shiny@example.com".to_owned()
        ))
    );
}

#[test]
fn hosts_are_matched_by_name_and_pattern() {
    for line in [
        data!("host-ed25519-cert.pub"),
        data!("host-rsa2048-cert.pub"),
    ] {
        let host = cert(line);
        assert_eq!(host.valid_for_host("files.example.com", NOW), Ok(()));
        assert_eq!(host.valid_for_host("FILES.example.COM", NOW), Ok(()));
        assert!(matches!(
            host.valid_for_host("other.example.com", NOW),
            Err(CertificateError::WrongPrincipal(_))
        ));
        assert_eq!(
            host.valid_for_host("files.example.com", UNTIL),
            Err(CertificateError::Expired(UNTIL))
        );
        assert_eq!(
            host.valid_for_user(b"files.example.com", NOW, None),
            Err(CertificateError::WrongKind(CertificateKind::Host))
        );
    }
    let host = cert(data!("host-ed25519-cert.pub"));
    assert_eq!(host.valid_for_host("n1.lab.example.com", NOW), Ok(()));
    assert!(host.valid_for_host("lab.example.com", NOW).is_err());
    assert_eq!(
        cert(data!("host-any-cert.pub")).valid_for_host("anything", NOW),
        Ok(())
    );
}

#[test]
fn a_certificate_with_any_byte_changed_or_cut_or_longer_is_refused() {
    let one = cert(data!("user-ed25519-cert.pub"));
    let blob = one.as_blob();
    for at in 0..blob.len() {
        let mut changed = blob.to_vec();
        changed[at] ^= 0x01;
        assert!(Certificate::from_blob(&changed).is_err(), "byte {at}");
        assert!(Certificate::from_blob(&blob[..at]).is_err());
    }
    let longer = [blob, &[0]].concat();
    assert_eq!(
        Certificate::from_blob(&longer),
        Err(CertificateError::Key(KeyError::TrailingBytes(WHAT)))
    );
    assert!(matches!(
        Certificate::from_blob(&[0; KEY_BLOB_BYTES_MAX + 1]),
        Err(CertificateError::Key(KeyError::TooLong(_)))
    ));
}

/// A certificate of our own making, for what ssh-keygen does not make.
struct Made {
    kind: u32,
    principals: usize,
    critical: Vec<(Vec<u8>, Vec<u8>)>,
    ca_blob: Option<Vec<u8>>,
}

impl Default for Made {
    fn default() -> Self {
        Self {
            kind: 1,
            principals: 1,
            critical: Vec::new(),
            ca_blob: None,
        }
    }
}

impl Made {
    fn read(&self) -> Result<Certificate, CertificateError> {
        let ca = PrivateKey::from_ed25519_seed(&[1; 32]).expect("a key");
        let mut blob = Vec::new();
        blob.put_string(b"ssh-ed25519-cert-v01@openssh.com");
        blob.put_string(&[0; 32]);
        ca.public_key().put_fields(&mut blob);
        blob.put_u64(0);
        blob.put_u32(self.kind);
        blob.put_string(b"id");
        let mut list = Vec::new();
        (0..self.principals).for_each(|_| list.put_string(b"p"));
        blob.put_string(&list);
        blob.put_u64(0);
        blob.put_u64(u64::MAX);
        let mut options = Vec::new();
        for (name, data) in &self.critical {
            options.put_string(name);
            options.put_string(data);
        }
        blob.put_string(&options);
        blob.put_string(b"");
        blob.put_string(b"");
        blob.put_string(
            &self
                .ca_blob
                .clone()
                .unwrap_or_else(|| ca.public_key().to_blob()),
        );
        let signature = ca.sign(Algorithm::Ed25519, &blob).expect("a signature");
        blob.put_string(&signature);
        Certificate::from_blob(&blob)
    }
}

#[test]
fn a_certificate_as_ca_is_refused() {
    let nested = cert(data!("user-ed25519-cert.pub")).as_blob().to_vec();
    let made = Made {
        ca_blob: Some(nested),
        ..Made::default()
    };
    assert_eq!(made.read(), Err(CertificateError::NestedCa));
}

#[test]
fn a_certificate_signed_by_another_key_is_refused() {
    let (other, _) = PublicKey::from_line(data!("ca.pub")).expect("a key");
    let made = Made {
        ca_blob: Some(other.to_blob()),
        ..Made::default()
    };
    assert_eq!(
        made.read(),
        Err(CertificateError::CaSignature(KeyError::BadSignature))
    );
}

#[test]
fn principals_and_options_are_taken_at_their_limits_and_refused_past_them() {
    let principals = |principals| {
        Made {
            principals,
            ..Made::default()
        }
        .read()
        .map(|_| ())
    };
    assert_eq!(principals(PRINCIPALS_MAX), Ok(()));
    assert_eq!(
        principals(PRINCIPALS_MAX + 1),
        Err(CertificateError::TooMany("principals"))
    );
    let options = |count: usize| {
        let critical = (0..count)
            .map(|n| (n.to_string().into_bytes(), vec![]))
            .collect();
        Made {
            critical,
            ..Made::default()
        }
        .read()
        .map(|_| ())
    };
    assert_eq!(options(OPTIONS_MAX), Ok(()));
    assert_eq!(
        options(OPTIONS_MAX + 1),
        Err(CertificateError::TooMany("options"))
    );
}

#[test]
fn kinds_and_options_that_make_no_sense_are_refused() {
    assert_eq!(
        Made {
            kind: 3,
            ..Made::default()
        }
        .read(),
        Err(CertificateError::UnknownKind(3))
    );
    let critical = |options: &[(&str, &[u8])]| {
        let critical = options
            .iter()
            .map(|(name, data)| (name.as_bytes().to_vec(), data.to_vec()))
            .collect();
        Made {
            critical,
            ..Made::default()
        }
        .read()
    };
    assert_eq!(
        critical(&[("verify-required", b""), ("verify-required", b"")]),
        Err(CertificateError::DuplicateOption(
            "verify-required".to_owned()
        ))
    );
    assert!(critical(&[("force-command", b"\0\0\0\x05ls")]).is_err());
    assert!(critical(&[("source-address", b"\0\0\0\x0410/8")]).is_err());
    let odd = critical(&[("verify-required", b"\0\0\0\0")]).expect("parses");
    assert!(matches!(
        odd.valid_for_user(b"p", NOW, None),
        Err(CertificateError::CriticalOption(_))
    ));
    // Hosts have no critical options at all.
    let host = Made {
        kind: 2,
        critical: vec![(b"verify-required".to_vec(), vec![])],
        ..Made::default()
    };
    assert!(matches!(
        host.read().expect("parses").valid_for_host("p", NOW),
        Err(CertificateError::CriticalOption(_))
    ));
}

#[test]
fn a_host_shows_its_key_or_its_certificate_by_the_algorithms_name() {
    use crate::config::HostKey;
    let key = || PrivateKey::from_file(data!("rsa2048"), None).expect("a key");
    let plain = HostIdentity::new(key(), None).expect("a host key");
    let blob = key().public_key().to_blob();
    assert_eq!(plain.blob("rsa-sha2-512"), Some(blob.clone()));
    assert_eq!(plain.blob("rsa-sha2-512-cert-v01@openssh.com"), None);
    for name in ["ssh-rsa", "ssh-ed25519", "ecdsa-sha2-nistp256"] {
        assert_eq!(plain.blob(name), None);
        assert_eq!(plain.sign(name, b"data"), None);
    }
    let certificate = cert(data!("host-rsa2048-cert.pub"));
    let both = HostIdentity::new(key(), Some(certificate.clone())).expect("a host key");
    assert_eq!(both.blob("rsa-sha2-256"), Some(blob));
    assert_eq!(
        both.blob("rsa-sha2-256-cert-v01@openssh.com").as_deref(),
        Some(certificate.as_blob())
    );
    let signature = both
        .sign("rsa-sha2-256-cert-v01@openssh.com", b"data")
        .expect("signs");
    assert_eq!(
        key()
            .public_key()
            .verify(Algorithm::RsaSha256, b"data", &signature),
        Ok(())
    );
}

#[test]
fn a_host_refuses_a_certificate_that_is_not_its_own() {
    let key = || PrivateKey::from_file(data!("rsa2048"), None).expect("a key");
    assert_eq!(
        HostIdentity::new(key(), Some(cert(data!("user-rsa2048-cert.pub")))).map(|_| ()),
        Err(CertificateError::WrongKind(CertificateKind::User))
    );
    assert_eq!(
        HostIdentity::new(key(), Some(cert(data!("host-ed25519-cert.pub")))).map(|_| ()),
        Err(CertificateError::Key(KeyError::Inconsistent))
    );
}
