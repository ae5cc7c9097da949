use super::*;
use crate::wire::Put;

macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!("../../testdata/auth/", $name)).as_slice()
    };
}

const MESSAGE: &[u8] = b"A message to be signed\n";
const PASSPHRASE: &[u8] = b"correct horse";

/// Name, key type, bits, `ssh-keygen -l`, private file, public line, `ssh-keygen -Y sign`.
struct Known {
    key_type: KeyType,
    bits: usize,
    fingerprint: &'static str,
    private: &'static [u8],
    public: &'static [u8],
    signature: &'static [u8],
}

const KNOWN: [Known; 5] = [
    Known {
        key_type: KeyType::Ed25519,
        bits: 256,
        fingerprint: "SHA256:s5DyrvWGaOQ0DjkDHZN1PioUtiYF54LO04odc875mSQ",
        private: data!("ed25519"),
        public: data!("ed25519.pub"),
        signature: data!("ed25519.sig"),
    },
    Known {
        key_type: KeyType::EcdsaP256,
        bits: 256,
        fingerprint: "SHA256:TBVSuf+ZZpRVxRel1U+6UmHrXKWkq9gduRat2XzTVX8",
        private: data!("ecdsa256"),
        public: data!("ecdsa256.pub"),
        signature: data!("ecdsa256.sig"),
    },
    Known {
        key_type: KeyType::EcdsaP384,
        bits: 384,
        fingerprint: "SHA256:DQRctjoxgK4BrmkaZQfwT18UzrADrssFKu8CNild5RI",
        private: data!("ecdsa384"),
        public: data!("ecdsa384.pub"),
        signature: data!("ecdsa384.sig"),
    },
    Known {
        key_type: KeyType::EcdsaP521,
        bits: 521,
        fingerprint: "SHA256:XvV3OZuLlalr2//1hyEFhx13chmtPbFiuMwjvVSxe6M",
        private: data!("ecdsa521"),
        public: data!("ecdsa521.pub"),
        signature: data!("ecdsa521.sig"),
    },
    Known {
        key_type: KeyType::Rsa,
        bits: 2048,
        fingerprint: "SHA256:SKnkt9qy1qAUt9qCXEqov3Dykvyc7zpu+NWe3ylsSw0",
        private: data!("rsa2048"),
        public: data!("rsa2048.pub"),
        signature: data!("rsa2048.sig"),
    },
];

fn open(file: &[u8]) -> PrivateKey {
    PrivateKey::from_file(file, None).expect("a private key file of ssh-keygen")
}

fn line(line: &[u8]) -> PublicKey {
    PublicKey::from_line(line)
        .expect("a public key line of ssh-keygen")
        .0
}

/// PROTOCOL.sshsig: the signature blob inside of the envelope, and what it signs.
fn open_sshsig(armoured: &[u8]) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let document = pem::Document::parse(armoured).expect("PEM");
    assert_eq!(document.label, "SSH SIGNATURE");
    let mut fields = Fields::new(&document.bytes, "SSHSIG");
    assert_eq!(fields.take(6), Ok(&b"SSHSIG"[..]));
    assert_eq!(fields.u32(), Ok(1));
    let public = fields.string().expect("public key").to_vec();
    let mut signed = b"SSHSIG".to_vec();
    signed.put_string(fields.string().expect("namespace"));
    signed.put_string(fields.string().expect("reserved"));
    let hash = fields.string().expect("hash name");
    assert_eq!(hash, b"sha512");
    signed.put_string(hash);
    signed.put_string(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA512, MESSAGE).as_ref());
    let signature = fields.string().expect("signature").to_vec();
    (public, signed, signature)
}

#[test]
fn lines_and_fingerprints_are_those_of_ssh_keygen() {
    for known in &KNOWN {
        let (key, comment) = PublicKey::from_line(known.public).expect("a line");
        assert_eq!(key.key_type(), known.key_type);
        assert_eq!(key.bits(), known.bits);
        assert_eq!(key.fingerprint().to_string(), known.fingerprint);
        let comment = core::str::from_utf8(comment).expect("text");
        assert!(comment.starts_with("test "));
        let again = key.to_line(comment);
        assert_eq!(again.as_bytes(), known.public.trim_ascii_end());
        assert_eq!(PublicKey::from_blob(&key.to_blob()), Ok(key));
    }
}

