//! What `skink up` is to do: the command line, then the file, then what is chosen.
use super::config::{Allow, Config, MAXIMUM_PROGRAMS};
use crate::cli::{NetworkOptions, UpOptions};
use crate::failure::Failure;
use crate::filter;
use crate::run::user::User;
use skink_control::{Part, TableSize, check_name};
use skink_topology::{Component, PRESETS, Process, Topology};

/// Most TCP sockets of one program. A slot costs nothing until it is used.
const TCP_TABLE: TableSize = TableSize {
    sockets: 8192,
    send_bytes: 1 << 20,
    receive_bytes: 1 << 20,
};
/// Most UDP sockets of one program.
const UDP_TABLE: TableSize = TableSize {
    sockets: 1024,
    send_bytes: 1 << 18,
    receive_bytes: 1 << 19,
};
const PROGRAMS_PER_USER: u16 = 1024;
/// A process has 128 TiB of addresses, into which the stack maps every program's regions.
const ADDRESS_SPACE: u64 = 96 << 40;

/// All of it, checked.
#[derive(Debug)]
pub struct Settings {
    pub name: String,
    pub topology: Topology,
    pub network: NetworkOptions,
    /// Text of the filter's rules; empty if there are none.
    pub rules: String,
    pub user: Option<User>,
    pub allow: Option<Allow>,
    pub programs: u16,
    pub programs_per_user: u16,
    pub tcp: TableSize,
    pub udp: TableSize,
}

impl Settings {
    /// Reads what is to be read.
    pub fn new(options: &UpOptions, cores: &[u16]) -> Result<Settings, Failure> {
        let config = match &options.config {
            Some(path) => Config::load(path)?,
            None => Config::default(),
        };
        let rules = match options.rules.as_deref().or(config.rules.as_deref()) {
            Some(file) => filter::rules_in(file, Failure::own)?,
            None => String::new(),
        };
        Settings::of(options, config, rules, cores)
    }

    fn of(
        options: &UpOptions,
        config: Config,
        rules: String,
        cores: &[u16],
    ) -> Result<Settings, Failure> {
        let name = options.name.clone().or(config.name);
        let name = name.unwrap_or_else(|| "skink".to_owned());
        check_name(&name).map_err(|why| Failure::own(format!("--name: {why}")))?;
        let word = options.topology.clone().or(config.topology);
        let topology = Topology::load(word.as_deref().unwrap_or("single"))
            .and_then(|topology| topology.check_cores(cores).map(|()| topology))
            .map_err(|mistakes| Failure::own(mistakes.to_string().replace('\n', "\nskink: ")))?;
        parts_of(&topology)?;
        let given = &options.network;
        let network = NetworkOptions {
            nic: given.nic.clone().or(config.nic),
            addresses: either(&given.addresses, config.addresses),
            gateways: either(&given.gateways, config.gateways),
            no_probe: given.no_probe || config.probe == Some(false),
        };
        let user = options.user.as_deref().map(User::find).transpose()?;
        let programs = config.programs.unwrap_or(MAXIMUM_PROGRAMS);
        let settings = Settings {
            name,
            topology,
            network,
            rules,
            user: user.or(config.user),
            allow: config.allow,
            programs,
            programs_per_user: config.programs_per_user.unwrap_or(PROGRAMS_PER_USER),
            tcp: config.tcp.or(TCP_TABLE),
            udp: config.udp.or(UDP_TABLE),
        };
        settings.check_size()?;
        Ok(settings)
    }

    fn check_size(&self) -> Result<(), Failure> {
        let region = |size: &TableSize| {
            let rings = u64::from(size.send_bytes) + u64::from(size.receive_bytes);
            u64::from(size.sockets.next_power_of_two()) * rings
        };
        let each = region(&self.tcp) + region(&self.udp);
        let most = ADDRESS_SPACE.checked_div(each).unwrap_or(ADDRESS_SPACE);
        if u64::from(self.programs) > most {
            return Err(Failure::own(format!(
                "{} programs with {} TCP and {} UDP sockets each are more than a process has addresses \
                 for: with such tables set programs = {most} at most, or make the tables smaller",
                self.programs, self.tcp.sockets, self.udp.sockets
            )));
        }
        Ok(())
    }
}

fn either<T: Clone>(given: &[T], otherwise: Vec<T>) -> Vec<T> {
    match given {
        [] => otherwise,
        given => given.to_vec(),
    }
}

/// What the processes of a topology host, in their order; nothing if one has the whole stack. What this
/// build can't place is refused.
pub fn parts_of(topology: &Topology) -> Result<Vec<Part>, Failure> {
    let name = &topology.name;
    match topology.processes.as_slice() {
        [only] if !only.program => Ok(Vec::new()),
        [_] => Err(Failure::own(format!(
            "topology {name} has the whole stack inside the programs, which needs no `skink up`: start \
             each with `skink run --nic NIC --addr ADDRESS/PREFIX -- PROGRAM`"
        ))),
        several => {
            let parts: Option<Vec<Part>> = several.iter().map(part).collect();
            if let Some(parts) = parts.filter(|parts| parts.len() == Part::ALL.len()) {
                return Ok(parts);
            }
            let apart = several.iter().map(|process| {
                let components: Vec<&str> = process.components.iter().map(|it| it.name()).collect();
                components.join("+")
            });
            let apart: Vec<String> = apart.collect();
            let presets = PRESETS.iter().filter(|(_, text)| works(text));
            let presets: Vec<&str> = presets.map(|(name, _)| *name).collect();
            Err(Failure::own(format!(
                "topology {name} places {} apart, and this build can only place all components in one \
                 [[process]], or link, ip, filter and udp+tcp+syscall+store in four: use --topology {}, \
                 or a file of one of these shapes",
                apart.join(", "),
                presets.join(" or ")
            )))
        }
    }
}

/// What a process hosts, if it is a part that can be apart from the rest.
fn part(process: &Process) -> Option<Part> {
    let has = |component| process.components.contains(&component);
    match process.components.as_slice() {
        _ if process.program => None,
        [Component::Link] => Some(Part::Link),
        [Component::Ip] => Some(Part::Ip),
        [Component::Filter] => Some(Part::Filter),
        [_, _, _, _] => [
            Component::Udp,
            Component::Tcp,
            Component::Syscall,
            Component::Store,
        ]
        .into_iter()
        .all(has)
        .then_some(Part::Transport),
        _ => None,
    }
}

fn works(text: &str) -> bool {
    let topology = Topology::parse("preset", text);
    topology.is_ok_and(|topology| parts_shape(&topology))
}

fn parts_shape(topology: &Topology) -> bool {
    match topology.processes.as_slice() {
        [only] => !only.program,
        several => several.iter().all(|process| part(process).is_some()),
    }
}

#[cfg(test)]
mod tests;
