use crate::component::Component;
use crate::error::{Position, TopologyError, TopologyErrors};
use crate::read;
use std::io::Read;
use std::path::Path;

/// The topologies that ship, with the text of their files.
pub const PRESETS: [(&str, &str); 3] = [
    ("library", include_str!("../../../topologies/library.toml")),
    ("single", include_str!("../../../topologies/single.toml")),
    ("split", include_str!("../../../topologies/split.toml")),
];

/// No topology is longer, in bytes; a device or a log that is given for one must not be read whole.
const LONGEST: u64 = 1 << 20;

/// A mapping of components to processes, and of processes to cores. Every component is in one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// What a person calls it.
    pub name: String,
    /// The file, or the preset, that it is from.
    pub source: String,
    /// In the order of the file; at least one.
    pub processes: Vec<Process>,
}

/// One process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Of no other process.
    pub name: String,
    /// In the order of the file; at least one.
    pub components: Vec<Component>,
    /// The cores on which it may run; any if empty.
    pub cores: Vec<u16>,
    /// Whether it is each program that uses the stack, instead of a process of Skink's own.
    pub program: bool,
    /// Where the file describes it.
    pub position: Position,
    /// Where the file names its cores, or describes it.
    pub cores_position: Position,
}

impl Topology {
    /// Reads a preset by its name, or a file by its path: a word with a `/` or ending in `.toml`.
    pub fn load(word: &str) -> Result<Topology, TopologyErrors> {
        if let Some((name, text)) = PRESETS.iter().find(|(name, _)| *name == word) {
            return Topology::parse(&format!("topologies/{name}.toml"), text);
        }
        let fails = |message: String| {
            TopologyErrors(vec![TopologyError {
                source: word.to_owned(),
                position: None,
                message,
            }])
        };
        if !word.contains('/') && !word.ends_with(".toml") {
            let names = PRESETS.map(|(name, _)| name).join(", ");
            return Err(fails(format!(
                "there is no topology of this name; use one of {names}, or a file by a path that has a \
                 / or ends in .toml"
            )));
        }
        let mut text = String::new();
        std::fs::File::open(word)
            .and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text))
            .map_err(|error| fails(format!("the topology can't be read: {error}")))?;
        if text.len() as u64 > LONGEST {
            return Err(fails(format!(
                "this is longer than {LONGEST} bytes and no topology; name another file"
            )));
        }
        Topology::parse(word, &text)
    }

    /// Reads a topology. `source` is what errors call it; the name of the file it seems to be is the
    /// topology's, unless the text has one.
    pub fn parse(source: &str, text: &str) -> Result<Topology, TopologyErrors> {
        read::topology(source, text)
    }

    /// Finds fault with cores that aren't `available`.
    pub fn check_cores(&self, available: &[u16]) -> Result<(), TopologyErrors> {
        let has: Vec<String> = available.iter().map(u16::to_string).collect();
        let has = has.join(", ");
        let mut errors = Vec::new();
        for process in &self.processes {
            let lacks = |core: &&u16| !available.contains(core);
            errors.extend(process.cores.iter().filter(lacks).map(|core| {
                let name = &process.name;
                TopologyError {
                    source: self.source.clone(),
                    position: Some(process.cores_position),
                    message: format!(
                        "process {name} is to run on core {core}, which Skink can't use here; name \
                         some of {has}, or leave `cores` out"
                    ),
                }
            }));
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(TopologyErrors(errors))
        }
    }

    /// The process that has a component.
    pub fn process_of(&self, component: Component) -> Option<&Process> {
        self.place_of(component)
            .and_then(|place| self.processes.get(place))
    }

    /// The index of the process that has a component. Always one in a topology that was read.
    pub(crate) fn place_of(&self, component: Component) -> Option<usize> {
        self.processes
            .iter()
            .position(|process| process.components.contains(&component))
    }
}

/// What a file is called without its folder and its end.
pub(crate) fn stem(source: &str) -> String {
    Path::new(source).file_stem().map_or_else(
        || source.to_owned(),
        |stem| stem.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests;
