//! An SFTP session over UDP: logged in to over TCP as ever, moved to a transport of our own.
//!
//! ```text
//! SSH over TCP ── exec "fullbore udp-server" ──► an offer: port, secret, token, host key
//! SSH over our TCP over UDP ── host key as offered, token as password ──► SFTP
//! ```
//!
//! The first connection stays: it carries the second one's life, and ends with it. Where UDP does not get
//! through, or the far end knows nothing of it, the session runs over the first connection instead, and
//! the caller is told why.

use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use fullbore_ssh::Event;
use fullbore_ssh::auth::Attempt;
use fullbore_ssh::config::ClientConfig;
use fullbore_ssh::key::{Algorithm, PublicKey, Secret};
use fullbore_ssh::transport::HostKeyVerified;

use super::ahead::Ahead;
use super::connect::{Context, Way, start_with, to_host};
use super::connection::{Connection, PlainChannel};
use super::core::Core;
use super::error::Error;
use super::lane::Lane;
use super::proposal::{Haste, client_config};
use super::sftp::Sftp;
use crate::config::ssh_config::{HostConfig, LogLevel};
use crate::config::text::{escape_for_display, reason};
use crate::driver::stream::Stream;
use crate::driver::udp::{Bound, Link, Stopper, Udp, limits_towards};
use crate::udp::endpoint::Opening;
use crate::udp::keys::Role;
use crate::udp::offer::{LINE_BYTES_MAX, Offer};

/// How long a far end may take to answer, besides round trips: it starts a program. One that starts
/// another one in its place, as a forced command does, may never say a word.
const OFFER_MAX: Duration = Duration::from_secs(5);

/// How long a login over UDP may take, besides round trips: a lost datagram or two. Whoever's network lets
/// no UDP through waits as long.
const LOGIN_MAX: Duration = Duration::from_secs(3);

/// Round trips of a login that are given twice over.
const ROUND_TRIPS: u32 = 8;

/// How long a far end may take to answer once there is reason to think that it is gone.
const LAST_SIGN_MAX: Duration = Duration::from_secs(5);

/// Bytes of what a far end says that are shown in an error.
const SHOWN_BYTES_MAX: usize = 200;

/// A session, and which way it goes.
#[derive(Debug)]
pub struct Moved {
    /// The session.
    pub sftp: Sftp,
    /// Why it does not go over UDP, in words for a person; none where it does.
    pub notice: Option<String>,
}

/// Connects to a host and logs in, has it offer to go on over UDP by running `command`
/// ([`crate::udp::offer::COMMAND`] for one), and opens an SFTP session there, with requests sent ahead as
/// [`super::connect_ahead`] has it. Where that comes to nothing, the session goes over TCP.
///
/// # Errors
/// As [`super::connect`]: of the connection over TCP.
pub async fn connect_udp(
    host: &HostConfig,
    context: &Context,
    config: fullbore_sftp::client::Config,
    ahead: &[Ahead],
    command: &str,
) -> Result<Moved, Error> {
    let mut contact = to_host(host, context, None);
    contact.command = Some(command.as_bytes());
    let made = contact.make().await?;
    let plain = made.connection;
    let channel = made.channel.expect("a command was to be run");
    let moved = Mover {
        host,
        context,
        plain: &plain,
    };
    match moved.go(channel, config.clone(), ahead).await {
        Ok(sftp) => Ok(Moved { sftp, notice: None }),
        Err(why) => {
            let lane = Lane::open(&plain, config)?;
            lane.ask_ahead(ahead)?;
            let sftp = Sftp {
                lane: Rc::new(lane),
            };
            let notice = Some(format!("{}: over TCP, not UDP: {why}", host.host_name));
            Ok(Moved { sftp, notice })
        }
    }
}

struct Mover<'a> {
    host: &'a HostConfig,
    context: &'a Context,
    plain: &'a Connection,
}

