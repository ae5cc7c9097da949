//! Logging in: keys, keyboard-interactive, passwords, in the order the user prefers and with as
//! few round trips as they allow.

use fullbore_ssh::Event;
use fullbore_ssh::auth::{
    Attempt, KeyAttempt, Method, MethodSet, Outcome, PromptKind, Signer, SignerFailed,
};
use fullbore_ssh::key::{PrivateKey, Secret};

use super::connect::Context;
use super::core::Core;
use super::error::Error;
use super::host_key::{self, Trust};
use super::keys::{Candidate, Candidates, Holder, is_accepted};
use super::patience::login_answer_timeout;
use crate::config::ssh_config::{HostConfig, LogLevel};
use crate::config::text::escape_for_display;

/// How often a passphrase is asked for, for one key. OpenSSH's number.
const PASSPHRASES_MAX: u32 = 3;

/// A login that succeeded.
#[derive(Debug)]
pub(super) struct LoggedIn {
    pub(super) trust: Trust,
    /// What did it, in words.
    pub(super) method: String,
    /// The fingerprint of the key that did.
    pub(super) key: Option<String>,
}

impl LoggedIn {
    /// Another process was logged in, and shares its connection.
    pub(super) fn elsewhere() -> Self {
        Self {
            trust: Trust::Full,
            method: String::new(),
            key: None,
        }
    }
}

/// What these methods are called among what was tried.
const PASSWORD: &str = "password";
const INTERACTIVE: &str = "keyboard-interactive";

/// A login under way.
pub(super) struct Login<'a> {
    core: &'a Core,
    host: &'a HostConfig,
    context: &'a Context,
    candidates: Candidates,
    /// The next candidate.
    next_key: usize,
    /// Fingerprint of the key that was right at an earlier login.
    proven: Option<String>,
    /// The candidate that is being tried.
    current: Option<Candidate>,
    interactive_left: u32,
    /// Something was asked since keyboard-interactive was begun last.
    was_asked: bool,
    passwords_left: u32,
    trust: Trust,
    banner_told: usize,
    /// What was tried, for the error.
    tried: Vec<String>,
    /// Why the current candidate signed nothing.
    unsigned: Option<&'static str>,
    /// A question for a password was not answered.
    is_unanswered: bool,
}

impl<'a> Login<'a> {
    /// `proven` is the fingerprint of the key that was right at an earlier login.
    pub(super) async fn new(
        core: &'a Core,
        host: &'a HostConfig,
        context: &'a Context,
        proven: Option<&str>,
    ) -> Self {
        let auth = &host.auth;
        let mut candidates = Candidates::find(auth, &*context.environment).await;
        let accepted = &host.algorithms.pubkey_accepted;
        candidates
            .list
            .retain(|c| is_accepted(&c.identity, accepted));
        candidates.drop_short_rsa(host.algorithms.rsa_bits_min);
        if let Some(proven) = proven.filter(|_| !auth.identity_files.iter().any(|f| f.given)) {
            candidates.prefer(proven);
        }
        let asks = if auth.batch { 0 } else { auth.password_prompts };
        Self {
            core,
            host,
            context,
            candidates,
            next_key: 0,
            proven: proven.map(str::to_owned),
            current: None,
            interactive_left: if auth.keyboard_interactive { asks } else { 0 },
            was_asked: true,
            passwords_left: if auth.password { asks } else { 0 },
            trust: Trust::Full,
            banner_told: 0,
            tried: Vec::new(),
            unsigned: None,
            is_unanswered: false,
        }
    }

    /// Runs until the user is in; returns how that came about.
    pub(super) async fn run(mut self) -> Result<LoggedIn, Error> {
        loop {
            let event = self.next_news().await?;
            match event {
                Event::HostKey => {
                    self.trust = host_key::check(self.core, self.host, self.context).await?;
                    self.first_attempt().await?;
                }
                Event::Banner => self.show_banner().await,
                Event::AuthNeeded => self.next_attempt().await?,
                Event::SignatureNeeded => self.sign().await?,
                Event::Prompt => self.answer().await?,
                Event::Authenticated => return Ok(self.logged_in()),
                _ => {}
            }
        }
    }

