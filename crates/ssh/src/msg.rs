//! Message numbers, their names and the phase each belongs to; reason codes.
//!
//! Read first: RFC 4250 section 4.1 (numbers), RFC 4253 section 11 (reason codes).

macro_rules! messages {
    ($($(#[$doc:meta])* $number:literal $name:ident $phase:ident;)*) => {
        $($(#[$doc])* pub const $name: u8 = $number;)*

        /// Every message that the engine knows, by number.
        pub const MESSAGES: &[Message] = &[
            $(Message { number: $number, name: stringify!($name), phase: Phase::$phase },)*
        ];
    };
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The first byte of its payload.
    pub number: u8,
    /// The RFC's spelling.
    pub name: &'static str,
    /// When it is allowed.
    pub phase: Phase,
}

/// The part of the protocol that a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// At any time (under strict key exchange: not before the first NEWKEYS).
    Any,
    /// Outside key exchanges, once encrypted.
    Service,
    /// Starts or ends a key exchange.
    Negotiation,
    /// Within a key exchange; the meaning of 30-49 depends on its method.
    Kex,
    /// Between service acceptance and authentication's success.
    Auth,
    /// After authentication's success.
    Connection,
}

messages! {
    /// RFC 4253 11.1.
    1 SSH_MSG_DISCONNECT Any;
    /// RFC 4253 11.2.
    2 SSH_MSG_IGNORE Any;
    /// RFC 4253 11.4.
    3 SSH_MSG_UNIMPLEMENTED Any;
    /// RFC 4253 11.3.
    4 SSH_MSG_DEBUG Any;
    /// RFC 4253 10.
    5 SSH_MSG_SERVICE_REQUEST Service;
    /// RFC 4253 10.
    6 SSH_MSG_SERVICE_ACCEPT Service;
    /// RFC 8308 2.3.
    7 SSH_MSG_EXT_INFO Service;
    /// RFC 4253 7.1.
    20 SSH_MSG_KEXINIT Negotiation;
    /// RFC 4253 7.3.
    21 SSH_MSG_NEWKEYS Negotiation;
    /// RFC 4253 8, RFC 5656 4 (as SSH_MSG_KEX_ECDH_INIT), RFC 8731.
    30 SSH_MSG_KEXDH_INIT Kex;
    /// RFC 4253 8, RFC 5656 4; RFC 4419 5 (as SSH_MSG_KEX_DH_GEX_GROUP).
    31 SSH_MSG_KEXDH_REPLY Kex;
    /// RFC 4419 5.
    32 SSH_MSG_KEX_DH_GEX_INIT Kex;
    /// RFC 4419 5.
    33 SSH_MSG_KEX_DH_GEX_REPLY Kex;
    /// RFC 4419 5.
    34 SSH_MSG_KEX_DH_GEX_REQUEST Kex;
    /// RFC 4252 5.
    50 SSH_MSG_USERAUTH_REQUEST Auth;
    /// RFC 4252 5.1.
    51 SSH_MSG_USERAUTH_FAILURE Auth;
    /// RFC 4252 5.1.
    52 SSH_MSG_USERAUTH_SUCCESS Auth;
    /// RFC 4252 5.4.
    53 SSH_MSG_USERAUTH_BANNER Auth;
    /// RFC 4252 7 (PK_OK), 8 (PASSWD_CHANGEREQ), RFC 4256 3.2 (INFO_REQUEST): by method.
    60 SSH_MSG_USERAUTH_PK_OK Auth;
    /// RFC 4256 3.4.
    61 SSH_MSG_USERAUTH_INFO_RESPONSE Auth;
    /// RFC 4254 4.
    80 SSH_MSG_GLOBAL_REQUEST Connection;
    /// RFC 4254 4.
    81 SSH_MSG_REQUEST_SUCCESS Connection;
    /// RFC 4254 4.
    82 SSH_MSG_REQUEST_FAILURE Connection;
    /// RFC 4254 5.1.
    90 SSH_MSG_CHANNEL_OPEN Connection;
    /// RFC 4254 5.1.
    91 SSH_MSG_CHANNEL_OPEN_CONFIRMATION Connection;
    /// RFC 4254 5.1.
    92 SSH_MSG_CHANNEL_OPEN_FAILURE Connection;
    /// RFC 4254 5.2.
    93 SSH_MSG_CHANNEL_WINDOW_ADJUST Connection;
    /// RFC 4254 5.2.
    94 SSH_MSG_CHANNEL_DATA Connection;
    /// RFC 4254 5.2.
    95 SSH_MSG_CHANNEL_EXTENDED_DATA Connection;
    /// RFC 4254 5.3.
    96 SSH_MSG_CHANNEL_EOF Connection;
    /// RFC 4254 5.3.
    97 SSH_MSG_CHANNEL_CLOSE Connection;
    /// RFC 4254 5.4.
    98 SSH_MSG_CHANNEL_REQUEST Connection;
    /// RFC 4254 5.4.
    99 SSH_MSG_CHANNEL_SUCCESS Connection;
    /// RFC 4254 5.4.
    100 SSH_MSG_CHANNEL_FAILURE Connection;
    /// OpenSSH PROTOCOL 1.9 (ping@openssh.com).
    192 SSH2_MSG_PING Connection;
    /// OpenSSH PROTOCOL 1.9 (ping@openssh.com).
    193 SSH2_MSG_PONG Connection;
}

/// The highest number of the transport layer: nothing above it is sent during a key exchange.
pub const TRANSPORT_MESSAGE_MAX: u8 = 49;

/// The row of `number`, if the engine knows it.
#[must_use]
pub fn lookup(number: u8) -> Option<&'static Message> {
    MESSAGES.iter().find(|message| message.number == number)
}

/// The name of `number` for a person.
#[must_use]
pub fn name(number: u8) -> String {
    lookup(number).map_or_else(
        || format!("message {number}"),
        |message| message.name.to_owned(),
    )
}

/// RFC 4250 4.2.2: why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DisconnectReason {
    /// SSH_DISCONNECT_HOST_NOT_ALLOWED_TO_CONNECT.
    HostNotAllowedToConnect = 1,
    /// SSH_DISCONNECT_PROTOCOL_ERROR.
    ProtocolError = 2,
    /// SSH_DISCONNECT_KEY_EXCHANGE_FAILED.
    KeyExchangeFailed = 3,
    /// SSH_DISCONNECT_MAC_ERROR.
    MacError = 5,
    /// SSH_DISCONNECT_COMPRESSION_ERROR.
    CompressionError = 6,
    /// SSH_DISCONNECT_SERVICE_NOT_AVAILABLE.
    ServiceNotAvailable = 7,
    /// SSH_DISCONNECT_PROTOCOL_VERSION_NOT_SUPPORTED.
    ProtocolVersionNotSupported = 8,
    /// SSH_DISCONNECT_HOST_KEY_NOT_VERIFIABLE.
    HostKeyNotVerifiable = 9,
    /// SSH_DISCONNECT_CONNECTION_LOST.
    ConnectionLost = 10,
    /// SSH_DISCONNECT_BY_APPLICATION.
    ByApplication = 11,
    /// SSH_DISCONNECT_TOO_MANY_CONNECTIONS.
    TooManyConnections = 12,
    /// SSH_DISCONNECT_AUTH_CANCELLED_BY_USER.
    AuthCancelledByUser = 13,
    /// SSH_DISCONNECT_NO_MORE_AUTH_METHODS_AVAILABLE.
    NoMoreAuthMethodsAvailable = 14,
    /// SSH_DISCONNECT_ILLEGAL_USER_NAME.
    IllegalUserName = 15,
}

impl DisconnectReason {
    /// The wire code.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lie_in_the_range_of_their_phase() {
        // RFC 4250 4.1.1: 1-19 generic, 20-29 negotiation, 30-49 method, 50-79 auth, 80-127
        // connection, 192-255 local extensions.
        for message in MESSAGES {
            let range = match message.phase {
                Phase::Any | Phase::Service => 1..=19,
                Phase::Negotiation => 20..=29,
                Phase::Kex => 30..=TRANSPORT_MESSAGE_MAX,
                Phase::Auth => 50..=79,
                Phase::Connection if message.number >= 128 => 192..=255,
                Phase::Connection => 80..=127,
            };
            assert!(range.contains(&message.number), "{}", message.name);
        }
    }

    #[test]
    fn each_number_has_one_row() {
        assert!(
            MESSAGES
                .windows(2)
                .all(|pair| pair[0].number < pair[1].number)
        );
        assert_eq!(name(94), "SSH_MSG_CHANNEL_DATA");
        assert_eq!(name(8), "message 8");
    }
}
