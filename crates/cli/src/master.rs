//! Connections that stay for later commands: a copy leaves them behind, `fullbore master` looks after
//! them.

use fullbore::client::{Connection, Master, master_of, stop_master};
use fullbore::config::ssh_config::HostConfig;
use fullbore::driver::detach::{self, Split};

use crate::args::{MasterTask, MasterValues};
use crate::exit::{self, Exit};
use crate::output;
use crate::plan;

/// Splits the process where a connection is to be left behind: one half is waited for by the shell, the
/// other copies, and may stay.
pub(crate) fn split_for<'a>(hosts: impl Iterator<Item = &'a HostConfig>) -> Option<Split> {
    let mut hosts = hosts.filter(|host| {
        let sharing = host.connection.sharing.as_ref();
        sharing.is_some_and(|sharing| sharing.persist.is_some())
    });
    // Where there is one already, it will be used.
    hosts.find(|host| master_of(host).is_none())?;
    // Where the process cannot be split, the copy goes on without leaving anything behind.
    detach::split().ok()
}

/// Lets others use the connection to `host` from now on, if that is wanted and nobody else does so.
pub(crate) fn master(host: &HostConfig, connection: &Connection) -> Option<Master> {
    let sharing = host.connection.sharing.as_ref()?;
    let persist = sharing.persist?;
    if connection.is_shared() || master_of(host).is_some() {
        return None;
    }
    match Master::new(connection.clone(), sharing, persist) {
        Ok(master) => Some(master),
        Err(error) => {
            let socket = sharing.socket.display();
            output::error(&format!(
                "fullbore: the connection is not shared at {socket}: {error}"
            ));
            None
        }
    }
}

/// `fullbore master`
pub(crate) fn run(values: &MasterValues) -> Exit {
    let host = plan::remote("master", &values.place).and_then(|remote| {
        let flags = plan::ssh_options(&values.connection, 0, false);
        plan::resolve(&values.connection, &remote, flags)
    });
    let host = match host {
        Ok(host) => host,
        Err(why) => return exit::usage(&why),
    };
    let name = &host.original_host;
    if host.connection.sharing.is_none() {
        output::error(&format!(
            "fullbore: master: connections to {name} are not shared; that takes -o ControlMaster=auto, or a ControlPath"
        ));
        return Exit::Connection;
    }
    let Some(pid) = master_of(&host) else {
        output::error(&format!(
            "fullbore: master: no connection to {name} is shared"
        ));
        return Exit::Connection;
    };
    match values.task {
        MasterTask::Check => {
            output::print(&format!(
                "A connection to {name} is shared by process {pid}.\n"
            ));
            Exit::Done
        }
        MasterTask::Stop => match stop_master(&host) {
            Ok(()) => Exit::Done,
            Err(error) => {
                output::error(&format!("fullbore: master: process {pid}: {error}"));
                Exit::Failed
            }
        },
    }
}
