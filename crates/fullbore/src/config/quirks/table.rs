//! The table. From general to special: what a later profile says wins.
//!
//! A line says only what was measured, what the server's documentation says, or what its source shows;
//! where none of that is certain the safe default stands.

use super::Profile;
use super::Setting::{
    GuessKex, HandlesMax, OpensForBoth, ReaddirsMax, RequestLenMax, ServesInOrder, SessionsMax,
    SetsAttributes, SymlinkLinkFirst, WritesAnywhere,
};

/// Bytes that servers which cut READs to 32 KiB answer in full.
const READ_32K: super::Setting = RequestLenMax(32 * 1024);

/// What is known.
pub const PROFILES: &[Profile] = &[
    // Measured: MaxSessions 10, requests served one by one from one buffer.
    Profile {
        name: "OpenSSH",
        patterns: &["OpenSSH_*"],
        settings: &[ServesInOrder(true), SessionsMax(10)],
    },
    // Before limits@openssh.com (8.5) its sftp-server read into 64 KiB.
    Profile {
        name: "OpenSSH before 8.5",
        patterns: &[
            "OpenSSH_3.*",
            "OpenSSH_4.*",
            "OpenSSH_5.*",
            "OpenSSH_6.*",
            "OpenSSH_7.*",
            "OpenSSH_8.0*",
            "OpenSSH_8.1*",
            "OpenSSH_8.2*",
            "OpenSSH_8.3*",
            "OpenSSH_8.4*",
        ],
        settings: &[RequestLenMax(64 * 1024)],
    },
    // Its table of descriptors has 256 places, and its sftp-server does not say so.
    Profile {
        name: "OpenSSH for Windows",
        patterns: &["OpenSSH_for_Windows_*"],
        settings: &[HandlesMax(200)],
    },
    Profile {
        name: "fullbore",
        patterns: &["fullbore_*"],
        settings: &[ServesInOrder(true), SessionsMax(10)],
    },
    // The SFTP server behind it may be any: OpenSSH's mostly, and then it says its limits.
    Profile {
        name: "Dropbear",
        patterns: &["dropbear_*", "dropbear"],
        settings: &[ServesInOrder(false)],
    },
    // PuTTY's test server.
    Profile {
        name: "PuTTY",
        patterns: &["PuTTY_*", "Uppity*"],
        settings: &[ServesInOrder(false), READ_32K],
    },
    // Measured as a client: the draft's order of SYMLINK, unless the server's line says OpenSSH.
    Profile {
        name: "libssh",
        patterns: &["libssh_*", "libssh-*"],
        settings: &[READ_32K, SymlinkLinkFirst(true)],
    },
    // github.com/pkg/sftp: reads and writes of a session run side by side, DATA is cut to 32 KiB, no
    // limits@openssh.com.
    Profile {
        name: "a server in Go",
        patterns: &["Go", "Go *"],
        settings: &[READ_32K],
    },
    Profile {
        name: "SFTPGo",
        patterns: &["SFTPGo*"],
        settings: &[READ_32K],
    },
    Profile {
        name: "ProFTPD",
        patterns: &["mod_sftp*", "ProFTPD*"],
        settings: &[READ_32K],
    },
    // Its guide: ten sessions a connection; SETSTAT fails on S3 unless the server was told to ignore it;
    // objects cannot be written to again.
    Profile {
        name: "AWS Transfer Family",
        patterns: &["AWS_SFTP_*"],
        settings: &[
            SessionsMax(10),
            SetsAttributes(false),
            OpensForBoth(false),
            WritesAnywhere(false),
        ],
    },
    // Its list of known issues: no handle for both, no limits, fsync, lsetstat, statvfs; no commands; no
    // resumed uploads.
    Profile {
        name: "Azure Blob Storage",
        patterns: &["AzureSSH_*"],
        settings: &[
            SetsAttributes(false),
            OpensForBoth(false),
            WritesAnywhere(false),
        ],
    },
    // Mailboxes: one document at a time, written once.
    Profile {
        name: "a mailbox",
        patterns: &["GXSSSHD*", "*Mailbox*"],
        settings: &[
            HandlesMax(1),
            SessionsMax(1),
            ReaddirsMax(1),
            SetsAttributes(false),
            OpensForBoth(false),
            WritesAnywhere(false),
            READ_32K,
        ],
    },
    // Measured in both roles: the draft's order of SYMLINK with peers that do not call themselves OpenSSH.
    Profile {
        name: "AsyncSSH",
        patterns: &["AsyncSSH_*"],
        settings: &[SymlinkLinkFirst(true)],
    },
    // Its source reads the flag that announces a guess, and does nothing about it. A session is one
    // thread that serves one request after the other.
    Profile {
        name: "paramiko",
        patterns: &["paramiko_*"],
        settings: &[ServesInOrder(true), GuessKex(false), READ_32K],
    },
    // Apache MINA SSHD: sftp-max-readdata-packet-length is 63 KiB.
    Profile {
        name: "Apache MINA SSHD",
        patterns: &["APACHE-SSHD-*", "SSHD-CORE-*", "SSHD-UNKNOWN*"],
        settings: &[RequestLenMax(63 * 1024)],
    },
    // wolfSSH: WOLFSSH_MAX_SFTP_HANDLES.
    Profile {
        name: "wolfSSH",
        patterns: &["wolfSSH*"],
        settings: &[HandlesMax(64), READ_32K],
    },
    // Erlang's ssh_sftpd: max_handles.
    Profile {
        name: "Erlang",
        patterns: &["Erlang/*"],
        settings: &[HandlesMax(1000), READ_32K],
    },
    Profile {
        name: "Bitvise",
        patterns: &["*FlowSsh*", "*WinSSHD*", "*Bitvise*"],
        settings: &[READ_32K],
    },
    Profile {
        name: "Serv-U",
        patterns: &["Serv-U_*", "Serv-U*"],
        settings: &[READ_32K, ReaddirsMax(1)],
    },
    Profile {
        name: "VShell",
        patterns: &["VShell_*", "* VShell*"],
        settings: &[READ_32K, ReaddirsMax(1)],
    },
    Profile {
        name: "GlobalSCAPE",
        patterns: &["*GlobalSCAPE*", "*GlobalScape*"],
        settings: &[READ_32K, ReaddirsMax(1)],
    },
    Profile {
        name: "CrushFTP",
        patterns: &["CrushFTPSSHD*"],
        settings: &[READ_32K],
    },
];
