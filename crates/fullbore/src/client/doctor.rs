//! Measures a connection for `fullbore doctor`: phases, round trips, rates.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSliceMut};
use std::rc::Rc;
use std::time::Duration;

use fullbore_base::{Instant, Rng};
use fullbore_sftp::client::Handle;
use fullbore_sftp::proto::{Attrs, OpenFlags};
use fullbore_ssh::provider::SecureRandom as _;

use super::connection::Connection;
use super::error::Error;
use super::sftp::Sftp;
use crate::config::quirks::Quirks;
use crate::config::text::escape_for_display;
use crate::driver::clock::Clock;
use crate::driver::random::SystemRandom;
use crate::driver::{cipher_speed, sysctl};
use crate::path::Limit;
use crate::path::doctor::{Findings, Phase, Probe, RoundTrips};
use crate::transfer::{FileIo, Pool, Span, join};

/// Pings to tell the path from chance, and how long they may take together.
const PINGS: usize = 10;
const PINGS_TIME: Duration = Duration::from_secs(4);

/// How long pings rest in between.
const PING_REST: Duration = Duration::from_millis(20);

/// Length of the temporary file where the server has no devices: written and read again and again.
const SCRATCH_BYTES: u64 = 256 * 1024 * 1024;

/// How long a first byte may take, and a direction go on past its time while nothing at all has arrived.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes that are sent over and over: random, so that nothing on the way makes them fewer.
const PATTERN_BYTES: usize = 1024 * 1024;

/// A server under examination.
#[derive(Debug)]
pub struct Examination {
    sftp: Sftp,
    clock: Clock,
    time: Duration,
    /// The folder for a temporary file; none: the devices are used.
    folder: Option<Vec<u8>>,
    /// The temporary file that has to be removed.
    scratch: RefCell<Option<Vec<u8>>>,
    /// Makes the temporary file's name, and what is sent.
    seed: u64,
}

/// What a direction moves bytes from or to.
struct Place {
    path: Vec<u8>,
    handle: Handle,
    /// Where its content ends; none: never.
    len: Option<u64>,
}

impl Examination {
    /// Of the server behind `sftp`, `time` for each direction. With a `folder`, rates are those of a
    /// temporary file in it; else those of the devices, where the server has them.
    #[must_use]
    pub fn new(sftp: Sftp, clock: Clock, time: Duration, folder: Option<Vec<u8>>) -> Self {
        let mut seed = [0; 8];
        SystemRandom::new().fill(&mut seed);
        Self {
            sftp,
            clock,
            time,
            folder,
            scratch: RefCell::new(None),
            seed: u64::from_le_bytes(seed),
        }
    }

    fn connection(&self) -> &Connection {
        self.sftp.connection()
    }

    /// Measures everything; `tell` is called with what is about to be done.
    ///
    /// # Errors
    /// When the connection is lost, or no file can be used at all.
    pub async fn run(&self, tell: &dyn Fn(&str)) -> Result<Findings, Error> {
        self.sftp.ready().await?;
        self.check_folder().await?;
        let mut found = self.describe();
        found.phases = self.phases();
        tell("measuring the round-trip time");
        match self.ping().await? {
            Some(round_trips) => found.round_trips = round_trips,
            None => found.gaps.push(format!(
                "the round-trip time could not be measured: no ping was answered within {} s",
                PINGS_TIME.as_secs()
            )),
        }
        found.phases.extend(self.first_byte().await?);
        // Upwards first: where a temporary file is needed, it is there to be read then.
        tell("sending");
        let up = self.up(std::slice::from_ref(&self.sftp)).await;
        found.up = kept("sending", up, &mut found.gaps)?;
        if let Some(Limit::PeerWindow { .. }) = found.up.as_ref().map(Probe::limit) {
            tell("sending over several channels");
            let wide = self.up_wide().await;
            found.up_wide = kept("sending over several channels", wide, &mut found.gaps)?.flatten();
        }
        tell("receiving");
        let down = self.down().await;
        found.down = kept("receiving", down, &mut found.gaps)?;
        if let Err(error) = self.clean_up().await {
            found.gaps.push(error.to_string());
        }
        Ok(found)
    }

    /// Removes the temporary file; to be called, too, when [`Examination::run`] was given up, at whatever
    /// moment.
    ///
    /// # Errors
    /// When it stays, with its name.
    pub async fn clean_up(&self) -> Result<(), Error> {
        let Some(path) = self.left() else {
            return Ok(());
        };
        match self.sftp.remove(&path).await {
            Err(error) if !error.is_not_found() => {
                let path = escape_for_display(&path);
                Err(Error::Exec(
                    format!("{path} stays on the server: {error}").into(),
                ))
            }
            // Where it is not there, it was not made yet.
            Ok(()) | Err(_) => {
                self.scratch.take();
                Ok(())
            }
        }
    }

