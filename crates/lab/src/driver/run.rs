//! One run of the link, from making its namespaces to their end.

use std::io;
use std::os::fd::AsRawFd;
use std::process::{Child, Command};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process};

use super::congestion::Allowed;
use super::forward::{self, Direction, Forwarded};
use super::init::Orders;
use super::netns::Namespace;
use super::{LabError, process, signals};
use crate::link::{FAR, LinkOptions, NEAR, Report, Shaper, Way};

/// Runs the command behind the link, and everything that goes with it. Blocks SIGINT, SIGTERM, SIGHUP and
/// SIGCHLD in this thread for good: call it from the first thread, before there are others.
///
/// # Errors
/// When the namespaces, the devices or the processes cannot be made.
pub fn run(options: &LinkOptions) -> Result<Report, LabError> {
    let failed = |what: &'static str| move |e: io::Error| LabError::new(what, &e);
    signals::block().map_err(failed("cannot block signals"))?;
    let allowed = options
        .congestion
        .as_deref()
        .map(Allowed::new)
        .transpose()?;
    let mut near = Namespace::new(NEAR, options)?;
    let mut far = Namespace::new(FAR, options)?;
    drop(allowed);
    let shapers = [(options.up_rate, 0), (options.down_rate, 1)]
        .map(|(rate, direction)| Shaper::new(options.shaper(rate, direction)));
    let (stop, stopped) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|e| LabError::new("cannot make a pipe", &e))?;
    let started = Instant::now();
    let (code, forwarded) = thread::scope(|scope| {
        let (near, far) = (&near, &far);
        let forwarding = scope.spawn(move || forward::run(&near.tun, &far.tun, shapers, &stop));
        let code = run_inside(options, near, far);
        drop(stopped);
        (code, forwarding.join())
    });
    let forwarded = forwarded
        .map_err(|_| LabError::new("the emulator", &"its thread panicked"))?
        .map_err(failed("cannot read from the TUN device"))?;
    let time = started.elapsed();
    let dropped = [near.dropped(), far.dropped()];
    let [near_dropped, far_dropped] =
        dropped.map(|d| d.map_err(failed("cannot read the device's counters")));
    let Forwarded {
        up,
        down,
        scheduling,
    } = forwarded;
    Ok(Report {
        link: options.to_string(),
        stack: near.stack,
        scheduling,
        time,
        ways: [
            way("up", up, near_dropped?),
            way("down", down, far_dropped?),
        ],
        code: code?,
    })
}

fn way(name: &'static str, direction: Direction, dropped_device: u64) -> Way {
    Way {
        name,
        counters: *direction.shaper.counters(),
        lateness: direction.lateness,
        refused: direction.refused,
        dropped_device,
    }
}

/// Starts the first process inside, and waits for its end. Returns its exit code.
fn run_inside(options: &LinkOptions, near: &Namespace, far: &Namespace) -> Result<u8, LabError> {
    let orders = Orders {
        near: near.net.as_raw_fd(),
        far: far.net.as_raw_fd(),
        far_commands: options.far.clone(),
        far_ports: options.far_ports.clone(),
        command: options.command.clone(),
    };
    let (program, arguments) = options
        .init
        .split_first()
        .ok_or_else(|| LabError::new("cannot start the first process", &"no program was named"))?;
    let mut command = Command::new(program);
    command.args(arguments).args(orders.to_arguments());
    thread::scope(|scope| {
        let (started_sender, started) = mpsc::sync_channel(1);
        let (over, is_over) = mpsc::sync_channel::<()>(0);
        scope.spawn(move || {
            let child = process::as_init(&mut command, [&near.net, &far.net])
                .and_then(|()| command.spawn());
            // The receiver waits for this.
            let _ = started_sender.send(child);
            // The child ends with this thread.
            let _ = is_over.recv();
        });
        let child = started.recv().unwrap_or_else(|e| Err(io::Error::other(e)));
        let child = child
            .map_err(|e| LabError::new("cannot start the first process of a PID namespace", &e))?;
        let code = await_end(child).map_err(|e| LabError::new("waiting for the command", &e));
        drop(over);
        code
    })
}

/// Waits for the first process; passes on signals that ask to end.
fn await_end(mut child: Child) -> io::Result<u8> {
    let pid = Pid::from_child(&child);
    loop {
        if let Some(status) = child.try_wait()? {
            let code = status.code().unwrap_or(1);
            return Ok(u8::try_from(code).unwrap_or(1));
        }
        // Once a second also without a signal: several SIGCHLD may have become one.
        match signals::wait(Duration::from_secs(1))? {
            None | Some(libc::SIGCHLD) => {}
            // It ends what is inside, within its grace, and then itself.
            Some(_) => kill_process(pid, Signal::TERM)?,
        }
    }
}