    /// What the server says next. A person's part is over by the time it is waited for.
    async fn next_news(&self) -> Result<Event, Error> {
        let patience = login_answer_timeout(self.host);
        let error = match tokio::time::timeout(patience, self.core.news()).await {
            Ok(Ok(event)) => return Ok(event),
            Ok(Err(error)) => error,
            Err(_) => {
                let (peer, seconds) = (&self.core.peer, patience.as_secs());
                let text = format!("{peer}: no answer to the login within {seconds} s");
                Error::Connect(text.into())
            }
        };
        Err(self.explain(error))
    }

    fn logged_in(self) -> LoggedIn {
        let method = match (&self.current, self.tried.last()) {
            (Some(candidate), _) => candidate.name.clone(),
            (None, Some(method)) => method.clone(),
            (None, None) => "nothing asked".to_owned(),
        };
        LoggedIn {
            trust: self.trust,
            method,
            key: self.current.as_ref().map(Candidate::fingerprint),
        }
    }

    /// Sends the most promising attempt without having asked what the server takes.
    async fn first_attempt(&mut self) -> Result<(), Error> {
        match self.key_attempt() {
            Some(attempt) => {
                if attempt.known && self.candidates.list.len() == 1 {
                    self.core
                        .change(|state, _| state.session.conn_mut().presume_patience());
                }
                self.attempt(Attempt::PublicKey(attempt))
            }
            None => self.attempt(Attempt::None),
        }
    }

    /// Picks the next attempt, now that the server has said what it takes.
    async fn next_attempt(&mut self) -> Result<(), Error> {
        let (offered, names) = self.core.look(|state| {
            let methods = state.session.conn().auth_methods().cloned();
            let methods = methods.unwrap_or_default();
            (methods.offered, methods.names)
        });
        self.note_outcome();
        let Some(offered) = offered else {
            return self.first_attempt().await;
        };
        for method in self.order() {
            if !offered.contains(method) {
                continue;
            }
            let attempt = match method {
                Method::PublicKey => self.key_attempt().map(Attempt::PublicKey),
                Method::KeyboardInteractive => self.interactive_attempt().await,
                Method::Password => self.password_attempt().await,
            };
            if let Some(attempt) = attempt {
                return self.attempt(attempt);
            }
        }
        Err(self.denied(offered, &names))
    }

    fn attempt(&mut self, attempt: Attempt) -> Result<(), Error> {
        let result = self
            .core
            .change(|state, _| state.session.conn_mut().authenticate(attempt));
        match result {
            // The event that the engine is idle may come behind an attempt that was made early.
            Ok(()) | Err(fullbore_ssh::Error::ApiMisuse(_)) => Ok(()),
            Err(error) => Err(self.explain(Error::Connect(error.to_string().into()))),
        }
    }

    /// Methods in the user's order.
    fn order(&self) -> Vec<Method> {
        let preferred = &self.host.auth.preferred;
        if preferred.is_empty() {
            return Method::ALL.to_vec();
        }
        let by_name = |name: &String| Method::ALL.into_iter().find(|m| m.name() == name);
        preferred.iter().filter_map(by_name).collect()
    }

    fn key_attempt(&mut self) -> Option<KeyAttempt> {
        let is_only = self.candidates.list.len() == 1;
        let candidate = self.candidates.list.get(self.next_key)?.clone();
        self.next_key += 1;
        let (signer, known) = match &candidate.holder {
            // A signature costs us less than a round trip, and binds to this session only.
            Holder::Open(key) => (Signer::Local(key.clone()), true),
            // Perhaps a touch, or a question: only when nothing else can be meant, or it was right
            // before and needs no touch.
            Holder::Agent => {
                let is_proven = self.proven.as_ref() == Some(&candidate.fingerprint());
                (
                    Signer::External,
                    is_only || (is_proven && !candidate.is_touched()),
                )
            }
            Holder::Locked(_) => (Signer::External, false),
        };
        let attempt = KeyAttempt {
            identity: candidate.identity.clone(),
            signer,
            algorithm: None,
            known,
        };
        self.current = Some(candidate);
        Some(attempt)
    }

    /// Says that what was given just now was wrong, before the same is asked for again.
    async fn say_if_again(&self, method: &str) {
        if self.tried.last().is_some_and(|last| last == method) {
            let text = "Permission denied, please try again.";
            self.context.asker.tell(text.to_owned()).await;
        }
    }