    /// The temporary file that is, or may be, on the server.
    #[must_use]
    pub fn left(&self) -> Option<Vec<u8>> {
        self.scratch.borrow().clone()
    }

    /// A folder that was named must be there.
    async fn check_folder(&self) -> Result<(), Error> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let name = escape_for_display(folder);
        match self.sftp.stat(folder).await {
            Ok(attrs) if attrs.is_dir() => Ok(()),
            Ok(_) => Err(Error::Exec(format!("{name} is no folder there").into())),
            Err(error) if error.is_fatal() => Err(error),
            Err(error) => Err(Error::Exec(format!("{name}: {error}").into())),
        }
    }

    fn describe(&self) -> Findings {
        let connection = self.connection();
        let agreed = connection.algorithms();
        let algorithms = agreed.as_ref().map_or_else(String::new, |agreed| {
            format!(
                "{}, {}, {}, compression {}",
                agreed.kex.name(),
                agreed.host_key.name(),
                agreed.client_to_server.cipher.name(),
                agreed.compression_client_to_server.name(),
            )
        });
        let cipher = agreed.and_then(|agreed| {
            let cipher = agreed.client_to_server.cipher;
            Some((cipher.name(), cipher_speed::measure(cipher)?))
        });
        let settings = sysctl::NETWORK.iter();
        Findings {
            version: escape_for_display(&connection.remote_version()),
            profile: connection.quirks(Quirks::describe),
            algorithms,
            cipher,
            settings: settings
                .filter_map(|name| Some((*name, sysctl::read(name)?)))
                .collect(),
            ..Findings::default()
        }
    }

    fn phases(&self) -> Vec<Phase> {
        let milestones = self.connection().milestones();
        let mut phases = Vec::new();
        if let Some(dialed) = milestones.dialed {
            phases.push(Phase {
                name: "name lookup",
                time: dialed.lookup,
            });
            phases.push(Phase {
                name: "TCP",
                time: dialed.connect,
            });
        }
        let mut before = Duration::ZERO;
        for (name, at) in [
            ("version", milestones.version),
            ("key exchange", milestones.keys),
            ("login", milestones.login),
            ("channel and SFTP", milestones.sftp),
        ] {
            if let Some(at) = at {
                let time = at.saturating_sub(before);
                phases.push(Phase { name, time });
                before = at;
            }
        }
        phases
    }

    /// `None` where the server answers none.
    async fn ping(&self) -> Result<Option<RoundTrips>, Error> {
        let until = self.clock.now() + PINGS_TIME;
        let mut samples = Vec::with_capacity(PINGS);
        while samples.len() < PINGS && (samples.is_empty() || self.clock.now() < until) {
            let ping = tokio::time::timeout(PINGS_TIME, self.connection().round_trip());
            match ping.await {
                Ok(sample) => samples.push(sample?),
                Err(_) => break,
            }
            tokio::time::sleep(PING_REST).await;
        }
        Ok((!samples.is_empty()).then(|| RoundTrips::of(&samples)))
    }

    /// From asking for a file to its first byte.
    async fn first_byte(&self) -> Result<Option<Phase>, Error> {
        let started = self.clock.now();
        let Ok(handle) = self.open(b"/dev/zero", OpenFlags::READ).await else {
            return self.unless_lost(None);
        };
        let read = tokio::time::timeout(PATIENCE, self.sftp.read(&handle, 0, 1)).await;
        let time = self.clock.now() - started;
        self.sftp.release(&handle).await?;
        let is_read = matches!(read, Ok(Ok(_)));
        Ok(is_read.then_some(Phase {
            name: "open and first byte",
            time,
        }))
    }

    /// A refusal is one answer, the end of the connection another.
    fn unless_lost<T>(&self, value: T) -> Result<T, Error> {
        let core = &self.connection().core;
        match core.look(|state| state.closed().cloned()) {
            Some(error) => Err(error),
            None => Ok(value),
        }
    }

    async fn open(&self, path: &[u8], flags: OpenFlags) -> Result<Handle, Error> {
        self.sftp.open(path, flags, &Attrs::EMPTY).await
    }

    /// Whether `path` is a device there.
    async fn is_device(&self, path: &[u8]) -> bool {
        let attrs = self.sftp.stat(path).await;
        // S_IFCHR.
        let kind = attrs.ok().and_then(|attrs| attrs.permissions);
        self.folder.is_none() && kind.is_some_and(|mode| mode & 0o170_000 == 0o020_000)
    }

    async fn place_to_write(&self) -> Result<Place, Error> {
        let device = b"/dev/null".to_vec();
        if self.is_device(&device).await
            && let Ok(handle) = self.open(&device, OpenFlags::WRITE).await
        {
            let len = None;
            return Ok(Place {
                path: device,
                handle,
                len,
            });
        }
        let name = format!(
            ".fullbore-doctor-{:016x}",
            Rng::seeded(self.seed).next_u64()
        );
        let folder = self.folder.as_deref().unwrap_or_default();
        let path = match folder {
            b"" => name.into_bytes(),
            folder => join(folder, name.as_bytes()),
        };
        let flags = OpenFlags::WRITE
            .with(OpenFlags::CREAT)
            .with(OpenFlags::EXCL);
        // Before it is made: who gives up while it is being made has it removed.
        *self.scratch.borrow_mut() = Some(path.clone());
        let handle = match self.open(&path, flags).await {
            Ok(handle) => handle,
            Err(error) if error.is_fatal() => return Err(error),
            Err(error) => {
                self.scratch.take();
                let path = escape_for_display(&path);
                let why = format!("no temporary file can be made, {path}: {error}");
                return Err(Error::Exec(why.into()));
            }
        };
        Ok(Place {
            path,
            handle,
            len: Some(SCRATCH_BYTES),
        })
    }

    async fn up(&self, lanes: &[Sftp]) -> Result<Probe, Error> {
        let scratch = self.scratch.borrow().clone();
        let place = match scratch {
            // A second time: the file is there.
            Some(path) => Place {
                handle: self.open(&path, OpenFlags::WRITE).await?,
                path,
                len: Some(SCRATCH_BYTES),
            },
            None => self.place_to_write().await?,
        };
        let source: Rc<dyn FileIo> = Rc::new(Pattern::new(self.seed));
        let mut handles = Vec::new();
        for lane in &lanes[1..] {
            handles.push(
                lane.open(&place.path, OpenFlags::WRITE, &Attrs::EMPTY)
                    .await?,
            );
        }
        let meters: Vec<Rc<Cell<u64>>> = lanes.iter().map(|_| Rc::default()).collect();
        let work = async {
            let others = handles.iter().zip(&lanes[1..]).zip(&meters[1..]);
            let mut pool = Pool::new();
            pool.push(send(
                &self.sftp,
                &place.handle,
                &source,
                place.len,
                &meters[0],
            ));
            for ((handle, lane), meter) in others {
                pool.push(send(lane, handle, &source, place.len, meter));
            }
            pool.next().await.unwrap_or(Ok(()))
        };
        let probe = self.timed(work, &meters, &place).await;
        for (lane, handle) in lanes[1..].iter().zip(&handles) {
            let _ = lane.release(handle).await;
        }
        self.sftp.release(&place.handle).await?;
        probe
    }

    /// As many channels as a stock server lets one connection have for this.
    async fn up_wide(&self) -> Result<Option<Probe>, Error> {
        let mut lanes = vec![self.sftp.clone()];
        while lanes.len() < WIDE_LANES {
            match self.connection().open_sftp().await {
                Ok(lane) => lanes.push(lane),
                Err(_) => break,
            }
        }
        if lanes.len() == 1 {
            return self.unless_lost(None);
        }
        self.up(&lanes).await.map(Some)
    }

    async fn down(&self) -> Result<Probe, Error> {
        let device = b"/dev/zero".to_vec();
        let scratch = self.scratch.borrow().clone();
        let place = if let Some(path) = scratch {
            let handle = self.open(&path, OpenFlags::READ).await?;
            let len = self.sftp.fstat(&handle).await?.size;
            Place { path, handle, len }
        } else if self.folder.is_some() {
            return Err(Error::Exec("there is no temporary file to read".into()));
        } else {
            Place {
                handle: self.open(&device, OpenFlags::READ).await?,
                path: device,
                len: None,
            }
        };
        let meter: Rc<Cell<u64>> = Rc::default();
        let work = receive(&self.sftp, &place.handle, place.len, &meter);
        let meters = [Rc::clone(&meter)];
        let probe = self.timed(work, &meters, &place).await;
        self.sftp.release(&place.handle).await?;
        probe
    }

    /// Lets `work` go on for the time that was chosen. The rate is that of the second half.
    async fn timed(
        &self,
        work: impl Future<Output = Result<(), Error>>,
        meters: &[Rc<Cell<u64>>],
        place: &Place,
    ) -> Result<Probe, Error> {
        let connection = self.connection();
        let count = || meters.iter().map(|meter| meter.get()).sum::<u64>();
        drop(connection.take_path_totals());
        let started = self.clock.now();
        let mut half: Option<(Instant, u64)> = None;
        let mut work = std::pin::pin!(work);
        let mut ticks = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                result = &mut work => {
                    result?;
                    break;
                }
                _ = ticks.tick() => {}
            }
            let elapsed = self.clock.now() - started;
            if elapsed >= self.time / 2 && half.is_none() {
                half = Some((self.clock.now(), count()));
                // Windows and TCP have grown by now; what limited until then is no news.
                drop(connection.take_path_totals());
            }
            let is_late = elapsed >= self.time + PATIENCE;
            if elapsed >= self.time && (count() > 0 || is_late) {
                break;
            }
        }
        let now = self.clock.now();
        let bytes = count();
        if bytes == 0 {
            let path = escape_for_display(&place.path);
            let seconds = (now - started).as_secs();
            let why = format!("{path}: no byte was confirmed within {seconds} s");
            return Err(Error::Exec(why.into()));
        }
        let (since, before) = half.unwrap_or((started, 0));
        let seconds = (now - since).as_secs_f64().max(1e-3);
        let interval = connection.path();
        Ok(Probe {
            file: escape_for_display(&place.path),
            lanes: meters.len(),
            bytes,
            time: now - started,
            rate: ((bytes - before) as f64 / seconds) as u64,
            totals: connection.take_path_totals(),
            tcp: interval.as_ref().and_then(|interval| interval.tcp),
            facts: interval.map(|interval| interval.lanes).unwrap_or_default(),
        })
    }
}

