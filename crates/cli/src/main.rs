//! The `fullbore` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let code = match args.next() {
        Some(command) if command == "sftp-server" => fullbore::server::sftp_server::main(args),
        Some(_) | None => 2,
    };
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
