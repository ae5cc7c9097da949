//! Key exchange as the transport runs it: who has said what, and when keys change.
//!
//! ```text
//!            own KEXINIT queued            peer's KEXINIT            REPLY sent / came
//!   Idle ───────────────────────► AwaitInit ──────────► Client|Server ───────┐
//!    ▲ │        peer's KEXINIT (ours is queued first)       ▲                │ client: verdict
//!    │ └────────────────────────────────────────────────────┘                ▼
//!    └────────────────────────── peer's NEWKEYS ◄──────────── AwaitNewKeys ◄─ AwaitVerdict
//! ```
//! Own packets change keys when own NEWKEYS is sealed, the peer's when its NEWKEYS is opened.

use super::pace::{Held, Pace};
use super::version::is_fullbore;
use super::{Algorithms, Gate, HostKeyOffer, HostKeyVerified, Role, Session, Transport, ext_info};
use crate::cipher::Suite;
use crate::config::{KEX_BEFORE_AUTH_MAX, KEXINIT_BYTES_MAX};
use crate::error::{ApiMisuse, Closed, Error, PeerMisbehaved};
use crate::kex::{
    Agreed, ClientStep, Direction, EXT_INFO_CLIENT, EXT_INFO_SERVER, HostKeyAlgorithm, KexInit,
    Offer, Proposal, Reply, STRICT_CLIENT, STRICT_SERVER, ServerStep, Signer, Transcript, derive,
};
use crate::msg::SSH_MSG_NEWKEYS;
use crate::packet::Compression;
use crate::provider::{OpeningKey, SealingKey};
use crate::wire::FieldError;
use fullbore_base::Instant;

/// The exchange under way, if one is.
pub(super) struct Exchange {
    pub(super) step: Step,
    /// Own KEXINIT of the exchange under way.
    local_init: Vec<u8>,
    /// The client's guess, sent behind its first KEXINIT.
    guess: Option<ClientStep>,
    /// The next method message is the peer's wrong guess.
    skip_guess: bool,
    /// Keys that own NEWKEYS, still queued, brings into force.
    pub(super) pending_send: Option<SendKeys>,
    /// When the peer must be done.
    pub(super) deadline: Option<Instant>,
    /// When the keys in force were agreed on.
    pub(super) last_done: Instant,
    /// How often the peer may ask for an exchange.
    pub(super) pace: Pace,
    /// The KEXINIT of a peer that asks too often.
    pub(super) held: Option<Held>,
    /// Exchanges that the peer's NEWKEYS ended.
    pub(super) done_count: u64,
    /// Exchanges that began.
    count: u32,
    /// The first message before the peer's first KEXINIT, which strict kex forbids.
    early_message: Option<u8>,
    /// Agreed on in the first exchange.
    strict: bool,
    /// The peer takes EXT_INFO.
    remote_ext_info: bool,
    /// Of the peer's first KEXINIT.
    pub(super) remote_proposal: Option<Proposal>,
}

/// What the exchange waits for.
pub(super) enum Step {
    /// Nothing.
    Idle,
    /// The peer's KEXINIT.
    AwaitInit,
    /// The server's next message.
    Client(Negotiated, ClientStep),
    /// The client's next message.
    Server(Negotiated, ServerStep),
    /// The application, which looks at the host key.
    AwaitVerdict(Box<Negotiated>, Agreed, HostKeyOffer),
    /// The peer's NEWKEYS.
    AwaitNewKeys(RecvKeys),
}

/// Both KEXINITs are known.
pub(super) struct Negotiated {
    algorithms: Algorithms,
    transcript: Transcript,
}

/// Keys for packets that leave.
pub(super) struct SendKeys {
    key: Box<dyn SealingKey>,
    suite: Suite,
    compression: Compression,
}

/// Keys for packets that arrive.
pub(super) struct RecvKeys {
    key: Box<dyn OpeningKey>,
    suite: Suite,
    compression: Compression,
}

