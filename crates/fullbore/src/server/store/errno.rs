//! What a peer is told when a system call fails: OpenSSH's codes, and a reason in words.

use fullbore_sftp::proto::Code;
use fullbore_sftp::server::StoreError;
use rustix::io::Errno;

/// The status for an error, with OpenSSH's mapping of codes.
pub(super) fn store_error(errno: Errno) -> StoreError {
    let code = match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::BADF | Errno::LOOP => Code::NoSuchFile,
        Errno::PERM | Errno::ACCESS | Errno::FAULT => Code::PermissionDenied,
        Errno::NAMETOOLONG | Errno::INVAL => Code::BadMessage,
        Errno::NOSYS => Code::OpUnsupported,
        _ => Code::Failure,
    };
    StoreError::new(code, reason(errno).unwrap_or(code.text()))
}

/// The reason in words, where it says more than the code does.
fn reason(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::NOTDIR => "a part of the path is not a directory",
        Errno::LOOP => "too many levels of symbolic links",
        Errno::PERM => "operation not permitted",
        Errno::NAMETOOLONG => "file name too long",
        Errno::INVAL => "invalid argument",
        Errno::EXIST => "file exists",
        Errno::NOTEMPTY => "directory not empty",
        Errno::ISDIR => "is a directory",
        Errno::XDEV => "cross-device link",
        Errno::NOSPC => "no space left on device",
        Errno::DQUOT => "quota exceeded",
        Errno::ROFS => "read-only file system",
        Errno::FBIG => "file too large",
        Errno::MFILE | Errno::NFILE => "too many open files",
        Errno::IO => "input/output error",
        Errno::BUSY => "device or resource busy",
        Errno::TXTBSY => "file is being executed",
        Errno::MLINK => "too many links",
        Errno::OPNOTSUPP => "operation not supported by the file system",
        Errno::SPIPE => "file is not seekable",
        Errno::STALE => "stale file handle",
        Errno::AGAIN => "resource temporarily unavailable",
        Errno::NXIO => "no such device or address",
        Errno::NODEV => "no such device",
        Errno::NOMEM => "server is out of memory",
        Errno::OVERFLOW => "value too large",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_openssh() {
        for (errno, code) in [
            (Errno::NOENT, 2),
            (Errno::NOTDIR, 2),
            (Errno::BADF, 2),
            (Errno::LOOP, 2),
            (Errno::PERM, 3),
            (Errno::ACCESS, 3),
            (Errno::FAULT, 3),
            (Errno::NAMETOOLONG, 5),
            (Errno::INVAL, 5),
            (Errno::NOSYS, 8),
            (Errno::EXIST, 4),
            (Errno::NOTEMPTY, 4),
            (Errno::ISDIR, 4),
            (Errno::XDEV, 4),
            (Errno::NOSPC, 4),
            (Errno::ROFS, 4),
        ] {
            assert_eq!(store_error(errno).code.to_u32(), code, "{errno:?}");
        }
        assert_eq!(store_error(Errno::NOSPC).reason, "no space left on device");
        assert_eq!(store_error(Errno::DQUOT).reason, "quota exceeded");
        assert_eq!(store_error(Errno::NOENT).reason, "No such file");
    }
}
