//! Clients that go on over UDP: told how over a connection on which they are logged in, let in again by
//! the token they were told.
//!
//! ```text
//! TCP, logged in ── exec "fullbore udp-server" ──► Doors::announce ── an offer ──► client
//!                                                        │                          │
//!                                    the UDP thread knows secret and token ◄── datagrams
//! ```
//!
//! What runs over UDP is SSH as everywhere: the client proves to have the token inside, and the server to
//! have the host key that the offer names.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use fullbore_ssh::auth::{AuthAnswer, Credential, Method, MethodSet, ServerAuth};
use fullbore_ssh::config::ServerConfig;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use zeroize::Zeroizing;

use super::auth::Rights;
use super::connection::{self, STOP_TIMEOUT, Shared, Visitor};
use super::gate::Gate;
use super::listen::ServeError;
use crate::driver::random::SystemRandom;
use crate::driver::stream::Stream;
use crate::driver::udp::{Bound, Driver, News, Udp, limits_towards};
use crate::udp::datagram::PathId;
use crate::udp::door::PATHS_MAX;
use crate::udp::endpoint::Opening;
use crate::udp::keys::Role;
use crate::udp::offer::Offer;

/// Offers on their way to the UDP thread. More are refused: it is stuck.
const ANNOUNCED_MAX: usize = 256;

/// How long a login over UDP may take: nobody has to type anything.
const LOGIN_MAX: Duration = Duration::from_secs(30);

/// Clients of one address that are waited for at once; a further one copies over TCP. Counting them costs
/// O(clients waited for), once for each offer.
const WAITING_PER_ADDRESS_MAX: usize = 32;

/// Whether another client of `peer` may be waited for.
fn has_room(expected: &BTreeMap<PathId, Announced>, peer: IpAddr) -> bool {
    let of_peer = expected.values().filter(|waiting| waiting.peer == peer);
    of_peer.count() < WAITING_PER_ADDRESS_MAX
}

/// What a client may do that comes with a token.
#[derive(Debug)]
pub(super) struct Grant {
    /// The offer that it belongs to, for the log.
    pub(super) offer: PathId,
    token: Zeroizing<String>,
    rights: Rights,
}

impl Grant {
    /// Decides about what a client shows: the token lets it in, nothing else does.
    pub(super) fn judge(&self, credential: &Credential<'_>) -> (AuthAnswer, Rights) {
        let is_right = match credential {
            Credential::Password(shown) => {
                verify_slices_are_equal(shown.expose(), self.token.as_bytes()).is_ok()
            }
            Credential::None
            | Credential::KeyQuery { .. }
            | Credential::Key { .. }
            | Credential::Interactive { .. }
            | Credential::PasswordChange { .. } => false,
        };
        match is_right {
            true => (AuthAnswer::Accept, self.rights),
            false => (AuthAnswer::Reject, Rights::default()),
        }
    }
}

/// A client that was told how to come.
struct Announced {
    offer: Offer,
    peer: IpAddr,
    rights: Rights,
}

/// One UDP socket, as the threads for TCP know it.
#[derive(Clone, Debug)]
struct Door {
    local: SocketAddr,
    sender: mpsc::Sender<Announced>,
}

/// The UDP sockets of a server.
#[derive(Clone, Debug)]
pub(super) struct Doors {
    doors: Vec<Door>,
    host_key: Vec<u8>,
}

impl Doors {
    /// Makes an offer for a client at `peer` that has reached this machine at `local`; `None` when too
    /// many wait.
    pub(super) fn announce(
        &self,
        local: Option<IpAddr>,
        peer: IpAddr,
        rights: Rights,
    ) -> Option<Offer> {
        let door = self.door_for(local);
        let port = door.local.port();
        let offer = Offer::new(port, self.host_key.clone(), &mut SystemRandom::new());
        let announced = Announced {
            offer: offer.clone(),
            peer,
            rights,
        };
        door.sender.try_send(announced).ok()?;
        Some(offer)
    }

    /// The socket at the address that the client knows; else one that has all addresses.
    fn door_for(&self, local: Option<IpAddr>) -> &Door {
        let of = |wanted: IpAddr| self.doors.iter().find(|d| d.local.ip() == wanted);
        let exact = local.map(|local| local.to_canonical()).and_then(of);
        exact
            .or_else(|| of(Ipv6Addr::UNSPECIFIED.into()))
            .or_else(|| of(Ipv4Addr::UNSPECIFIED.into()))
            .unwrap_or(&self.doors[0])
    }
}

/// A socket, and who will come there.
pub(super) struct Waiting {
    bound: Bound,
    announced: mpsc::Receiver<Announced>,
}