#[test]
fn private_files_open_and_belong_to_their_public_line() {
    for known in &KNOWN {
        assert_eq!(open(known.private).public_key(), &line(known.public));
        assert_eq!(
            PrivateKey::public_in_file(known.private),
            Ok(line(known.public))
        );
    }
}

#[test]
fn signatures_of_ssh_keygen_verify() {
    for known in &KNOWN {
        let (public, signed, signature) = open_sshsig(known.signature);
        let key = PublicKey::from_blob(&public).expect("a key");
        assert_eq!(key, line(known.public));
        let algorithm = named_algorithm(&signature).expect("an algorithm");
        assert_eq!(key.verify(algorithm, &signed, &signature), Ok(()));
        let mut other = signed.clone();
        other[10] ^= 1;
        assert_eq!(
            key.verify(algorithm, &other, &signature),
            Err(KeyError::BadSignature)
        );
    }
}

#[test]
fn deterministic_signatures_equal_those_of_ssh_keygen() {
    // Ed25519 and PKCS#1 have one signature for each message; ssh-keygen signs with rsa-sha2-512.
    for (file, armoured, algorithm) in [
        (data!("ed25519"), data!("ed25519.sig"), Algorithm::Ed25519),
        (data!("rsa2048"), data!("rsa2048.sig"), Algorithm::RsaSha512),
    ] {
        let (_, signed, signature) = open_sshsig(armoured);
        assert_eq!(open(file).sign(algorithm, &signed), Ok(signature));
    }
}

#[test]
fn own_signatures_verify_under_their_algorithm_only() {
    for known in &KNOWN {
        let key = open(known.private);
        for algorithm in Algorithm::ALL {
            if !known.key_type.algorithms().contains(&algorithm) {
                assert!(matches!(
                    key.sign(algorithm, MESSAGE),
                    Err(KeyError::WrongAlgorithm(_))
                ));
                continue;
            }
            let blob = key.sign(algorithm, MESSAGE).expect("a signature");
            for other in Algorithm::ALL {
                let verdict = key.public_key().verify(other, MESSAGE, &blob);
                if other == algorithm {
                    assert_eq!(verdict, Ok(()));
                } else {
                    assert!(matches!(verdict, Err(KeyError::WrongAlgorithm(_))));
                }
            }
        }
    }
}

#[test]
fn a_signature_with_any_byte_changed_or_cut_or_longer_is_refused() {
    for known in &KNOWN {
        let key = open(known.private);
        let algorithm = known.key_type.algorithms()[0];
        let blob = key.sign(algorithm, MESSAGE).expect("a signature");
        for at in 0..blob.len() {
            let mut changed = blob.clone();
            changed[at] ^= 0x01;
            assert!(
                key.public_key()
                    .verify(algorithm, MESSAGE, &changed)
                    .is_err(),
                "byte {at}"
            );
            assert!(
                key.public_key()
                    .verify(algorithm, MESSAGE, &blob[..at])
                    .is_err()
            );
        }
        let mut longer = blob.clone();
        longer.push(0);
        assert!(matches!(
            key.public_key().verify(algorithm, MESSAGE, &longer),
            Err(KeyError::TrailingBytes(_))
        ));
        assert_eq!(
            key.public_key()
                .verify(algorithm, MESSAGE, &[0; SIGNATURE_BYTES_MAX + 1]),
            Err(KeyError::TooLong("signature"))
        );
    }
}

#[test]
fn an_rsa_signature_without_its_leading_zeros_verifies() {
    let key = open(data!("rsa2048"));
    // One in 256 signatures begins with a zero byte: try until one does.
    let (data, body) = (0_u32..10_000)
        .map(|n| {
            let data = n.to_be_bytes();
            let blob = key.sign(Algorithm::RsaSha256, &data).expect("a signature");
            (data, blob[blob.len() - 256..].to_vec())
        })
        .find(|(_, body)| body[0] == 0)
        .expect("one in 256");
    let short = signature::blob(Algorithm::RsaSha256, &body[1..]);
    assert_eq!(
        key.public_key().verify(Algorithm::RsaSha256, &data, &short),
        Ok(())
    );
}

