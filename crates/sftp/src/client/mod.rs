//! The SFTP client engine.
