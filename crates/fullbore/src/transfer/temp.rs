//! Names of the files that a copy in progress writes to.

/// The longest file name that common file systems take.
const NAME_LEN_MAX: usize = 255;

/// What every such name ends with.
pub(crate) const SUFFIX: &[u8] = b".fullbore";

/// Splits a path into its folder (with the slash, or empty) and its last component.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    let path = &path[..end];
    let name_at = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    path.split_at(name_at)
}

/// `folder` and `name`, joined.
pub(crate) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(folder.len() + 1 + name.len());
    path.extend_from_slice(folder);
    if !folder.is_empty() && !folder.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Where a copy of `source_id` to `target` is written until it is complete: in the same folder,
/// hidden, and the same again for the same source and target, so that an interrupted copy is
/// found: `.NAME.0123456789abcdef.fullbore`.
pub(crate) fn temp_path(target: &[u8], source_id: &[u8]) -> Vec<u8> {
    let (folder, name) = split(target);
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(source_id.len() as u64).to_be_bytes());
    hasher.update(source_id);
    hasher.update(name);
    let hex = hasher.finalize().to_hex();
    let tag = &hex.as_bytes()[..TAG_LEN];
    let mut kept = name.len().min(NAME_LEN_MAX - 2 - tag.len() - SUFFIX.len());
    // Not inside a UTF-8 character: some servers refuse names that are none.
    while kept > 0 && kept < name.len() && name[kept] & 0xc0 == 0x80 {
        kept -= 1;
    }
    [folder, b".", &name[..kept], b".", tag, SUFFIX].concat()
}

/// Hexadecimal digits in such a name.
const TAG_LEN: usize = 16;

/// Whether a name has that form: nothing else is taken for what an interrupted copy left.
pub(crate) fn is_temp_name(name: &[u8]) -> bool {
    let stem = name.strip_prefix(b".").and_then(|n| n.strip_suffix(SUFFIX));
    let Some(at) = stem.and_then(|stem| stem.len().checked_sub(TAG_LEN + 1)) else {
        return false;
    };
    let (kept, tag) = stem.unwrap_or_default().split_at(at);
    let is_hex = |b: &u8| b.is_ascii_digit() || (b'a'..=b'f').contains(b);
    !kept.is_empty() && tag[0] == b'.' && tag[1..].iter().all(is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_form_is_a_temporary_name() {
        let path = temp_path(b"d/f", b"h:/x/f");
        assert!(is_temp_name(split(&path).1));
        for name in [
            &b".fullbore"[..],
            b".notes.fullbore",
            b"f.0123456789abcdef.fullbore",
            b".f.0123456789abcdeg.fullbore",
            b".f-0123456789abcdef.fullbore",
            b"..0123456789abcdef.fullbore",
            b".f.0123456789abcdef",
        ] {
            assert!(!is_temp_name(name), "{}", name.escape_ascii());
        }
    }

    #[test]
    fn paths_split_as_basename_does() {
        assert_eq!(split(b"a/b/c"), (&b"a/b/"[..], &b"c"[..]));
        assert_eq!(split(b"a/b//"), (&b"a/"[..], &b"b"[..]));
        assert_eq!(split(b"c"), (&b""[..], &b"c"[..]));
        assert_eq!(split(b"/"), (&b""[..], &b""[..]));
        assert_eq!(join(b"", b"x"), b"x");
        assert_eq!(join(b"/", b"x"), b"/x");
        assert_eq!(join(b"a", b"x"), b"a/x");
    }

    #[test]
    fn the_same_copy_finds_its_name_again_and_no_other_does() {
        let path = temp_path(b"d/f", b"h:/x/f");
        assert!(path.starts_with(b"d/.f.") && path.ends_with(SUFFIX));
        assert_eq!(path, temp_path(b"d/f", b"h:/x/f"));
        assert_ne!(path, temp_path(b"d/f", b"h:/y/f"));
        assert_ne!(path, temp_path(b"d/g", b"h:/x/f"));
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let name = "é".repeat(127);
        let path = temp_path(name.as_bytes(), b"s");
        assert!(path.len() <= 255);
        assert!(std::str::from_utf8(&path).is_ok());
        assert_eq!(temp_path(&[0xff; 255], b"s").len(), 255);
    }
}