/// What could be measured; of what could not, a note. Only the end of the connection is an error.
fn kept<T>(
    what: &str,
    result: Result<T, Error>,
    gaps: &mut Vec<String>,
) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_fatal() => Err(error),
        Err(error) => {
            gaps.push(format!("{what} could not be measured: {error}"));
            Ok(None)
        }
    }
}

/// Channels of one connection that are tried: a stock server allows ten sessions.
const WIDE_LANES: usize = 8;

/// Between two looks at what has arrived.
const TICK: Duration = Duration::from_millis(50);

/// Sends for ever: `len` bytes again and again, or without an end.
async fn send(
    sftp: &Sftp,
    handle: &Handle,
    source: &Rc<dyn FileIo>,
    len: Option<u64>,
    meter: &Rc<Cell<u64>>,
) -> Result<(), Error> {
    loop {
        let before = meter.get();
        let span = span(len);
        let progress = |p: super::Progress| meter.set(before + p.bytes);
        let done = sftp.put(handle, Rc::clone(source), span, progress).await?;
        if let Some(error) = done.error {
            return Err(error);
        }
    }
}

/// Receives for ever.
async fn receive(
    sftp: &Sftp,
    handle: &Handle,
    len: Option<u64>,
    meter: &Rc<Cell<u64>>,
) -> Result<(), Error> {
    let sink: Rc<dyn FileIo> = Rc::new(Pattern::new(0));
    loop {
        let before = meter.get();
        let progress = |p: super::Progress| meter.set(before + p.bytes);
        let done = sftp
            .get(handle, Rc::clone(&sink), span(len), progress)
            .await?;
        if let Some(error) = done.error {
            return Err(error);
        }
        if meter.get() == before {
            // An empty file: nothing more will come.
            return Ok(());
        }
    }
}

/// All of `len` bytes, or as much as there can be.
fn span(len: Option<u64>) -> Span {
    let end = len.unwrap_or(ENDLESS_BYTES);
    Span {
        offset: 0,
        size_hint: end,
        end_max: Some(end),
    }
}

/// More than any path carries in the time of an examination, and an offset that servers bear.
const ENDLESS_BYTES: u64 = 1 << 60;

/// Content without an end, from memory; takes anything and keeps nothing.
struct Pattern(Vec<u8>);

impl Pattern {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::seeded(seed);
        let words = (0..PATTERN_BYTES / 8).map(|_| rng.next_u64());
        Self(words.flat_map(u64::to_le_bytes).collect())
    }
}

impl FileIo for Pattern {
    fn read_at(&self, offset: u64, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut at = (offset % PATTERN_BYTES as u64) as usize;
        let mut total = 0;
        for slice in slices {
            let mut rest = &mut slice[..];
            while !rest.is_empty() {
                let n = rest.len().min(PATTERN_BYTES - at);
                rest[..n].copy_from_slice(&self.0[at..at + n]);
                at = (at + n) % PATTERN_BYTES;
                total += n;
                rest = &mut rest[n..];
            }
        }
        Ok(total)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}
