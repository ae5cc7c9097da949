//! Both directions of the codec, against each other and against hand-laid bytes.

use super::*;
use crate::InvalidMessage;
use crate::wire::Put;

const ATTRS: Attrs = Attrs {
    size: Some(1 << 40),
    uid_gid: Some((1, 2)),
    permissions: Some(0o100_644),
    times: Some((3, 4)),
};

const CHECK: CheckFile<'_> = CheckFile {
    algorithms: b"sha256,blake3",
    offset: 5,
    len: 6,
    block_bytes: 256,
};

/// One request of each shape.
pub(crate) fn every_request() -> Vec<Request<'static>> {
    let ids = Ids::from_packed(&[0, 0, 0, 1, 0, 0, 0, 2]).expect("whole ids");
    let (handle, path): (&[u8], &[u8]) = (b"\0\0\0\x01", b"a/\xff\xfe\n");
    let (from, to, attrs) = (path, &b"to"[..], ATTRS);
    vec![
        Request::Open {
            path,
            flags: OpenFlags::READ.with(OpenFlags::CREAT),
            attrs,
        },
        Request::Close { handle },
        Request::Read {
            handle,
            offset: u64::MAX,
            len: u32::MAX,
        },
        Request::Write {
            handle,
            offset: 9,
            data: b"data",
        },
        Request::Lstat { path },
        Request::Fstat { handle },
        Request::Setstat { path, attrs },
        Request::Fsetstat { handle, attrs },
        Request::Opendir { path },
        Request::Readdir { handle },
        Request::Remove { path },
        Request::Mkdir { path, attrs },
        Request::Rmdir { path },
        Request::Realpath { path },
        Request::Stat { path },
        Request::Rename { from, to },
        Request::Readlink { path },
        Request::Symlink {
            target: from,
            link: to,
        },
        Request::PosixRename { from, to },
        Request::Statvfs { path },
        Request::Fstatvfs { handle },
        Request::Hardlink { from, to },
        Request::Fsync { handle },
        Request::Lsetstat { path, attrs },
        Request::Limits,
        Request::ExpandPath { path },
        Request::CopyData {
            from: handle,
            from_offset: 1,
            len: 2,
            to: b"\0\0\0\x02",
            to_offset: 3,
        },
        Request::HomeDirectory { user: b"u" },
        Request::UsersGroupsById {
            uids: ids,
            gids: ids,
        },
        Request::CheckFileName { path, check: CHECK },
        Request::CheckFileHandle {
            handle,
            check: CHECK,
            echo: false,
        },
        Request::CheckFileHandle {
            handle,
            check: CHECK,
            echo: true,
        },
        Request::UnknownExtended { name: b"x@y" },
        Request::Unknown { packet_type: 99 },
    ]
}

fn encoded(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(7, &mut bytes);
    bytes
}

fn whole(bytes: &[u8]) -> Packet<'_> {
    next_packet(bytes, PACKET_BYTES_MAX)
        .expect("within the limit")
        .expect("all there")
}

#[test]
fn every_request_survives_the_wire() {
    for request in every_request() {
        let bytes = encoded(&request);
        assert_eq!(bytes.len(), request.encoded_len(), "{request:?}");
        let packet = whole(&bytes);
        assert_eq!(packet.total_len, bytes.len());
        assert_eq!(Request::parse(packet), Ok((7, request)));
    }
}

#[test]
fn every_request_cut_anywhere_is_refused_and_more_bytes_are_ignored() {
    for request in every_request() {
        let bytes = encoded(&request);
        let packet = whole(&bytes);
        let needed = match request {
            // Whatever follows what names an unknown request is its own affair.
            Request::Unknown { .. } => 4,
            _ => packet.body.len(),
        };
        for len in 0..needed {
            let cut = Packet {
                body: &packet.body[..len],
                ..packet
            };
            assert!(Request::parse(cut).is_err(), "{request:?} cut to {len}");
        }
        let mut longer = packet.body.to_vec();
        longer.extend_from_slice(b"trailing");
        let longer = Packet {
            body: &longer,
            ..packet
        };
        assert_eq!(Request::parse(longer), Ok((7, request)));
    }
}

#[test]
fn the_wire_is_laid_out_as_the_draft_says() {
    let open = encoded(&Request::Open {
        path: b"ab",
        flags: OpenFlags::WRITE.with(OpenFlags::CREAT),
        attrs: Attrs {
            permissions: Some(0o644),
            ..Attrs::EMPTY
        },
    });
    let expected = b"\0\0\0\x17\x03\0\0\0\x07\0\0\0\x02ab\0\0\0\x0a\0\0\0\x04\0\0\x01\xa4";
    assert_eq!(open, expected);
    let rename = encoded(&Request::PosixRename {
        from: b"a",
        to: b"b",
    });
    assert_eq!(
        rename,
        b"\0\0\0\x2b\xc8\0\0\0\x07\0\0\0\x18posix-rename@openssh.com\0\0\0\x01a\0\0\0\x01b"
    );
    // OpenSSH's order: the target comes first.
    let link = encoded(&Request::Symlink {
        target: b"t",
        link: b"l",
    });
    assert_eq!(link, b"\0\0\0\x0f\x14\0\0\0\x07\0\0\0\x01t\0\0\0\x01l");
}