impl Exchange {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            step: Step::Idle,
            local_init: Vec::new(),
            guess: None,
            skip_guess: false,
            pending_send: None,
            deadline: None,
            last_done: now,
            pace: Pace::new(now),
            held: None,
            done_count: 0,
            count: 0,
            early_message: None,
            strict: false,
            remote_ext_info: false,
            remote_proposal: None,
        }
    }

    /// Whether the peer is between its KEXINIT and its NEWKEYS.
    pub(super) const fn is_remote_in_kex(&self) -> bool {
        match self.step {
            Step::Idle | Step::AwaitInit => false,
            Step::Client(..) | Step::Server(..) | Step::AwaitVerdict(..) => true,
            Step::AwaitNewKeys(_) => true,
        }
    }

    /// Whether neither side is in an exchange.
    pub(super) const fn is_idle(&self) -> bool {
        matches!(self.step, Step::Idle) && self.pending_send.is_none()
    }

    /// Whether strict rules limit what may come: in the first exchange, once both KEXINITs are
    /// known.
    pub(super) const fn is_strict_phase(&self) -> bool {
        self.strict && self.count == 1 && self.is_remote_in_kex()
    }

    /// Takes note of a message other than KEXINIT before the first KEXINIT.
    pub(super) fn note_early(&mut self, message: u8) {
        if self.count == 1 && matches!(self.step, Step::AwaitInit) {
            self.early_message.get_or_insert(message);
        }
    }

    /// Exchanges that began.
    #[cfg(test)]
    pub(super) const fn begun_count(&self) -> u32 {
        self.count
    }

    /// Whether the message at hand is the peer's wrong guess, to be passed over.
    pub(super) fn take_skip(&mut self) -> bool {
        std::mem::take(&mut self.skip_guess)
    }
}

impl Transport {
    /// Queues own KEXINIT, and the client's guess behind it.
    pub(super) fn start_exchange(&mut self, now: Instant) -> Result<(), Error> {
        let is_first = self.exchange.count == 0;
        let config = self.role.transport();
        let offer = self.role.offer();
        let mut cookie = [0; 16];
        self.provider.fill_random(&mut cookie);
        let may_guess = match is_first {
            true => config.guess_kex,
            false => self.is_guess_known(config.guess_kex),
        };
        let guess = match (self.role.is_client(), may_guess) {
            (true, true) => offer.kex.first().copied(),
            (false, _) | (_, false) => None,
        };
        let deadline = now + config.kex_timeout;
        let init = offer.encode(cookie, is_first, guess.is_some());
        self.control.push(init.clone());
        if let Some(method) = guess {
            let (step, message) = ClientStep::start(method, &mut *self.provider)?;
            self.control.push(message);
            self.exchange.guess = Some(step);
        }
        self.exchange.count += 1;
        self.exchange.local_init = init;
        self.exchange.step = Step::AwaitInit;
        self.exchange.deadline = Some(deadline);
        self.gate = Gate::Closed;
        Ok(())
    }

    /// Whether a guess in a later exchange is right, by what the first one showed, and understood: the
    /// peer is one of us, or was known to be such from the start. It saves the rekey a round trip.
    fn is_guess_known(&self, is_understood: bool) -> bool {
        let seen = self.exchange.remote_proposal.as_ref();
        let is_ours = is_fullbore(self.versions.remote());
        seen.is_some_and(|proposal| proposal.is_guess_right) && (is_understood || is_ours)
    }

    /// The peer's KEXINIT.
    pub(super) fn on_kexinit(&mut self, now: Instant) -> Result<(), Error> {
        let kexinit = self.payload().to_vec();
        if kexinit.len() > KEXINIT_BYTES_MAX {
            return Err(FieldError::StringTooLong.into());
        }
        match self.exchange.step {
            Step::Idle if self.exchange.pending_send.is_some() => {
                // Own NEWKEYS is still here, so the peer cannot be done with the exchange before.
                return Err(PeerMisbehaved::KexInitTwice.into());
            }
            Step::Idle => {
                if !self.is_authenticated && self.exchange.count >= KEX_BEFORE_AUTH_MAX {
                    return Err(PeerMisbehaved::TooManyRequests.into());
                }
                if self.is_authenticated && self.hold_kexinit(now, &kexinit) {
                    return Ok(());
                }
                self.start_exchange(now)?;
            }
            Step::AwaitInit => {}
            Step::Client(..)
            | Step::Server(..)
            | Step::AwaitVerdict(..)
            | Step::AwaitNewKeys(_) => {
                return Err(PeerMisbehaved::KexInitTwice.into());
            }
        }
        self.answer_kexinit(kexinit)
    }

