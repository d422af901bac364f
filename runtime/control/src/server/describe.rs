use super::{Connection, Owners, Role, Server};
use crate::message::{InstanceInfo, ProcessInfo};
use skink_messages::Counter;
use std::time::UNIX_EPOCH;

impl<O: Owners> Server<O> {
    /// What tools are told.
    pub fn describe(&self) -> InstanceInfo {
        let mut processes: Vec<ProcessInfo> = self
            .connections
            .values()
            .filter_map(describe_process)
            .collect();
        processes.sort_by_key(|process| process.owner);
        let counted = Counter::ALL
            .iter()
            .zip(&self.finished)
            .filter(|(_, value)| **value != 0);
        let since_1970 = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        InstanceInfo {
            pid: std::process::id(),
            name: self.config.name.clone(),
            command: self.config.command.clone(),
            nic: self.config.nic.clone(),
            addresses: self.config.addresses.clone(),
            gateways: self.config.gateways.clone(),
            started_ms: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
            processes,
            finished: counted
                .map(|(counter, value)| (counter.label().to_owned(), *value))
                .collect(),
        }
    }
}

fn describe_process(connection: &Connection) -> Option<ProcessInfo> {
    let Role::Owner(owner) = connection.role else {
        return None;
    };
    let program = std::fs::read_to_string(format!("/proc/{}/comm", connection.pid));
    Some(ProcessInfo {
        owner,
        pid: connection.pid,
        uid: connection.uid,
        program: program.unwrap_or_default().trim_end().to_owned(),
        regions: connection.regions.keys().copied().collect(),
    })
}
