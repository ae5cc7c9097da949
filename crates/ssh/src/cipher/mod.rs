//! Ciphers and MACs by name, with the sizes that packets and key derivation need. What they do
//! with bytes is the provider's.
//!
//! Read first: RFC 4344 (CTR), RFC 5647 and OpenSSH PROTOCOL 1.6 (GCM), OpenSSH
//! PROTOCOL.chacha20poly1305, RFC 6668 (SHA-2 MACs), OpenSSH PROTOCOL 1.5 (encrypt-then-MAC).

/// A cipher that can be negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// `aes128-gcm@openssh.com`.
    Aes128Gcm,
    /// `aes256-gcm@openssh.com`.
    Aes256Gcm,
    /// `chacha20-poly1305@openssh.com`.
    Chacha20Poly1305,
    /// `aes128-ctr`.
    Aes128Ctr,
    /// `aes192-ctr`.
    Aes192Ctr,
    /// `aes256-ctr`.
    Aes256Ctr,
}

impl Cipher {
    /// Every cipher, in the order that is offered by default: AES-GCM costs least where the CPU
    /// has AES, which is nearly everywhere; the driver may put chacha20 first elsewhere.
    pub const ALL: &[Self] = &[
        Self::Aes128Gcm,
        Self::Aes256Gcm,
        Self::Chacha20Poly1305,
        Self::Aes128Ctr,
        Self::Aes192Ctr,
        Self::Aes256Ctr,
    ];

    /// Its name in KEXINIT.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes128-gcm@openssh.com",
            Self::Aes256Gcm => "aes256-gcm@openssh.com",
            Self::Chacha20Poly1305 => "chacha20-poly1305@openssh.com",
            Self::Aes128Ctr => "aes128-ctr",
            Self::Aes192Ctr => "aes192-ctr",
            Self::Aes256Ctr => "aes256-ctr",
        }
    }

    /// The cipher of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.name() == name)
    }

    /// Bytes of key material.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::Aes128Ctr => 16,
            Self::Aes192Ctr => 24,
            Self::Aes256Gcm | Self::Aes256Ctr => 32,
            Self::Chacha20Poly1305 => 64,
        }
    }

    /// Bytes of initial counter or nonce derived from the exchange.
    #[must_use]
    pub const fn iv_len(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => 12,
            Self::Chacha20Poly1305 => 0,
            Self::Aes128Ctr | Self::Aes192Ctr | Self::Aes256Ctr => 16,
        }
    }

    /// What packets are padded to a multiple of.
    #[must_use]
    pub const fn block_len(self) -> usize {
        match self {
            Self::Chacha20Poly1305 => 8,
            Self::Aes128Gcm
            | Self::Aes256Gcm
            | Self::Aes128Ctr
            | Self::Aes192Ctr
            | Self::Aes256Ctr => 16,
        }
    }

    /// Whether it authenticates packets itself, so that no MAC is negotiated.
    #[must_use]
    pub const fn is_aead(self) -> bool {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm | Self::Chacha20Poly1305 => true,
            Self::Aes128Ctr | Self::Aes192Ctr | Self::Aes256Ctr => false,
        }
    }
}

/// A MAC that can be negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mac {
    /// `hmac-sha2-256-etm@openssh.com`.
    HmacSha256Etm,
    /// `hmac-sha2-512-etm@openssh.com`.
    HmacSha512Etm,
    /// `hmac-sha2-256`.
    HmacSha256,
    /// `hmac-sha2-512`.
    HmacSha512,
}

impl Mac {
    /// Every MAC, in the order that is offered by default.
    pub const ALL: &[Self] = &[
        Self::HmacSha256Etm,
        Self::HmacSha512Etm,
        Self::HmacSha256,
        Self::HmacSha512,
    ];

    /// Its name in KEXINIT.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HmacSha256Etm => "hmac-sha2-256-etm@openssh.com",
            Self::HmacSha512Etm => "hmac-sha2-512-etm@openssh.com",
            Self::HmacSha256 => "hmac-sha2-256",
            Self::HmacSha512 => "hmac-sha2-512",
        }
    }

    /// The MAC of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|m| m.name() == name)
    }

    /// Bytes of key, and of tag.
    #[must_use]
    pub const fn tag_len(self) -> usize {
        match self {
            Self::HmacSha256Etm | Self::HmacSha256 => 32,
            Self::HmacSha512Etm | Self::HmacSha512 => 64,
        }
    }

    /// Whether the tag covers the ciphertext and the length goes in the clear.
    #[must_use]
    pub const fn is_etm(self) -> bool {
        match self {
            Self::HmacSha256Etm | Self::HmacSha512Etm => true,
            Self::HmacSha256 | Self::HmacSha512 => false,
        }
    }
}

/// How packets of one direction are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suite {
    /// The cipher.
    pub cipher: Cipher,
    /// The MAC; `None` exactly when the cipher is an AEAD.
    pub mac: Option<Mac>,
}

/// What packet layout depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Padding makes the padded part a multiple of this.
    pub block_len: usize,
    /// Bytes of tag behind the packet.
    pub tag_len: usize,
    /// Whether the length word counts as part of what is padded (it is encrypted with the rest).
    pub len_is_padded: bool,
}

impl Layout {
    /// Before the first NEWKEYS. RFC 4253 6: multiples of 8 even without a cipher.
    pub const PLAIN: Self = Self {
        block_len: 8,
        tag_len: 0,
        len_is_padded: true,
    };
}

impl Suite {
    /// How it lays packets out.
    #[must_use]
    pub const fn layout(self) -> Layout {
        let (tag_len, len_is_padded) = match self.mac {
            None => (16, false),
            Some(mac) => (mac.tag_len(), !mac.is_etm()),
        };
        Layout {
            block_len: self.cipher.block_len(),
            tag_len,
            len_is_padded,
        }
    }
}