#[test]
fn security_keys_verify_and_say_what_the_device_said() {
    for (public, algorithm, signatures) in [
        (
            data!("sk-ed25519.pub"),
            Algorithm::SkEd25519,
            [
                data!("sk-ed25519.sig0"),
                data!("sk-ed25519.sig1"),
                data!("sk-ed25519.sig5"),
            ],
        ),
        (
            data!("sk-ecdsa.pub"),
            Algorithm::SkEcdsaP256,
            [
                data!("sk-ecdsa.sig0"),
                data!("sk-ecdsa.sig1"),
                data!("sk-ecdsa.sig5"),
            ],
        ),
    ] {
        let key = line(public);
        assert_eq!(key.application(), Some(&b"ssh:"[..]));
        let [untouched, touched, verified] = signatures.map(|s| {
            key.verify_any(algorithm, MESSAGE, s)
                .expect("right")
                .expect("sk")
        });
        assert_eq!(
            (untouched.user_present, untouched.user_verified),
            (false, false)
        );
        assert_eq!((touched.user_present, touched.user_verified), (true, false));
        assert_eq!(
            (verified.user_present, verified.user_verified),
            (true, true)
        );
        assert_eq!(touched.counter, 0x0102_0304);
        assert_eq!(
            key.verify(algorithm, MESSAGE, signatures[0]),
            Err(KeyError::TouchMissing)
        );
        assert_eq!(key.verify(algorithm, MESSAGE, signatures[1]), Ok(()));
        let strict = SkPolicy {
            verification_required: true,
            ..SkPolicy::default()
        };
        assert_eq!(
            strict.check(Some(touched)),
            Err(KeyError::UserVerificationMissing)
        );
        assert_eq!(strict.check(Some(verified)), Ok(()));
        // The flags are signed: they cannot be added afterwards.
        let mut forged = signatures[0].to_vec();
        let flags = forged.len() - 5;
        forged[flags] = 1;
        assert_eq!(
            key.verify(algorithm, MESSAGE, &forged),
            Err(KeyError::BadSignature)
        );
    }
}

#[test]
fn encrypted_files_open_with_their_passphrase_only() {
    let right = Secret::from(PASSPHRASE);
    let wrong = Secret::from(&b"wrong"[..]);
    for file in [
        data!("encrypted-aes256-ctr"),
        data!("encrypted-aes192-ctr"),
        data!("encrypted-aes128-ctr"),
        data!("encrypted-aes256-cbc"),
        data!("encrypted-aes128-gcm"),
        data!("encrypted-aes256-gcm"),
    ] {
        let key = PrivateKey::from_file(file, Some(&right)).expect("right passphrase");
        assert_eq!(
            PrivateKey::public_in_file(file),
            Ok(key.public_key().clone())
        );
        let refused = |passphrase| PrivateKey::from_file(file, passphrase).expect_err("refused");
        assert_eq!(refused(None), KeyError::PassphraseNeeded);
        assert_eq!(refused(Some(&wrong)), KeyError::WrongPassphrase);
        assert_eq!(refused(Some(&Secret::default())), KeyError::WrongPassphrase);
    }
    let rsa = PrivateKey::from_file(data!("encrypted-rsa3072"), Some(&right)).expect("opens");
    assert_eq!(rsa.public_key(), &line(data!("encrypted-rsa3072.pub")));
    // A passphrase that is not needed does no harm.
    assert!(PrivateKey::from_file(data!("ed25519"), Some(&wrong)).is_ok());
}