impl Mover<'_> {
    /// Time for some round trips beside `least`.
    fn patience(&self, least: Duration) -> Duration {
        least + self.plain.rtt().unwrap_or_default() * ROUND_TRIPS
    }

    async fn go(
        &self,
        channel: PlainChannel,
        config: fullbore_sftp::client::Config,
        ahead: &[Ahead],
    ) -> Result<Sftp, String> {
        let peer = self.plain.core.peer_address.get();
        let peer = peer.ok_or("it is reached through another host or program")?;
        let asked = tokio::time::timeout(self.patience(OFFER_MAX), ask(&channel)).await;
        let offer = asked.unwrap_or_else(|_| Err("the far end does not answer".to_owned()))?;
        let peer = SocketAddr::new(peer.ip(), offer.port);
        let (udp, link) = self.open(peer, &offer)?;
        let stopper = link.stopper();
        let connection = self.start(link, &offer)?;
        *connection.core.udp.borrow_mut() = Some(udp);
        // Its messages wait in the connection until they may go.
        let lane = Lane::open(&connection, config).map_err(|error| error.to_string())?;
        lane.ask_ahead(ahead).map_err(|error| error.to_string())?;
        let login = log_in(&connection.core, &offer);
        match tokio::time::timeout(self.patience(LOGIN_MAX), login).await {
            Ok(done) => done.map_err(|error| error.to_string())?,
            Err(_) => {
                return Err(format!("no answer from {peer}; is UDP let through?"));
            }
        }
        self.tell(peer).await;
        let core = connection.core.clone();
        tokio::task::spawn_local(attend(core, channel, stopper));
        Ok(Sftp {
            lane: Rc::new(lane),
        })
    }

    fn open(&self, peer: SocketAddr, offer: &Offer) -> Result<(Udp, Link), String> {
        let any: IpAddr = match peer {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let bind = self.host.connection.bind_address.as_ref();
        let local = bind.and_then(|text| text.parse().ok()).unwrap_or(any);
        let failed = |error: std::io::Error| format!("no UDP socket: {}", reason(&error));
        let bound = Bound::to((local, 0).into()).map_err(failed)?;
        let (udp, driver) = Udp::new(bound, 1, self.context.clock).map_err(failed)?;
        let opening = Opening {
            id: offer.id,
            secret: offer.secret.clone(),
            role: Role::Client,
            remote: Some(peer),
            limits: limits_towards(peer),
            rtt: self.plain.rtt(),
        };
        let link = udp.open(&opening).expect("the first has room");
        tokio::task::spawn_local(driver);
        Ok((udp, link))
    }

    fn start(&self, link: Link, offer: &Offer) -> Result<Connection, String> {
        let config = self.config(offer)?;
        let stream = Stream::Tunnel(Box::new(link));
        let way = Way::carried(stream, self.plain.clone());
        start_with(config, self.host, self.context, way).map_err(|error| error.to_string())
    }

    /// As for the host, but for one host key, the one that was offered.
    fn config(&self, offer: &Offer) -> Result<ClientConfig, String> {
        let mut config = client_config(self.host, self.context, Haste::ByName)
            .map_err(|error| error.to_string())?;
        let key = PublicKey::from_blob(&offer.host_key)
            .map_err(|error| format!("the far end's host key: {error}"))?;
        let of_key = Algorithm::ALL.iter();
        let of_key = of_key.filter(|a| a.key_type() == key.key_type());
        config.transport.host_key_algorithms = of_key.map(|a| a.name().to_owned()).collect();
        // Both ends have the same first choices, unless one was told others: then it costs a packet.
        config.transport.guess_kex = true;
        Ok(config)
    }

    async fn tell(&self, peer: SocketAddr) {
        if self.host.session.log_level >= LogLevel::Verbose {
            let host = &self.host.host_name;
            let text = format!("{host}: moved to UDP, {peer}: SSH over a TCP of our own, with BBR");
            self.context.asker.tell(text).await;
        }
    }
}

/// Reads the offer from the channel of the command that makes it.
async fn ask(channel: &PlainChannel) -> Result<Offer, String> {
    let (mut said, mut error) = (Vec::new(), Vec::new());
    let mut may_follow = true;
    while may_follow && !said.contains(&b'\n') {
        let before = said.len();
        may_follow = poll_fn(|cx| {
            // A channel is over once all was taken that came on it.
            channel.take_stderr(&mut error, SHOWN_BYTES_MAX);
            let more = channel.poll_output(cx, &mut said, LINE_BYTES_MAX);
            match more && said.len() == before {
                true => std::task::Poll::Pending,
                false => std::task::Poll::Ready(more),
            }
        })
        .await;
    }
    let line = said.split(|&b| b == b'\n').next().unwrap_or_default();
    let why = match Offer::parse(&String::from_utf8_lossy(line)) {
        Ok(offer) => return Ok(offer),
        Err(why) => why,
    };
    let shown = if error.is_empty() { line } else { &error };
    let shown = shown.split(|&b| b == b'\n' || b == b'\r').next();
    let shown = shown.unwrap_or_default();
    let shown = escape_for_display(&shown[..shown.len().min(SHOWN_BYTES_MAX)]);
    match (shown.is_empty(), channel.status()) {
        (false, _) => Err(format!("the far end says: {shown}")),
        (true, Some(status)) if status != 0 => Err(format!("the far end ends with {status}")),
        (true, _) => Err(format!("the far end makes no offer: {why}")),
    }
}

/// Logs in with the token, to who has the key that was offered.
async fn log_in(core: &Core, offer: &Offer) -> Result<(), Error> {
    loop {
        match core.news().await? {
            Event::HostKey => {
                let is_right = core.change(|state, now| {
                    let conn = state.session.conn_mut();
                    let shown = conn.host_key().filter(|o| o.blob() == offer.host_key);
                    let Some(shown) = shown else {
                        conn.reject_host_key(now, "not the key that was offered");
                        return false;
                    };
                    let proof = HostKeyVerified::by_application(shown);
                    let password = Secret::new(offer.password().as_bytes().to_vec());
                    // An error has ended the connection, which the next event tells.
                    let _ = conn.accept_host_key(now, proof);
                    conn.presume_patience();
                    let _ = conn.authenticate(Attempt::Password(password));
                    true
                });
                if !is_right {
                    return Err(Error::Connect("another host key was shown".into()));
                }
            }
            Event::AuthNeeded => {
                let is_refused = core.look(|state| {
                    let methods = state.session.conn().auth_methods();
                    methods.is_some_and(|methods| methods.outcome.is_some())
                });
                if is_refused {
                    return Err(Error::Connect("the token was refused".into()));
                }
            }
            Event::Authenticated => return Ok(()),
            _ => {}
        }
    }
}

/// Keeps the first connection while the second one lives. When its far end is gone, the second one's has
/// to answer soon, or has gone too.
async fn attend(core: Rc<Core>, channel: PlainChannel, stopper: Stopper) {
    let is_program = channel.status().is_none();
    let far_end = poll_fn(|cx| match channel.poll_over(cx) {
        true => std::task::Poll::Ready(()),
        false => std::task::Poll::Pending,
    });
    let plain_ended = channel.connection.core.finished();
    tokio::select! {
        () = core.finished() => return,
        () = far_end, if is_program => {}
        () = plain_ended => {}
    }
    let answered = tokio::time::timeout(LAST_SIGN_MAX, super::connection::sign_of_life(&core));
    tokio::select! {
        () = core.finished() => {}
        answer = answered => match answer {
            Ok(Ok(_)) => core.finished().await,
            Ok(Err(_)) | Err(_) => stopper.stop(),
        }
    }
}
