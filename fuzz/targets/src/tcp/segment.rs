//! TCP segments.

use fullbore_tcp::Seq;
use fullbore_tcp::segment::{Flags, Header, Options, Pseudo, SackBlock, Segment, Timestamps};

/// Whatever parses prints back to a segment that says the same.
pub fn segment(data: &[u8]) {
    let Ok(segment) = Segment::parse(data, Pseudo::Unchecked) else {
        return;
    };
    assert!(segment.payload.len() + 20 <= data.len());
    let mut header = segment.header;
    if !header.flags.has(Flags::SYN) {
        header.options.mss = None;
        header.options.window_scale = None;
        header.options.is_sack_permitted = false;
    }
    // Options may stand closer together than we set them.
    if header.len() > 60 {
        return;
    }
    let mut out = vec![0; header.len() + segment.payload.len()];
    out[header.len()..].copy_from_slice(segment.payload);
    let len = header.emit(&mut out, segment.payload.len(), Pseudo::Unchecked);
    let again = Segment::parse(&out[..len], Pseudo::Unchecked).expect("it is ours");
    assert_eq!((again.header, again.payload), (header, segment.payload));
}

/// A SYN with every option of one, and an ACK with SACK blocks and data.
#[must_use]
pub fn segment_seeds() -> Vec<Vec<u8>> {
    let syn = Header {
        flags: Flags::SYN,
        options: Options {
            mss: Some(1460),
            window_scale: Some(8),
            is_sack_permitted: true,
            timestamps: Some(Timestamps { value: 1, echo: 0 }),
            user_timeout: Some(30),
            ..Options::default()
        },
        ..Header::default()
    };
    let mut ack = Header {
        flags: Flags::ACK | Flags::PSH,
        ..Header::default()
    };
    for start in [5000, 1000, 3000] {
        let _ = ack.options.sack.push(SackBlock {
            start: Seq::new(start),
            end: Seq::new(start + 1000),
        });
    }
    [(syn, &b""[..]), (ack, b"data")]
        .into_iter()
        .map(|(header, payload)| {
            let mut out = vec![0; header.len() + payload.len()];
            out[header.len()..].copy_from_slice(payload);
            header.emit(&mut out, payload.len(), Pseudo::Unchecked);
            out
        })
        .collect()
}
