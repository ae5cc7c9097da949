//! The SFTP server engine.