    async fn interactive_attempt(&mut self) -> Option<Attempt> {
        if self.trust == Trust::NoSecrets || self.interactive_left == 0 {
            return None;
        }
        if !self.was_asked {
            // Refused without a question: nobody could answer differently the next time.
            self.interactive_left = 0;
            return None;
        }
        self.was_asked = false;
        self.interactive_left -= 1;
        self.say_if_again(INTERACTIVE).await;
        self.tried.push(INTERACTIVE.to_owned());
        Some(Attempt::KeyboardInteractive)
    }

    async fn password_attempt(&mut self) -> Option<Attempt> {
        if self.trust == Trust::NoSecrets || self.passwords_left == 0 {
            return None;
        }
        self.passwords_left -= 1;
        self.say_if_again(PASSWORD).await;
        let question = format!("{}@{}'s password: ", self.host.user, self.host.host_name);
        let Some(password) = self.context.asker.secret(question).await else {
            self.passwords_left = 0;
            self.is_unanswered = true;
            return None;
        };
        self.tried.push(PASSWORD.to_owned());
        Some(Attempt::Password(password))
    }

    /// Keeps what became of the key that was tried.
    fn note_outcome(&mut self) {
        let outcome = self.core.look(|state| {
            let methods = state.session.conn().auth_methods();
            methods.and_then(|methods| methods.outcome)
        });
        let (Some(candidate), Some(outcome)) = (self.current.take(), outcome) else {
            return;
        };
        let what = match outcome {
            Outcome::Refused => None,
            Outcome::Partial => Some("accepted, but not enough"),
            Outcome::NoCommonAlgorithm => Some("the server takes no signature algorithm of it"),
            Outcome::SignerFailed => Some(self.unsigned.take().unwrap_or("could not sign")),
        };
        self.tried.push(match what {
            Some(what) => format!("{} ({what})", candidate.name),
            None => candidate.name,
        });
    }

    /// Signs with the agent, or with a key file once its passphrase is there.
    async fn sign(&mut self) -> Result<(), Error> {
        let request = self.core.look(|state| {
            let request = state.session.conn().signature_request()?;
            let (data, blob) = (request.data.to_vec(), request.key_blob.to_vec());
            Some((data, blob, request.algorithm, request.agent_flags))
        });
        let Some((data, blob, algorithm, flags)) = request else {
            return Ok(());
        };
        let holder = self.current.as_ref().map(|c| c.holder.clone());
        let signature = match holder {
            Some(Holder::Agent) => match &mut self.candidates.agent {
                Some(agent) => agent.sign(&blob, &data, flags).await.ok(),
                None => None,
            },
            Some(Holder::Locked(path)) => match self.unlock(&path).await {
                Ok(key) => key.sign(algorithm, &data).ok(),
                Err(why) => {
                    self.unsigned = Some(why);
                    None
                }
            },
            Some(Holder::Open(key)) => key.sign(algorithm, &data).ok(),
            None => None,
        };
        self.core.change(|state, _| {
            let conn = state.session.conn_mut();
            // Misuse only: the request was there a moment ago, or the connection has died, which
            // the next event tells.
            let _ = conn.provide_signature(signature.ok_or(SignerFailed));
        });
        Ok(())
    }