#[test]
fn a_cipher_that_is_not_there_is_named() {
    let right = Secret::from(PASSPHRASE);
    let refused = |file| PrivateKey::from_file(file, Some(&right)).expect_err("refused");
    assert_eq!(
        refused(data!("encrypted-chacha20-poly1305")),
        KeyError::UnknownCipher("chacha20-poly1305@openssh.com".to_owned())
    );
    assert_eq!(
        refused(data!("encrypted-3des-cbc")),
        KeyError::UnknownCipher("3des-cbc".to_owned())
    );
    assert_eq!(
        refused(data!("rsa2048-encrypted.pem")),
        KeyError::UnknownCipher("AES-128-CBC".to_owned())
    );
    assert_eq!(
        refused(data!("rsa2048-encrypted.pk8")),
        KeyError::UnknownFormat("ENCRYPTED PRIVATE KEY".to_owned())
    );
}

#[test]
fn pem_files_hold_the_same_keys() {
    for (file, public) in [
        (data!("rsa2048.pem"), data!("rsa2048.pub")),
        (data!("rsa2048.pk8"), data!("rsa2048.pub")),
        (data!("ecdsa256.pem"), data!("ecdsa256.pub")),
        (data!("ecdsa256.pk8"), data!("ecdsa256.pub")),
        (data!("ecdsa384.pem"), data!("ecdsa384.pub")),
        (data!("ecdsa384.pk8"), data!("ecdsa384.pub")),
        (data!("ecdsa521.pem"), data!("ecdsa521.pub")),
        (data!("ecdsa521.pk8"), data!("ecdsa521.pub")),
    ] {
        let key = open(file);
        assert_eq!(key.public_key(), &line(public));
        let algorithm = key.public_key().key_type().algorithms()[0];
        let blob = key.sign(algorithm, MESSAGE).expect("a signature");
        assert_eq!(key.public_key().verify(algorithm, MESSAGE, &blob), Ok(()));
    }
    assert_eq!(
        open(data!("ed25519-openssl.pk8")).public_key().key_type(),
        KeyType::Ed25519
    );
}

#[test]
fn weak_and_unknown_keys_are_refused_by_name() {
    let refused = |file| PrivateKey::from_file(file, None).expect_err("refused");
    assert_eq!(refused(data!("rsa1024")), KeyError::RsaBits(1024));
    assert!(matches!(
        refused(data!("rsa1024.pem")),
        KeyError::Unsupported(_)
    ));
    assert_eq!(
        PublicKey::from_line(data!("rsa1024.pub")),
        Err(KeyError::RsaBits(1024))
    );
    assert_eq!(
        PublicKey::from_line(data!("dsa.pub")),
        Err(KeyError::UnknownType("ssh-dss".to_owned()))
    );
    assert_eq!(refused(b"hello"), KeyError::UnknownFormat(String::new()));
    assert_eq!(
        refused(b"-----BEGIN X-----\nAAAA\n-----END X-----\n"),
        KeyError::UnknownFormat("X".to_owned())
    );
    assert!(matches!(
        refused(&vec![b'a'; KEY_FILE_BYTES_MAX + 1]),
        KeyError::TooLong(_)
    ));
}

fn rsa_blob(e: &[u8], bits: usize) -> Vec<u8> {
    let mut n = vec![0xff; bits.div_ceil(8)];
    if !bits.is_multiple_of(8) {
        n[0] = (1 << (bits % 8)) - 1;
    }
    let mut blob = Vec::new();
    blob.put_string(b"ssh-rsa");
    blob.put_mpint(e);
    blob.put_mpint(&n);
    blob
}

#[test]
fn an_rsa_modulus_is_taken_at_its_limits_and_refused_past_them() {
    let bits = |bits| PublicKey::from_blob(&rsa_blob(&[1, 0, 1], bits)).map(|key| key.bits());
    assert_eq!(bits(RSA_BITS_MIN - 1), Err(KeyError::RsaBits(2047)));
    assert_eq!(bits(RSA_BITS_MIN), Ok(2048));
    assert_eq!(bits(RSA_BITS_MAX), Ok(16384));
    assert_eq!(bits(RSA_BITS_MAX + 1), Err(KeyError::RsaBits(16385)));
    let big = PublicKey::from_blob(&rsa_blob(&[3], RSA_SIGN_BITS_MAX + 8)).expect("a key");
    let blob = signature::blob(Algorithm::RsaSha512, &[1; 1025]);
    assert!(matches!(
        big.verify(Algorithm::RsaSha512, b"", &blob),
        Err(KeyError::Unsupported(_))
    ));
}

