//! A copy over a session channel of russh, tuned: TCP_NODELAY, large windows and packets, aes128-gcm, blocks
//! handed over without a copy.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use russh::keys::{Algorithm, PrivateKey};
use russh::server::{Auth, Msg, Server as _, Session};
use russh::{Channel, ChannelId, ChannelMsg, Preferred, cipher, client, server};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::BLOCK_BYTES;

/// Far more than loopback ever holds.
const WINDOW_BYTES: u32 = 64 * 1024 * 1024;

/// The longest that it takes.
const PACKET_BYTES: u32 = 65_535;

fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

fn preferred() -> Preferred {
    Preferred {
        cipher: Cow::Borrowed(&[cipher::AES_128_GCM]),
        ..Preferred::default()
    }
}

fn block_on<R>(future: impl Future<Output = io::Result<R>>) -> io::Result<R> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(future)
}

/// Serves `get PATH` and `put PATH` to everybody.
pub fn serve() -> io::Result<()> {
    let key = PrivateKey::random(&mut russh::keys::key::safe_rng(), Algorithm::Ed25519);
    let config = server::Config {
        keys: vec![key.map_err(failed)?],
        window_size: WINDOW_BYTES,
        maximum_packet_size: PACKET_BYTES,
        preferred: preferred(),
        nodelay: true,
        ..server::Config::default()
    };
    block_on(async {
        let socket = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", socket.local_addr()?.port());
        Server.run_on_socket(Arc::new(config), &socket).await
    })
}

struct Server;

impl server::Server for Server {
    type Handler = Connection;

    fn new_client(&mut self, _: Option<std::net::SocketAddr>) -> Connection {
        Connection(HashMap::new())
    }
}

struct Connection(HashMap<ChannelId, Channel<Msg>>);

impl server::Handler for Connection {
    type Error = russh::Error;

    async fn auth_none(&mut self, _: &str) -> Result<Auth, Self::Error> {
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: server::ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        reply.accept().await;
        self.0.insert(channel.id(), channel);
        Ok(())
    }

    async fn exec_request(
        &mut self,
        id: ChannelId,
        command: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_success(id)?;
        let command = String::from_utf8_lossy(command).into_owned();
        if let Some(channel) = self.0.remove(&id) {
            tokio::spawn(async move {
                if let Err(error) = carry_out(channel, &command).await {
                    eprintln!("{command}: {error}");
                }
            });
        }
        Ok(())
    }
}

async fn carry_out(mut channel: Channel<Msg>, command: &str) -> io::Result<()> {
    match command.split_once(' ') {
        Some(("get", path)) => {
            let mut file = File::open(path).await?;
            loop {
                let mut block = vec![0; BLOCK_BYTES];
                let n = file.read(&mut block).await?;
                if n == 0 {
                    break;
                }
                block.truncate(n);
                channel.data_bytes(block).await.map_err(failed)?;
            }
        }
        Some(("put", path)) => {
            let mut file = File::create(path).await?;
            store(&mut channel, &mut file).await?;
        }
        _ => return Err(failed("what is asked is not known")),
    }
    channel.exit_status(0).await.map_err(failed)?;
    channel.eof().await.map_err(failed)?;
    channel.close().await.map_err(failed)
}

/// Writes what comes until its end.
async fn store<S: From<(ChannelId, ChannelMsg)> + Send + Sync + 'static>(
    channel: &mut Channel<S>,
    file: &mut File,
) -> io::Result<()> {
    while let Some(message) = channel.wait().await {
        match message {
            ChannelMsg::Data { data } => file.write_all(&data).await?,
            ChannelMsg::Eof | ChannelMsg::Close => break,
            _ => {}
        }
    }
    file.flush().await
}

struct Anybody;

impl client::Handler for Anybody {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        _: &russh::keys::PublicKeyOrCertificate,
    ) -> Result<bool, Self::Error> {
        Ok(true)
    }
}

async fn connect(port: u16) -> io::Result<client::Handle<Anybody>> {
    let config = client::Config {
        window_size: WINDOW_BYTES,
        maximum_packet_size: PACKET_BYTES,
        preferred: preferred(),
        nodelay: true,
        ..client::Config::default()
    };
    let connected = client::connect(Arc::new(config), ("127.0.0.1", port), Anybody).await;
    let mut handle = connected.map_err(failed)?;
    let auth = handle.authenticate_none("bench").await.map_err(failed)?;
    if auth.success() {
        Ok(handle)
    } else {
        Err(failed("not let in"))
    }
}

/// Copies the server's `from` to `to`.
pub fn get(port: u16, from: &str, to: &str) -> io::Result<()> {
    block_on(async {
        let handle = connect(port).await?;
        let mut channel = handle.channel_open_session().await.map_err(failed)?;
        let command = format!("get {from}");
        channel.exec(true, command).await.map_err(failed)?;
        store(&mut channel, &mut File::create(to).await?).await
    })
}

/// Copies `from` to the server's `to`, and waits until all of it is there.
pub fn put(port: u16, from: &str, to: &str) -> io::Result<()> {
    block_on(async {
        let handle = connect(port).await?;
        let mut channel = handle.channel_open_session().await.map_err(failed)?;
        let command = format!("put {to}");
        channel.exec(true, command).await.map_err(failed)?;
        let mut file = File::open(from).await?;
        loop {
            let mut block = vec![0; BLOCK_BYTES];
            let n = file.read(&mut block).await?;
            if n == 0 {
                break;
            }
            block.truncate(n);
            channel.data_bytes(block).await.map_err(failed)?;
        }
        channel.eof().await.map_err(failed)?;
        while let Some(message) = channel.wait().await {
            if let ChannelMsg::ExitStatus { exit_status: 0 } = message {
                return Ok(());
            }
        }
        Err(failed("the server did not confirm"))
    })
}