    /// Takes the peer's KEXINIT, own being queued.
    pub(super) fn answer_kexinit(&mut self, payload: Vec<u8>) -> Result<(), Error> {
        let remote = KexInit::parse(&payload)?;
        let offer = self.role.offer();
        if self.exchange.count == 1 {
            self.note_markers(&remote, offer.strict)?;
            self.exchange.remote_proposal = Proposal::of(&remote, &offer);
        }
        let mut algorithms = offer.negotiate(&remote)?;
        algorithms.strict = self.exchange.strict;
        let guess_is_right = offer.guess_is_right(&remote);
        self.exchange.skip_guess = remote.guess_follows && !guess_is_right;
        let transcript = self.transcript(payload);
        let negotiated = Negotiated {
            algorithms,
            transcript,
        };
        self.start_method(negotiated, guess_is_right)
    }

    /// The markers of the first exchange: strict kex and EXT_INFO.
    fn note_markers(&mut self, remote: &KexInit<'_>, strict_offered: bool) -> Result<(), Error> {
        let (strict, ext_info) = if self.role.is_client() {
            (STRICT_SERVER, EXT_INFO_SERVER)
        } else {
            (STRICT_CLIENT, EXT_INFO_CLIENT)
        };
        self.exchange.strict = strict_offered && remote.kex.contains(strict);
        self.exchange.remote_ext_info = remote.kex.contains(ext_info);
        match self.exchange.early_message {
            Some(message) if self.exchange.strict => {
                Err(PeerMisbehaved::StrictKexViolation { message }.into())
            }
            Some(_) | None => Ok(()),
        }
    }

    fn transcript(&mut self, remote_init: Vec<u8>) -> Transcript {
        let local_init = std::mem::take(&mut self.exchange.local_init);
        let local_version = self.versions.local().to_vec();
        let remote_version = self.versions.remote().to_vec();
        if self.role.is_client() {
            Transcript {
                client_version: local_version,
                server_version: remote_version,
                client_kexinit: local_init,
                server_kexinit: remote_init,
            }
        } else {
            Transcript {
                client_version: remote_version,
                server_version: local_version,
                client_kexinit: remote_init,
                server_kexinit: local_init,
            }
        }
    }

    fn start_method(&mut self, negotiated: Negotiated, guess_is_right: bool) -> Result<(), Error> {
        let method = negotiated.algorithms.kex;
        if !self.role.is_client() {
            self.exchange.step = Step::Server(negotiated, ServerStep::start(method));
            return Ok(());
        }
        let guess = self.exchange.guess.take().filter(|_| guess_is_right);
        let step = if let Some(step) = guess {
            step
        } else {
            let (step, message) = ClientStep::start(method, &mut *self.provider)?;
            self.control.push(message);
            step
        };
        self.exchange.step = Step::Client(negotiated, step);
        Ok(())
    }

    /// A message of the method, 30 to 49.
    pub(super) fn on_method_message(&mut self, message: u8) -> Result<(), Error> {
        if self.exchange.take_skip() {
            return Ok(());
        }
        let unexpected = Err(PeerMisbehaved::UnexpectedMessage { message }.into());
        match std::mem::replace(&mut self.exchange.step, Step::Idle) {
            Step::Client(negotiated, step) => self.on_client_message(message, negotiated, step),
            Step::Server(negotiated, step) => self.on_server_message(message, negotiated, step),
            step @ (Step::Idle
            | Step::AwaitInit
            | Step::AwaitVerdict(..)
            | Step::AwaitNewKeys(_)) => {
                self.exchange.step = step;
                unexpected
            }
        }
    }

