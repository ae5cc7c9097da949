//! The readers of SSH's data types (RFC 4251 5).

use fullbore_ssh::wire::Reader;

/// The first byte of each round says which type is read next.
pub fn run(data: &[u8]) {
    let Some((plan, body)) = data.split_at_checked(data.len().min(16)) else {
        return;
    };
    let mut reader = Reader::new(body);
    for kind in plan {
        let is_ok = match kind % 8 {
            0 => reader.u8().is_ok(),
            1 => reader.bool().is_ok(),
            2 => reader.u32().is_ok(),
            3 => reader.u64().is_ok(),
            4 => reader.string().is_ok_and(|s| s.len() <= body.len()),
            5 => reader.utf8().is_ok(),
            6 => reader.mpint().is_ok_and(|m| m.first() != Some(&0)),
            _ => reader
                .name_list()
                .is_ok_and(|list| list.iter().count() <= body.len() + 1),
        };
        if !is_ok {
            return;
        }
    }
}

/// One value of each type.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = vec![0, 1, 2, 3, 4, 5, 6, 7, 4, 4, 4, 4, 4, 4, 4, 4];
    all.extend([7, 1]);
    all.extend(9u32.to_be_bytes());
    all.extend(9u64.to_be_bytes());
    for text in [&b"bytes\xff"[..], b"text", b"\x00\x80", b"a,b,c"] {
        all.extend(u32::try_from(text.len()).unwrap_or(0).to_be_bytes());
        all.extend(text);
    }
    vec![all]
}
