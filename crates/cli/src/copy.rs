//! Carries out a copy: connects to each place once, copies, says what came of it.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use fullbore::client::{self, Ahead, Asker, Context, Error, Master, Reconnect, Sftp};
use fullbore::config::prompt::Prompter;
use fullbore::config::ssh_config::{self, HostConfig, LogLevel, Request};
use fullbore::config::{Environment, text};
use fullbore::driver::budget::WindowBudget;
use fullbore::driver::clock::Clock;
use fullbore::driver::detach::Split;
use fullbore::driver::environment::Machine;
use fullbore::driver::local::LocalSide;
use fullbore::driver::signals::raise_file_limit;
use fullbore::driver::terminal::{self, Person};
use fullbore::transfer::lanes::Caps;
use fullbore::transfer::{Event, Fault, FaultKind, Observer, Run, SftpSide, Side, glob, questions};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::Exit;
use crate::master;
use crate::output;
use crate::plan::{CopyPlan, Place, Report, Source};
use crate::progress::Progress;

/// How long a server is given to take the goodbye; the files are right by then.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// Between two looks at the connections: the shortest interval that they are measured in.
const TICK: Duration = Duration::from_millis(250);

/// The configuration of each host that takes part, by its place.
type Hosts = Vec<(Place, HostConfig)>;

/// Copies.
pub(crate) fn run(plan: &CopyPlan) -> Exit {
    if let Some(bytes) = plan.window_budget {
        WindowBudget::of_process().set_bytes(bytes);
    }
    // Each file in flight is one.
    raise_file_limit();
    let progress = Progress::new(plan);
    let hosts = match configure(plan) {
        Ok(hosts) => hosts,
        Err((host, why)) => {
            progress.no_connection(&host, &why);
            return Exit::Connection;
        }
    };
    let background = match master::split_for(hosts.iter().map(|(_, config)| config)) {
        Some(Split::Front(code)) => return Exit::Code(code),
        Some(Split::Back(background)) => Some(background),
        None => None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            output::error(&format!("fullbore: cannot start: {}", text::reason(&error)));
            return Exit::Failed;
        }
    };
    let tasks = tokio::task::LocalSet::new();
    let mut masters = Vec::new();
    let kept = background.is_some().then_some(&mut masters);
    let work = copy(plan, &hosts, &progress, kept);
    let exit = tasks.block_on(
        &runtime,
        until_interrupted(&progress, watched(&progress, work)),
    );
    if let Some(background) = background.filter(|_| !masters.is_empty()) {
        background.leave(exit.code());
        tasks.block_on(&runtime, stay(masters));
    }
    // A question may still be open on a thread that nobody can end.
    runtime.shutdown_background();
    exit
}

/// Shares connections until nobody wants them any more.
async fn stay(masters: Vec<Master>) {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return;
    };
    let mut all = tokio::task::JoinSet::new();
    for master in masters {
        all.spawn_local(master.run());
    }
    tokio::select! {
        () = async { while all.join_next().await.is_some() {} } => {}
        _ = terminate.recv() => {}
    }
}

/// Lets `progress` look at the connections while `work` goes on.
async fn watched(progress: &Progress, work: impl Future<Output = Exit>) -> Exit {
    let mut work = std::pin::pin!(work);
    let mut ticks = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            exit = &mut work => return exit,
            _ = ticks.tick() => progress.tick(),
        }
    }
}

/// Gives up at once on an interrupt: files under way stay under their temporary names.
async fn until_interrupted(progress: &Progress, work: impl Future<Output = Exit>) -> Exit {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return work.await;
    };
    tokio::select! {
        exit = work => exit,
        _ = interrupt.recv() => {
            terminal::restore();
            progress.ended_early("interrupted");
            Exit::Interrupted
        }
        _ = terminate.recv() => {
            terminal::restore();
            progress.ended_early("told to end");
            // 128 and SIGTERM's number.
            Exit::Code(143)
        }
    }
}

/// Reads the configuration of every host, before anything waits on a network; or says of which one
/// it is wrong, and why.
fn configure(plan: &CopyPlan) -> Result<Hosts, (String, String)> {
    let mut hosts = Hosts::new();
    let places = plan.sources.iter().map(|source| &source.place);
    for place in std::iter::once(&plan.target).chain(places) {
        let Place::Remote { user, host, port } = place else {
            continue;
        };
        if hosts.iter().any(|(known, _)| known == place) {
            continue;
        }
        let port = port.map(|port| format!("Port={port}"));
        let options: Vec<String> = port.into_iter().chain(plan.ssh_options.clone()).collect();
        let request = Request {
            host,
            user: user.as_deref(),
            options: &options,
            config_file: plan.config_file.clone(),
        };
        let defaults = client::algorithm_defaults();
        let config = ssh_config::resolve(&Machine, &defaults, &request)
            .map_err(|error| (host.clone(), error.to_string()))?;
        if plan.report != Report::Quiet && config.session.log_level >= LogLevel::Info {
            for warning in &config.warnings {
                output::error(&format!("{host}: {warning}"));
            }
        }
        hosts.push((place.clone(), config));
    }
    Ok(hosts)
}