    fn on_client_message(
        &mut self,
        message: u8,
        negotiated: Negotiated,
        step: ClientStep,
    ) -> Result<(), Error> {
        use crate::kex::AwaitGroup;
        let payload = self.payload().to_vec();
        match step {
            ClientStep::Group(step) if message == AwaitGroup::MESSAGE => {
                let (step, reply) = step.on_group(&payload, &mut *self.provider)?;
                self.control.push(reply);
                self.exchange.step = Step::Client(negotiated, ClientStep::Reply(step));
                Ok(())
            }
            ClientStep::Reply(step) if message == step.message() => {
                let algorithm = negotiated.algorithms.host_key;
                let Reply { agreed, host_key } = step.on_reply(
                    &payload,
                    &negotiated.transcript,
                    algorithm,
                    &mut *self.provider,
                )?;
                let offer = HostKeyOffer {
                    algorithm,
                    blob: host_key,
                };
                self.on_reply(negotiated, agreed, offer)
            }
            ClientStep::Group(_) | ClientStep::Reply(_) => {
                Err(PeerMisbehaved::UnexpectedMessage { message }.into())
            }
        }
    }

    /// The signature is good. In a later exchange the key must be the one accepted in the first.
    fn on_reply(
        &mut self,
        negotiated: Negotiated,
        agreed: Agreed,
        offer: HostKeyOffer,
    ) -> Result<(), Error> {
        match self.session.as_ref().and_then(|s| s.host_key.as_ref()) {
            None => {
                // A person may take as long as they like.
                self.exchange.deadline = None;
                self.exchange.step = Step::AwaitVerdict(Box::new(negotiated), agreed, offer);
                Ok(())
            }
            Some(accepted) if accepted.blob == offer.blob => {
                self.finish_exchange(negotiated, &agreed, None);
                Ok(())
            }
            Some(_) => Err(PeerMisbehaved::HostKeyChanged.into()),
        }
    }

    fn on_server_message(
        &mut self,
        message: u8,
        negotiated: Negotiated,
        step: ServerStep,
    ) -> Result<(), Error> {
        use crate::kex::AwaitGroupRequest;
        let payload = self.payload().to_vec();
        match step {
            ServerStep::GroupRequest(step) if message == AwaitGroupRequest::MESSAGE => {
                let (step, reply) = step.on_request(&payload)?;
                self.control.push(reply);
                self.exchange.step = Step::Server(negotiated, ServerStep::Init(step));
                Ok(())
            }
            ServerStep::Init(step) if message == step.message() => {
                let algorithm = negotiated.algorithms.host_key;
                let key = self
                    .role
                    .host_key(algorithm)
                    .expect("only algorithms that a key serves are offered");
                let blob = key.blob(algorithm.name());
                let signer = Signer { key, algorithm };
                let (agreed, reply) = step.on_init(
                    &payload,
                    &negotiated.transcript,
                    &signer,
                    &mut *self.provider,
                )?;
                self.control.push(reply);
                let shown = blob.map(|blob| HostKeyOffer { algorithm, blob });
                self.finish_exchange(negotiated, &agreed, shown);
                Ok(())
            }
            ServerStep::GroupRequest(_) | ServerStep::Init(_) => {
                Err(PeerMisbehaved::UnexpectedMessage { message }.into())
            }
        }
    }

    /// The application's verdict on the host key.
    pub(super) fn on_verdict(&mut self, now: Instant, proof: HostKeyVerified) -> Result<(), Error> {
        match std::mem::replace(&mut self.exchange.step, Step::Idle) {
            Step::AwaitVerdict(negotiated, agreed, offer) if proof.blob == offer.blob => {
                self.exchange.deadline = Some(now + self.role.transport().kex_timeout);
                self.finish_exchange(*negotiated, &agreed, Some(offer));
                Ok(())
            }
            step @ (Step::Idle
            | Step::AwaitInit
            | Step::Client(..)
            | Step::Server(..)
            | Step::AwaitVerdict(..)
            | Step::AwaitNewKeys(_)) => {
                self.exchange.step = step;
                Err(ApiMisuse::NoSuchHostKey.into())
            }
        }
    }