#[test]
fn the_drafts_symlink_order_is_the_other_one() {
    let request = Request::Symlink {
        target: b"t",
        link: b"l",
    };
    let swapped = request.in_order(SymlinkOrder::Draft);
    assert_eq!(
        swapped,
        Request::Symlink {
            target: b"l",
            link: b"t"
        }
    );
    assert_eq!(swapped.in_order(SymlinkOrder::Draft), request);
    assert_eq!(request.in_order(SymlinkOrder::OpenSsh), request);
}

#[test]
fn packets_are_whole_or_not_there_or_refused() {
    assert_eq!(next_packet(b"\0\0\0", 10), Ok(None));
    assert_eq!(next_packet(b"\0\0\0\x02x", 10), Ok(None));
    assert!(matches!(
        next_packet(b"\0\0\0\x0a0123456789", 10),
        Ok(Some(_))
    ));
    assert_eq!(
        next_packet(b"\0\0\0\x0b", 10),
        Err(InvalidMessage::TooLong {
            len: 11,
            len_max: 10
        })
    );
    assert!(next_packet(b"\xff\xff\xff\xff", PACKET_BYTES_MAX).is_err());
    assert_eq!(next_packet(b"\0\0\0\0", 10), Err(InvalidMessage::Empty));
}

#[test]
fn every_reply_survives_the_wire() {
    let name = Name {
        filename: b"\xff\n",
        longname: b"-rw long",
        attrs: ATTRS,
    };
    let mut entries = Vec::new();
    name.encode(&mut entries);
    assert_eq!(name.encoded_len(), entries.len());
    let replies = [
        Reply::Status {
            code: Code::Failure,
            message: b"no space left on device",
        },
        Reply::Status {
            code: Code::Other(31),
            message: b"",
        },
        Reply::Handle(b"\0\0\0\x09"),
        Reply::Data(b"bytes"),
        Reply::Data(b""),
        Reply::Name(NameList::new(1, &entries).expect("one entry")),
        Reply::Attrs(ATTRS),
        Reply::Attrs(Attrs::EMPTY),
        Reply::Extended(b"payload"),
    ];
    for reply in replies {
        let mut bytes = Vec::new();
        reply.encode(3, &mut bytes);
        assert_eq!(bytes.len(), reply.encoded_len());
        assert_eq!(Reply::parse(whole(&bytes)), Ok((3, reply)));
    }
}

#[test]
fn claimed_counts_end_where_the_bytes_end() {
    let mut names = Vec::new();
    names.put_u32(5);
    names.put_u32(u32::MAX);
    let packet = Packet {
        kind: fxp::SSH_FXP_NAME,
        body: &names,
        total_len: 13,
    };
    assert!(Reply::parse(packet).is_err());

    let mut attrs = Vec::new();
    attrs.put_u32(5);
    attrs.put_u32(0x8000_0000);
    attrs.put_u32(u32::MAX);
    attrs.put_string(b"name");
    attrs.put_string(b"value");
    let packet = Packet {
        kind: fxp::SSH_FXP_ATTRS,
        body: &attrs,
        total_len: 13,
    };
    assert_eq!(
        Reply::parse(packet),
        Err(InvalidMessage::Truncated("attribute name"))
    );
}

#[test]
fn a_status_may_come_without_a_message() {
    let packet = Packet {
        kind: fxp::SSH_FXP_STATUS,
        body: b"\0\0\0\x01\0\0\0\x02",
        total_len: 13,
    };
    let status = Reply::Status {
        code: Code::NoSuchFile,
        message: b"",
    };
    assert_eq!(Reply::parse(packet), Ok((1, status)));
}

#[test]
fn check_file_replies_parse_in_both_forms() {
    let mut draft = Vec::new();
    draft.put_string(b"blake3");
    draft.put_raw(&[9; 64]);
    let parsed = CheckFileReply::parse(&draft).expect("whole digests");
    assert_eq!(parsed.algorithm, HashAlgorithm::Blake3);
    assert_eq!(parsed.digests, [9; 64]);
    let mut echoed = Vec::new();
    echoed.put_string(b"check-file");
    echoed.extend_from_slice(&draft);
    assert_eq!(CheckFileReply::parse(&echoed), Ok(parsed));
    draft.pop();
    assert!(CheckFileReply::parse(&draft).is_err());
}

#[test]
fn the_table_knows_each_request_by_name_and_order() {
    for (index, kind) in RequestKind::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, index);
        assert_eq!(RequestKind::from_name(kind.name()), Some(kind));
        assert!(RequestSet::ALL.contains(kind));
        assert!(!RequestSet::NONE.contains(kind));
    }
    let mut seen = RequestSet::NONE;
    for request in every_request() {
        if let Some(kind) = request.kind() {
            seen.insert(kind);
        }
    }
    assert_eq!(seen, RequestSet::ALL);
}