    /// The key behind a passphrase, or why there is none.
    async fn unlock(&self, path: &std::path::Path) -> Result<PrivateKey, &'static str> {
        if self.host.auth.batch {
            return Err("its passphrase is not asked for, because BatchMode is on");
        }
        let text = self.context.environment.read_file(path, 256 * 1024);
        let text = text.map_err(|_| "could not be read again")?;
        let text = std::sync::Arc::new(zeroize::Zeroizing::new(text));
        for _ in 0..PASSPHRASES_MAX {
            let question = format!("Enter passphrase for key '{}': ", path.display());
            let passphrase = self.context.asker.secret(question).await;
            let Some(passphrase) = passphrase.filter(|text| !text.is_empty()) else {
                return Err("its passphrase was asked for and not given");
            };
            // The derivation takes a good part of a second: not on the connections' thread.
            let text = text.clone();
            let opened = tokio::task::spawn_blocking(move || {
                PrivateKey::from_file(&text, Some(&passphrase)).ok()
            });
            if let Ok(Some(key)) = opened.await {
                return Ok(key);
            }
            self.context
                .asker
                .tell("Wrong passphrase.".to_owned())
                .await;
        }
        Err("wrong passphrase")
    }

    /// Puts the server's questions to the user.
    async fn answer(&mut self) -> Result<(), Error> {
        let Some(prompts) = self.core.look(|s| s.session.conn().prompts().cloned()) else {
            return Ok(());
        };
        self.was_asked |= !prompts.prompts.is_empty();
        let asker = &self.context.asker;
        for text in [&prompts.name, &prompts.instruction] {
            if !text.is_empty() {
                asker.tell(printable(text.as_bytes())).await;
            }
        }
        let mut answers = Vec::new();
        let who = format!("({}@{}) ", self.host.user, self.host.host_name);
        for prompt in &prompts.prompts {
            let question = format!("{who}{} ", printable(prompt.text.as_bytes()));
            let answer = match prompts.kind {
                PromptKind::PasswordChange => self.new_password().await,
                PromptKind::KeyboardInteractive if prompt.echo => asker.text(question).await,
                PromptKind::KeyboardInteractive => asker.secret(question).await,
            };
            let Some(answer) = answer else {
                let why = "the server's question was not answered";
                return Err(self.explain(Error::Connect(why.into())));
            };
            answers.push(answer);
        }
        let result = self
            .core
            .change(|state, _| state.session.conn_mut().answer_prompts(answers));
        result.map_err(|error| self.explain(Error::Connect(error.to_string().into())))
    }

    /// A new password, typed twice.
    async fn new_password(&self) -> Option<Secret> {
        let asker = &self.context.asker;
        let who = format!("{}@{}'s", self.host.user, self.host.host_name);
        loop {
            let new = asker.secret(format!("Enter {who} new password: ")).await?;
            let again = asker.secret(format!("Retype {who} new password: ")).await?;
            if new.is_equal(again.expose()) {
                return Some(new);
            }
            asker
                .tell("The two are not the same; try again.".to_owned())
                .await;
        }
    }

    async fn show_banner(&mut self) {
        let new = self.core.look(|state| {
            let banner = state.session.conn().banner();
            banner.get(self.banner_told..).unwrap_or_default().to_vec()
        });
        self.banner_told += new.len();
        if self.host.session.log_level >= LogLevel::Info {
            self.context.asker.tell(printable(&new)).await;
        }
    }

    /// What was tried, on what, why it failed and what to do.
    fn denied(&self, offered: MethodSet, names: &str) -> Error {
        let mut text = format!(
            "{}@{}: Permission denied. The server takes: {}.",
            self.host.user,
            self.host.host_name,
            escape_for_display(names.as_bytes())
        );
        if self.tried.is_empty() {
            text.push_str(" Nothing could be tried");
        } else {
            text.push_str(&format!(" Tried: {}", self.tried_in_words()));
        }
        for remark in &self.candidates.remarks {
            text.push_str(&format!(". {remark}"));
        }
        text.push('.');
        if offered.contains(Method::PublicKey) {
            text.push_str(
                " Give a key with -i, or have yours added to authorized_keys on the server.",
            );
        }
        if self.host.auth.batch {
            text.push_str(" Nobody was asked for a password, because BatchMode is on.");
        }
        if self.is_unanswered {
            text.push_str(
                " A password was asked for and not given: without a terminal nobody can be asked.",
            );
        }
        Error::Connect(text.into())
    }

    /// Adds what was tried to an error that ended the connection meanwhile.
    fn explain(&self, error: Error) -> Error {
        if self.tried.is_empty() {
            return Error::Connect(error.to_string().into());
        }
        let mut text = format!("{error}. Tried: {}", self.tried_in_words());
        if self.candidates.list.len() > 1 {
            text.push_str(
                ". Servers end a login after some wrong keys: name the right one with -i, and add \
                 -o IdentitiesOnly=yes",
            );
        }
        Error::Connect(text.into())
    }

    /// `key /a; password (3 times)`.
    fn tried_in_words(&self) -> String {
        let runs = self.tried.chunk_by(|one, next| one == next);
        let words = runs.map(|run| match run.len() {
            1 => run[0].clone(),
            times => format!("{} ({times} times)", run[0]),
        });
        words.collect::<Vec<_>>().join("; ")
    }
}

/// The server's words without what could steer a terminal; line breaks stay.
fn printable(text: &[u8]) -> String {
    let lines = text.trim_ascii_end().split(|&b| b == b'\n');
    let lines = lines.map(|line| escape_for_display(line.strip_suffix(b"\r").unwrap_or(line)));
    lines.collect::<Vec<_>>().join("\n")
}
