use super::{Connection, Owners, Role, Server};
use crate::message::{ComponentInfo, InstanceInfo, ProcessInfo, RegionKind};
use skink_messages::Counter;
use std::time::UNIX_EPOCH;

/// Most processes that one answer describes: the next ones come in the next answer.
pub(super) const PART: usize = 256;

impl<O: Owners> Server<O> {
    /// What tools are told, with the processes after slot `after`.
    pub fn describe(&self, after: Option<u16>) -> InstanceInfo {
        let mut owners: Vec<(u16, &Connection)> = self
            .connections
            .values()
            .filter_map(|connection| match connection.role {
                Role::Owner(owner) => Some((owner, connection)),
                Role::Stranger
                | Role::Waiting(_)
                | Role::Orphans(_)
                | Role::Tool
                | Role::Outsider => None,
            })
            .filter(|(owner, _)| after.is_none_or(|after| *owner > after))
            .collect();
        owners.sort_by_key(|(owner, _)| *owner);
        let processes = owners.iter().take(PART);
        let mut processes: Vec<ProcessInfo> = processes
            .map(|(owner, connection)| self.describe_process(*owner, connection))
            .collect();
        let components = self.owners.components();
        if owners.len() < PART {
            let rest = components.iter();
            let rest = rest.filter(|component| after.is_none_or(|after| component.owner > after));
            processes.extend(rest.filter_map(|component| self.describe_component(component)));
        }
        let counted = Counter::ALL
            .iter()
            .zip(&self.finished)
            .filter(|(_, value)| **value != 0);
        let since_1970 = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        InstanceInfo {
            pid: std::process::id(),
            name: self.config.name.clone(),
            release: env!("CARGO_PKG_VERSION").to_owned(),
            command: self.config.command.clone(),
            nic: self.config.nic.clone(),
            addresses: self.config.addresses.clone(),
            gateways: self.config.gateways.clone(),
            started_ms: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
            topology: self.config.topology.clone(),
            processes,
            standby: self.owners.standby(),
            components,
            finished: counted
                .map(|(counter, value)| (counter.label().to_owned(), *value))
                .collect(),
        }
    }

    fn describe_process(&self, owner: u16, connection: &Connection) -> ProcessInfo {
        let registered = |kind: &RegionKind| connection.regions.contains_key(kind);
        ProcessInfo {
            owner,
            pid: connection.peer.pid,
            uid: connection.peer.uid,
            program: name_of(connection.peer.pid),
            regions: self.kinds(owner, registered),
            queues: self.owners.queues(owner),
        }
    }

    /// A component's process, if it runs.
    fn describe_component(&self, component: &ComponentInfo) -> Option<ProcessInfo> {
        Some(ProcessInfo {
            owner: component.owner,
            pid: component.pid?,
            uid: rustix::process::geteuid().as_raw(),
            program: component.name.clone(),
            regions: self.kinds(component.owner, |_| false),
            // Beside the component itself.
            queues: Vec::new(),
        })
    }

    fn kinds(&self, owner: u16, registered: impl Fn(&RegionKind) -> bool) -> Vec<RegionKind> {
        let known =
            |kind: &RegionKind| registered(kind) || self.owners.memory(owner, *kind).is_some();
        RegionKind::ALL.into_iter().filter(known).collect()
    }
}

fn name_of(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    name.unwrap_or_default().trim_end().to_owned()
}