#[test]
fn an_rsa_exponent_is_taken_at_its_limits_and_refused_past_them() {
    let exponent = |e: &[u8]| PublicKey::from_blob(&rsa_blob(e, 2048)).map(|_| ());
    assert_eq!(exponent(&[3]), Ok(()));
    assert_eq!(exponent(&[1, 0, 0, 0, 1]), Ok(()));
    assert_eq!(exponent(&[2, 0, 0, 0, 1]), Err(KeyError::RsaExponent));
    assert_eq!(exponent(&[1]), Err(KeyError::RsaExponent));
    assert_eq!(exponent(&[4]), Err(KeyError::RsaExponent));
    assert_eq!(exponent(&[]), Err(KeyError::Malformed("public key")));
}

#[test]
fn public_blobs_cut_anywhere_or_longer_are_refused() {
    for known in &KNOWN {
        let blob = line(known.public).to_blob();
        for len in 0..blob.len() {
            assert!(PublicKey::from_blob(&blob[..len]).is_err(), "{len} bytes");
        }
        let mut longer = blob;
        longer.push(0);
        assert_eq!(
            PublicKey::from_blob(&longer),
            Err(KeyError::TrailingBytes("public key"))
        );
    }
    assert!(matches!(
        PublicKey::from_blob(&[0; KEY_BLOB_BYTES_MAX + 1]),
        Err(KeyError::TooLong(_))
    ));
}

#[test]
fn points_off_the_curve_or_compressed_or_of_another_curve_are_refused() {
    let blob = line(data!("ecdsa256.pub")).to_blob();
    let mut off = blob.clone();
    *off.last_mut().expect("not empty") ^= 1;
    assert_eq!(PublicKey::from_blob(&off), Err(KeyError::InvalidPoint));
    let mut compressed = Vec::new();
    compressed.put_string(b"ecdsa-sha2-nistp256");
    compressed.put_string(b"nistp256");
    let mut point = blob[blob.len() - 64..][..32].to_vec();
    point.insert(0, 2);
    compressed.put_string(&point);
    assert_eq!(
        PublicKey::from_blob(&compressed),
        Err(KeyError::InvalidPoint)
    );
    let mut other = Vec::new();
    other.put_string(b"ecdsa-sha2-nistp384");
    other.put_string(b"nistp256");
    other.put_string(&blob[blob.len() - 65..]);
    assert_eq!(
        PublicKey::from_blob(&other),
        Err(KeyError::Malformed("curve name"))
    );
}

#[test]
fn a_line_whose_name_is_not_its_blobs_is_refused() {
    let renamed = [
        b"ssh-rsa".as_slice(),
        &KNOWN[0].public[b"ssh-ed25519".len()..],
    ]
    .concat();
    assert_eq!(
        PublicKey::from_line(&renamed),
        Err(KeyError::Malformed("public key line"))
    );
    for line in [
        &b""[..],
        b"ssh-ed25519",
        b"ssh-ed25519 !!!!",
        b"ssh-ed25519 AAAA",
    ] {
        assert!(PublicKey::from_line(line).is_err());
    }
}

#[test]
fn openssh_files_with_any_byte_changed_never_give_another_key() {
    let document = pem::Document::parse(data!("ed25519")).expect("PEM");
    let right = line(data!("ed25519.pub"));
    for at in 0..document.bytes.len() {
        for bit in [0x01, 0x80] {
            let mut changed = document.bytes.clone();
            changed[at] ^= bit;
            // Only the comment may change.
            if let Ok(key) = openssh::decode(&changed, None) {
                assert_eq!(key.public_key(), &right, "byte {at}");
            }
        }
        assert!(openssh::decode(&document.bytes[..at], None).is_err());
    }
}