/// Binds `port` at each of the addresses that are listened on.
pub(super) fn bind(addresses: &[SocketAddr], port: u16) -> Result<Vec<Bound>, ServeError> {
    let mut sockets: Vec<Bound> = Vec::new();
    for address in addresses {
        let wanted = SocketAddr::new(address.ip(), port);
        if sockets.iter().any(|s| s.local().ip() == wanted.ip()) {
            continue;
        }
        let bound = Bound::to(wanted).map_err(|error| ServeError::Udp(wanted, error))?;
        sockets.push(bound);
    }
    Ok(sockets)
}

/// Both sides of bound sockets.
pub(super) fn doors(sockets: Vec<Bound>, host_key: Vec<u8>) -> (Doors, Vec<Waiting>) {
    let mut doors = Vec::new();
    let mut waiting = Vec::new();
    for bound in sockets {
        let (sender, announced) = mpsc::channel(ANNOUNCED_MAX);
        doors.push(Door {
            local: bound.local(),
            sender,
        });
        waiting.push(Waiting { bound, announced });
    }
    (Doors { doors, host_key }, waiting)
}

/// The configuration of connections over UDP, made of that of others.
pub(super) fn server_config(config: &ServerConfig) -> ServerConfig {
    let mut config = config.clone();
    config.connection.login_timeout = Some(LOGIN_MAX);
    config.auth = ServerAuth {
        methods: MethodSet::of(&[Method::Password]),
        ..ServerAuth::default()
    };
    config
}

/// Serves those who come over UDP, until the server stops.
pub(super) async fn serve_all(
    shared: Rc<Shared>,
    waiting: Vec<Waiting>,
    gate: Gate,
    stop: watch::Receiver<bool>,
) {
    let mut tasks = JoinSet::new();
    for waiting in waiting {
        match Hall::new(shared.clone(), waiting, gate.clone(), stop.clone()) {
            Ok(hall) => {
                tasks.spawn_local(hall.open());
            }
            Err(error) => shared.log.line(format_args!("no UDP: {error}")),
        }
    }
    while tasks.join_next().await.is_some() {}
}

/// Where those who come over one UDP socket are received.
pub(super) struct Hall {
    shared: Rc<Shared>,
    udp: Udp,
    driver: Driver,
    announced: mpsc::Receiver<Announced>,
    gate: Gate,
    stop: watch::Receiver<bool>,
    expected: BTreeMap<PathId, Announced>,
    connections: JoinSet<()>,
    /// There is one client: the hall closes when it has gone, or does not come; and when it has left
    /// before it came.
    only_client: Option<watch::Receiver<bool>>,
}

impl Hall {
    /// One that is open until the server stops.
    pub(super) fn new(
        shared: Rc<Shared>,
        waiting: Waiting,
        gate: Gate,
        stop: watch::Receiver<bool>,
    ) -> std::io::Result<Self> {
        let Waiting { bound, announced } = waiting;
        let (udp, driver) = Udp::new(bound, PATHS_MAX, shared.clock)?;
        Ok(Self {
            shared,
            udp,
            driver,
            announced,
            gate,
            stop,
            expected: BTreeMap::new(),
            connections: JoinSet::new(),
            only_client: None,
        })
    }

    /// Has the hall close behind its first client; `has_left`: it will not come any more.
    pub(super) fn for_one(self, has_left: watch::Receiver<bool>) -> Self {
        Self {
            only_client: Some(has_left),
            ..self
        }
    }

    /// Receives until it closes.
    pub(super) async fn open(mut self) {
        let mut stop = self.stop.clone();
        let mut has_left = self.only_client.clone().unwrap_or_else(|| stop.clone());
        let udp = self.udp.clone();
        loop {
            let is_inside = !self.connections.is_empty();
            tokio::select! {
                // In this order: who comes was announced before the datagram is looked at.
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                Some(client) = self.announced.recv() => self.expect(client),
                error = &mut self.driver => {
                    self.shared.log.line(format_args!("UDP is over: {error}"));
                    return;
                }
                news = udp.news() => match news {
                    Ok(News::Arrived(id)) => self.receive(id),
                    Ok(News::Expired(id)) => {
                        self.expected.remove(&id);
                    }
                    Err(_) => return,
                },
                _ = has_left.wait_for(|left| *left), if !is_inside => break,
                Some(_) = self.connections.join_next(), if is_inside => {}
            }
            let is_empty = self.expected.is_empty() && self.connections.is_empty();
            if self.only_client.is_some() && is_empty {
                break;
            }
        }
        self.close().await;
    }