/// Sessions that are open, by place.
struct Sessions<'a> {
    plan: &'a CopyPlan,
    hosts: &'a Hosts,
    progress: &'a Progress,
    context: Context,
    open: Vec<(Place, SftpSide)>,
}

impl<'a> Sessions<'a> {
    fn new(plan: &'a CopyPlan, hosts: &'a Hosts, progress: &'a Progress) -> Sessions<'a> {
        let is_batch = hosts.iter().any(|(_, config)| config.auth.batch);
        let environment: Rc<dyn Environment> = Rc::new(Machine);
        let person: Box<dyn Prompter + Send> = Box::new(Person::new(&Machine));
        Sessions {
            plan,
            hosts,
            progress,
            context: Context {
                environment,
                asker: if is_batch {
                    Asker::nobody()
                } else {
                    Asker::new(person)
                },
                config_file: plan.config_file.clone(),
                clock: Clock::start(),
                local_window: None,
            },
            open: Vec::new(),
        }
    }

    /// The session with a place, made if there is none yet. One after the other: only one can ask.
    async fn of(&mut self, place: &Place) -> Result<SftpSide, Error> {
        if let Some((_, side)) = self.open.iter().find(|(known, _)| known == place) {
            return Ok(side.clone());
        }
        let (_, config) = self
            .hosts
            .iter()
            .find(|(known, _)| known == place)
            .expect("every remote place was configured");
        let (limits, questions) = (client::SftpConfig::default(), self.questions(place));
        let (sftp, caps) = match &self.plan.udp_server {
            None => {
                let sftp = client::connect_ahead(config, &self.context, limits, &questions).await?;
                (sftp, self.plan.caps)
            }
            Some(command) => self.over_udp(config, &questions, command).await?,
        };
        if let Some(limit) = self.plan.limit {
            sftp.connection().limit_rate(limit);
        }
        let reconnect = Reconnect::new(config, &self.context, sftp.connection());
        let prefix = prefix(place, config);
        let side = SftpSide::new(sftp, prefix);
        let side = side.with_lanes(reconnect, caps);
        self.progress.watch(side.clone());
        self.open.push((place.clone(), side.clone()));
        Ok(side)
    }

    /// A session over UDP, or with a notice over TCP; and how many lanes it may use.
    async fn over_udp(
        &self,
        config: &HostConfig,
        questions: &[Ahead],
        command: &str,
    ) -> Result<(Sftp, Caps), Error> {
        let limits = client::SftpConfig::default();
        let moved = client::connect_udp(config, &self.context, limits, questions, command).await?;
        let Some(notice) = moved.notice else {
            // Further connections would be TCP's.
            let caps = Caps {
                connections: 1,
                ..self.plan.caps
            };
            return Ok((moved.sftp, caps));
        };
        if self.plan.report != Report::Quiet {
            self.progress.say(&format!("fullbore: {notice}"));
        }
        Ok((moved.sftp, self.plan.caps))
    }

    /// What the copy will ask a place first.
    fn questions(&self, place: &Place) -> Vec<Ahead> {
        let plan = self.plan;
        let of_this = plan.sources.iter().filter(|source| source.place == *place);
        let paths: Vec<_> = of_this.flat_map(|source| source.paths.clone()).collect();
        let mut asked = questions::about_sources(&paths, plan.options.recursive);
        if plan.target == *place {
            let paths: Vec<_> = plan.sources.iter().flat_map(|s| s.paths.clone()).collect();
            asked.extend(questions::about_target(&plan.target_path, &paths));
        }
        asked
    }

    /// Whether a session ended before its work was done.
    async fn is_any_lost(&self) -> bool {
        for (_, side) in &self.open {
            if side.sftp().ready().await.is_err() {
                return true;
            }
        }
        false
    }

    /// Says goodbye, to those who still listen; but for connections that are `kept` for others.
    async fn close(self, mut kept: Option<&mut Vec<Master>>) {
        for (place, side) in &self.open {
            let host = self.hosts.iter().find(|(known, _)| known == place);
            if let (Some(kept), Some((_, host))) = (&mut kept, host)
                && let Some(master) = master::master(host, side.sftp().connection())
            {
                kept.push(master);
                continue;
            }
            let closed = side.sftp().connection().close();
            let _ = tokio::time::timeout(GOODBYE_TIMEOUT, closed).await;
        }
    }
}

/// What stands in front of a remote path, as it would be typed; a port only where one was, in a URL.
/// It identifies the place in every later run.
fn prefix(place: &Place, config: &HostConfig) -> String {
    let (user, host) = (&config.user, &config.original_host);
    let host = match host.contains(':') {
        true => format!("[{host}]"),
        false => host.clone(),
    };
    match place {
        Place::Remote {
            port: Some(port), ..
        } => format!("sftp://{user}@{host}:{port}/"),
        Place::Remote { port: None, .. } | Place::Local => format!("{user}@{host}:"),
    }
}

async fn copy(
    plan: &CopyPlan,
    hosts: &Hosts,
    progress: &Progress,
    kept: Option<&mut Vec<Master>>,
) -> Exit {
    let mut sessions = Sessions::new(plan, hosts, progress);
    // All connections first: nothing is begun that cannot be ended.
    let places = plan.sources.iter().map(|source| &source.place);
    for place in std::iter::once(&plan.target).chain(places) {
        if *place == Place::Local {
            continue;
        }
        if let Err(error) = sessions.of(place).await {
            progress.no_connection(&place.to_string(), &error.to_string());
            return Exit::Connection;
        }
    }
    let exit = match &plan.target {
        Place::Local => copy_to(&LocalSide::new(), &mut sessions, progress).await,
        remote @ Place::Remote { .. } => match sessions.of(remote).await {
            Ok(side) => copy_to(&side, &mut sessions, progress).await,
            Err(_) => Exit::Connection,
        },
    };
    sessions.close(kept).await;
    exit
}

async fn copy_to<D: Side>(target: &D, sessions: &mut Sessions<'_>, progress: &Progress) -> Exit {
    let plan = sessions.plan;
    let mut expanded = Vec::new();
    for source in &plan.sources {
        match expand(source, sessions, progress).await {
            Ok(paths) => expanded.push((&source.place, paths)),
            Err(exit) => return exit,
        }
    }
    let paths_count: usize = expanded.iter().map(|(_, paths)| paths.len()).sum();
    let needs_folder = plan.needs_folder || paths_count > 1;
    let run = Run::new(
        target,
        &plan.target_path,
        needs_folder,
        plan.options.clone(),
        progress,
    );
    let run = match run.await {
        Ok(run) => run,
        Err(fault) => return fail(progress, target.prefix(), &plan.target_path, &fault),
    };
    for (place, paths) in expanded {
        match place {
            Place::Local => run.copy_from(&LocalSide::new(), &paths).await,
            Place::Remote { .. } => match sessions.of(place).await {
                Ok(side) => run.copy_from(&side, &paths).await,
                Err(_) => return Exit::Connection,
            },
        }
    }
    let summary = run.summary();
    progress.finish(&summary);
    if summary.is_success() {
        if plan.names_no_host() && plan.report == Report::Person {
            progress.say("fullbore: no HOST: was named, so this was a copy on this machine");
        }
        Exit::Done
    } else if sessions.is_any_lost().await {
        progress.ended_early("the connection was lost");
        Exit::Connection
    } else {
        Exit::Failed
    }
}

/// The paths of a source: patterns are for the remote side, this one's were the shell's.
async fn expand(
    source: &Source,
    sessions: &mut Sessions<'_>,
    progress: &Progress,
) -> Result<Vec<Vec<u8>>, Exit> {
    let Place::Remote { .. } = source.place else {
        return Ok(source.paths.clone());
    };
    let side = sessions
        .of(&source.place)
        .await
        .map_err(|_| Exit::Connection)?;
    let mut found = Vec::new();
    for pattern in &source.paths {
        match glob::expand(&side, pattern).await {
            Ok(paths) => found.extend(paths),
            Err(fault) => return Err(fail(progress, side.prefix(), pattern, &fault)),
        }
    }
    Ok(found)
}

fn fail(progress: &Progress, prefix: &str, path: &[u8], fault: &Fault) -> Exit {
    let path = [prefix.as_bytes(), path].concat();
    progress.notice(&Event::Failed {
        file: None,
        path: &path,
        text: &fault.text,
    });
    if fault.kind == FaultKind::Lost {
        Exit::Connection
    } else {
        Exit::Failed
    }
}