#[test]
fn key_derivation_rounds_are_bounded() {
    let file = pem::Document::parse(data!("encrypted-aes256-ctr")).expect("PEM");
    let with_rounds = |rounds: u32| {
        // The options are a salt of 16 bytes and the rounds: 4 + 4 + 16 bytes behind "bcrypt".
        let at = file
            .bytes
            .windows(6)
            .position(|w| w == b"bcrypt")
            .expect("the name")
            + 6
            + 24;
        let mut bytes = file.bytes.clone();
        bytes[at..at + 4].copy_from_slice(&rounds.to_be_bytes());
        openssh::decode(&bytes, Some(&Secret::from(PASSPHRASE))).map(|_| ())
    };
    assert_eq!(with_rounds(1), Ok(()));
    assert_eq!(with_rounds(0), Err(KeyError::KdfRounds(0)));
    assert_eq!(
        with_rounds(KDF_ROUNDS_MAX + 1),
        Err(KeyError::KdfRounds(KDF_ROUNDS_MAX + 1))
    );
    assert_eq!(with_rounds(u32::MAX), Err(KeyError::KdfRounds(u32::MAX)));
}

#[test]
fn a_made_key_is_written_as_openssh_does_and_read_back() {
    let key = PrivateKey::from_ed25519_seed(&[7; 32]).expect("a key");
    let file = key.to_openssh("made here").expect("a file");
    let again = open(file.expose());
    assert_eq!(again.public_key(), key.public_key());
    let blob = again
        .sign(Algorithm::Ed25519, MESSAGE)
        .expect("a signature");
    assert_eq!(
        key.public_key().verify(Algorithm::Ed25519, MESSAGE, &blob),
        Ok(())
    );
    assert!(matches!(
        open(data!("rsa2048")).to_openssh(""),
        Err(KeyError::Unsupported(_))
    ));
}

#[test]
fn an_openssh_file_is_reproduced_but_for_its_check_numbers() {
    let written = open(data!("ed25519"))
        .to_openssh("test ed25519")
        .expect("a file");
    let ours = pem::Document::parse(written.expose()).expect("PEM").bytes;
    let theirs = pem::Document::parse(data!("ed25519")).expect("PEM").bytes;
    let differing = ours
        .iter()
        .zip(theirs.iter())
        .filter(|(a, b)| a != b)
        .count();
    assert_eq!(ours.len(), theirs.len());
    assert!(differing <= 8, "{differing} bytes differ");
}

#[test]
fn secrets_are_not_shown() {
    let seed = [0xab; 32];
    let key = PrivateKey::from_ed25519_seed(&seed).expect("a key");
    let shown = format!("{key:?} {:?}", Secret::from(&b"hunter2"[..]));
    assert_eq!(
        shown,
        format!("PrivateKey(of {:?}) Secret(..)", key.public_key())
    );
    for known in &KNOWN {
        let shown = format!("{:?}", open(known.private));
        assert_eq!(shown, format!("PrivateKey(of {:?})", line(known.public)));
    }
}

#[test]
fn names_lead_back_to_their_algorithm() {
    for algorithm in Algorithm::ALL {
        assert_eq!(
            Algorithm::from_name(algorithm.name().as_bytes()),
            Some(algorithm)
        );
        let name = algorithm.certificate_name().as_bytes();
        assert_eq!(Algorithm::from_certificate_name(name), Some(algorithm));
        assert_eq!(Algorithm::from_name(name), None);
        assert!(algorithm.key_type().algorithms().contains(&algorithm));
    }
    for key_type in KeyType::ALL {
        assert_eq!(
            KeyType::from_name(key_type.name().as_bytes()),
            Some(key_type)
        );
        let name = key_type.certificate_name().as_bytes();
        assert_eq!(KeyType::from_certificate_name(name), Some(key_type));
    }
    // SHA-1.
    assert_eq!(Algorithm::from_name(b"ssh-rsa"), None);
    assert_eq!(
        Algorithm::from_certificate_name(b"ssh-rsa-cert-v01@openssh.com"),
        None
    );
}