    /// Last words go out.
    async fn close(&mut self) {
        for &id in self.expected.keys() {
            drop(self.udp.take(id));
        }
        let goodbyes = async {
            while self.connections.join_next().await.is_some() {}
            self.udp.drained().await;
        };
        tokio::select! {
            _ = &mut self.driver => {}
            _ = tokio::time::timeout(STOP_TIMEOUT * 2, goodbyes) => {}
        }
    }

    fn expect(&mut self, client: Announced) {
        if !has_room(&self.expected, client.peer) {
            let (log, peer) = (&self.shared.log, client.peer);
            log.line(format_args!("{peer}: enough of it are waited for over UDP"));
            return;
        }
        // The port is no part of it: the first datagram tells.
        let peer = SocketAddr::new(client.peer, client.offer.port);
        let opening = Opening {
            id: client.offer.id,
            secret: client.offer.secret.clone(),
            role: Role::Server,
            remote: None,
            limits: limits_towards(peer),
            rtt: None,
        };
        match self.udp.expect(&opening) {
            Ok(()) => {
                self.expected.insert(opening.id, client);
            }
            Err(_) => self
                .shared
                .log
                .line(format_args!("{peer}: no room for it over UDP")),
        }
    }

    fn receive(&mut self, id: PathId) {
        let link = self.udp.take(id);
        let (Some(client), Some(peer)) = (self.expected.remove(&id), link.remote()) else {
            return;
        };
        let place = match self.gate.enter(peer.ip()) {
            Ok(place) => place,
            Err(refusal) => {
                let log = &self.shared.log;
                log.line(format_args!("{peer}: turned away over UDP: {refusal}"));
                return;
            }
        };
        let visitor = Visitor {
            stream: Stream::Tunnel(Box::new(link)),
            peer,
            place,
            grant: Some(Grant {
                offer: id,
                token: client.offer.password(),
                rights: client.rights,
            }),
        };
        let task = connection::serve(self.shared.clone(), visitor, self.stop.clone());
        self.connections.spawn_local(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullbore_ssh::key::Secret;

    #[test]
    fn only_the_token_lets_in() {
        let offer = Offer::new(1, Vec::new(), &mut SystemRandom::new());
        let rights = Rights { read_only: true };
        let grant = Grant {
            offer: offer.id,
            token: offer.password(),
            rights,
        };
        let shows = |password: &str| {
            let password = Secret::new(password.as_bytes().to_vec());
            grant.judge(&Credential::Password(&password))
        };
        assert_eq!(shows(&offer.password()), (AuthAnswer::Accept, rights));
        let refused = (AuthAnswer::Reject, Rights::default());
        assert_eq!(shows(""), refused);
        assert_eq!(shows(&offer.password()[1..]), refused);
        assert_eq!(grant.judge(&Credential::None), refused);
    }

    #[test]
    fn nobody_takes_the_places_of_others() {
        let [greedy, other] = [[127, 0, 0, 1], [127, 0, 0, 2]].map(IpAddr::from);
        let mut expected = BTreeMap::new();
        for _ in 0..WAITING_PER_ADDRESS_MAX {
            assert!(has_room(&expected, greedy));
            let offer = Offer::new(1, Vec::new(), &mut SystemRandom::new());
            let (id, rights) = (offer.id, Rights::default());
            let client = Announced {
                offer,
                peer: greedy,
                rights,
            };
            expected.insert(id, client);
        }
        assert!(!has_room(&expected, greedy));
        assert!(has_room(&expected, other));
    }

    #[test]
    fn an_offer_names_the_socket_at_the_address_that_the_client_knows() {
        let addresses = [
            SocketAddr::from(([127, 0, 0, 1], 1)),
            ([127, 0, 0, 1], 2).into(),
            ([127, 0, 0, 2], 1).into(),
        ];
        let sockets = bind(&addresses, 0).expect("they are free");
        assert_eq!(sockets.len(), 2, "once for each address");
        let ports: Vec<_> = sockets.iter().map(|s| s.local().port()).collect();
        let key = super::super::host_key::make(&mut SystemRandom::new()).expect("a key");
        let (doors, mut waiting) = doors(sockets, key.public_key().to_blob());
        let offer = |local: Option<[u8; 4]>| {
            let peer = [192, 0, 2, 1].into();
            doors.announce(local.map(IpAddr::from), peer, Rights::default())
        };
        let second = offer(Some([127, 0, 0, 2])).expect("there is room");
        assert_eq!(second.port, ports[1]);
        let told = waiting[1].announced.try_recv().expect("it is announced");
        assert_eq!(told.offer, second);
        assert_eq!(offer(None).map(|offer| offer.port), Some(ports[0]));
        for _ in 1..ANNOUNCED_MAX {
            assert!(offer(None).is_some());
        }
        assert_eq!(offer(None), None, "nobody takes them");
    }
}
