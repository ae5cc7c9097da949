//! Replies, server to client.

use super::extension::Extensions;
use super::{Attrs, Code, LEN_WORD, Packet, fxp};
use crate::wire::{Count, InvalidMessage, Put, Reader, len_u32};

/// The answer to INIT, which carries no request id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version<'a> {
    /// The version that the server speaks.
    pub version: u32,
    /// What it offers beyond.
    pub extensions: Extensions<'a>,
}

impl<'a> Version<'a> {
    /// Parses a VERSION packet.
    ///
    /// # Errors
    /// When it is of another type or cut.
    pub fn parse(packet: Packet<'a>) -> Result<Self, InvalidMessage> {
        if packet.kind != fxp::SSH_FXP_VERSION {
            return Err(InvalidMessage::UnknownReply(packet.kind));
        }
        let mut reader = Reader::new(packet.body);
        Ok(Self {
            version: reader.u32("version")?,
            extensions: Extensions::parse(reader.rest())?,
        })
    }
}

/// One entry of a NAME reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// File name, or path in answers to REALPATH and READLINK.
    pub filename: &'a [u8],
    /// A line as `ls -l` prints it.
    pub longname: &'a [u8],
    /// Attributes of the file.
    pub attrs: Attrs,
}

impl<'a> Name<'a> {
    /// Bytes of the encoding.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let mut count = Count::default();
        self.encode(&mut count);
        count.0
    }

    /// Appends the encoding.
    pub fn encode(&self, sink: &mut impl Put) {
        sink.put_string(self.filename);
        sink.put_string(self.longname);
        self.attrs.encode(sink);
    }

    fn parse(reader: &mut Reader<'a>) -> Result<Self, InvalidMessage> {
        Ok(Self {
            filename: reader.string("file name")?,
            longname: reader.string("long name")?,
            attrs: Attrs::parse(reader)?,
        })
    }
}

/// The entries of a NAME reply, checked to be all there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameList<'a> {
    count: u32,
    entries: &'a [u8],
}

impl<'a> NameList<'a> {
    /// `count` encoded entries.
    ///
    /// # Errors
    /// When `entries` holds fewer. A false count ends at the end of the bytes.
    pub fn new(count: u32, entries: &'a [u8]) -> Result<Self, InvalidMessage> {
        let mut reader = Reader::new(entries);
        for _ in 0..count {
            Name::parse(&mut reader)?;
        }
        Ok(Self { count, entries })
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = Name<'a>> + use<'a> {
        let mut reader = Reader::new(self.entries);
        (0..self.count).map_while(move |_| Name::parse(&mut reader).ok())
    }
}

/// A reply; all bytes are borrowed from the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// SSH_FXP_STATUS. Message and language tag are empty where the server sends none.
    Status {
        /// The outcome.
        code: Code,
        /// Its reason, for people.
        message: &'a [u8],
    },
    /// SSH_FXP_HANDLE
    Handle(&'a [u8]),
    /// SSH_FXP_DATA
    Data(&'a [u8]),
    /// SSH_FXP_NAME
    Name(NameList<'a>),
    /// SSH_FXP_ATTRS
    Attrs(Attrs),
    /// SSH_FXP_EXTENDED_REPLY: its payload, to be parsed by the type of the request.
    Extended(&'a [u8]),
}

impl<'a> Reply<'a> {
    /// Parses any reply but VERSION into the id of its request and itself.
    ///
    /// # Errors
    /// When a field is cut or the type is not a reply's.
    pub fn parse(packet: Packet<'a>) -> Result<(u32, Self), InvalidMessage> {
        let reader = &mut Reader::new(packet.body);
        let id = reader.u32("request id")?;
        let reply = match packet.kind {
            fxp::SSH_FXP_STATUS => Self::Status {
                code: Code::from_u32(reader.u32("status code")?),
                // Servers of versions below 3, and some of 3, send no message.
                message: if reader.is_empty() {
                    &[]
                } else {
                    reader.string("status message")?
                },
            },
            fxp::SSH_FXP_HANDLE => Self::Handle(reader.string("handle")?),
            fxp::SSH_FXP_DATA => Self::Data(reader.string("data")?),
            fxp::SSH_FXP_NAME => {
                Self::Name(NameList::new(reader.u32("name count")?, reader.rest())?)
            }
            fxp::SSH_FXP_ATTRS => Self::Attrs(Attrs::parse(reader)?),
            fxp::SSH_FXP_EXTENDED_REPLY => Self::Extended(reader.rest()),
            other => return Err(InvalidMessage::UnknownReply(other)),
        };
        Ok((id, reply))
    }

    /// Bytes of the whole packet, its length word included.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let mut count = Count::default();
        self.encode_fields(&mut count);
        LEN_WORD + 1 + 4 + count.0
    }

    /// Appends the whole packet, its length word included.
    pub fn encode(&self, id: u32, sink: &mut impl Put) {
        sink.put_u32(len_u32(self.encoded_len() - LEN_WORD));
        sink.put_raw(&[self.packet_type()]);
        sink.put_u32(id);
        self.encode_fields(sink);
    }

    const fn packet_type(&self) -> u8 {
        match self {
            Self::Status { .. } => fxp::SSH_FXP_STATUS,
            Self::Handle(_) => fxp::SSH_FXP_HANDLE,
            Self::Data(_) => fxp::SSH_FXP_DATA,
            Self::Name(_) => fxp::SSH_FXP_NAME,
            Self::Attrs(_) => fxp::SSH_FXP_ATTRS,
            Self::Extended(_) => fxp::SSH_FXP_EXTENDED_REPLY,
        }
    }

    fn encode_fields(&self, sink: &mut impl Put) {
        match self {
            Self::Status { code, message } => {
                sink.put_u32(code.to_u32());
                sink.put_string(message);
                sink.put_string(b"");
            }
            Self::Handle(bytes) | Self::Data(bytes) => sink.put_string(bytes),
            Self::Name(names) => {
                sink.put_u32(names.count);
                sink.put_raw(names.entries);
            }
            Self::Attrs(attrs) => attrs.encode(sink),
            Self::Extended(payload) => sink.put_raw(payload),
        }
    }
}