    /// Makes the keys and queues own NEWKEYS, with EXT_INFO behind the first.
    fn finish_exchange(
        &mut self,
        negotiated: Negotiated,
        agreed: &Agreed,
        host_key: Option<HostKeyOffer>,
    ) {
        let is_first = self.session.is_none();
        let algorithms = negotiated.algorithms;
        let session = self.session.get_or_insert_with(|| Session {
            id: agreed.exchange_hash.clone(),
            algorithms: algorithms.clone(),
            host_key,
        });
        session.algorithms = algorithms;
        let algorithms = &session.algorithms;
        let to_server = (
            algorithms.client_to_server,
            algorithms.compression_client_to_server,
            Direction::ClientToServer,
        );
        let to_client = (
            algorithms.server_to_client,
            algorithms.compression_server_to_client,
            Direction::ServerToClient,
        );
        let (send, recv) = if self.role.is_client() {
            (to_server, to_client)
        } else {
            (to_client, to_server)
        };
        let send_material = derive(agreed, &session.id, send.0, send.2);
        let recv_material = derive(agreed, &session.id, recv.0, recv.2);
        self.exchange.pending_send = Some(SendKeys {
            key: self.provider.sealing_key(send.0, &send_material),
            suite: send.0,
            compression: send.1,
        });
        self.exchange.step = Step::AwaitNewKeys(RecvKeys {
            key: self.provider.opening_key(recv.0, &recv_material),
            suite: recv.0,
            compression: recv.1,
        });
        self.control.push(vec![SSH_MSG_NEWKEYS]);
        if is_first && self.exchange.remote_ext_info {
            self.control.push(if self.role.is_client() {
                ext_info::client_message()
            } else {
                ext_info::server_message()
            });
        }
    }

    /// The peer's NEWKEYS: its packets change keys.
    pub(super) fn on_newkeys(&mut self, now: Instant) -> Result<(), Error> {
        if self.payload().len() != 1 {
            return Err(FieldError::TrailingBytes.into());
        }
        match std::mem::replace(&mut self.exchange.step, Step::Idle) {
            Step::AwaitNewKeys(keys) => {
                let reset = self.exchange.strict;
                self.opener.direction.install(
                    keys.key,
                    keys.suite.layout(),
                    keys.compression,
                    reset,
                );
                self.exchange.deadline = None;
                self.exchange.last_done = now;
                self.exchange.done_count += 1;
                Ok(())
            }
            step @ (Step::Idle
            | Step::AwaitInit
            | Step::Client(..)
            | Step::Server(..)
            | Step::AwaitVerdict(..)) => {
                self.exchange.step = step;
                let message = SSH_MSG_NEWKEYS;
                Err(PeerMisbehaved::UnexpectedMessage { message }.into())
            }
        }
    }

    /// Own NEWKEYS was sealed: own packets change keys.
    pub(super) fn on_newkeys_sealed(&mut self) {
        let keys = self
            .exchange
            .pending_send
            .take()
            .expect("NEWKEYS is queued together with its keys");
        let reset = self.exchange.strict;
        self.sealer
            .direction
            .install(keys.key, keys.suite.layout(), keys.compression, reset);
        self.gate = Gate::Opening;
    }

    /// The refusal of a host key.
    pub(super) fn on_rejection(&mut self, why: &str) {
        if matches!(self.exchange.step, Step::AwaitVerdict(..)) {
            self.fail(
                Closed::HostKeyRejected {
                    why: why.to_owned(),
                }
                .into(),
            );
        }
    }
}

impl Role {
    /// What this side offers. A server offers the host key algorithms that it has keys for.
    fn offer(&self) -> Offer {
        let config = self.transport();
        let host_keys = config
            .host_key_algorithms
            .iter()
            .filter_map(|name| HostKeyAlgorithm::from_name(name))
            .filter(|a| self.is_client() || self.host_key(*a).is_some())
            .collect();
        Offer::new(config, self.is_client(), host_keys)
    }
}
