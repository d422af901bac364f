//! From TOML to a topology, with a place for every mistake. Goes on after a mistake, to find all of them.

use crate::component::Component;
use crate::error::{Position, TopologyError, TopologyErrors};
use crate::topology::{Process, Topology, stem};
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What a topology, and a process, can say.
const TOP: [&str; 2] = ["name", "process"];
const PROCESS: [&str; 4] = ["name", "components", "cores", "program"];

/// No name is longer, in bytes.
const LONGEST_NAME: usize = 64;

type Table<'t> = DeTable<'t>;
type Entry<'t> = Spanned<DeValue<'t>>;

/// Reads a topology, or finds all that is wrong with it.
pub(crate) fn topology(source: &str, text: &str) -> Result<Topology, TopologyErrors> {
    let mut reader = Reader {
        text,
        source,
        errors: Vec::new(),
    };
    let (table, mistakes) = DeTable::parse_recoverable(text);
    for mistake in &mistakes {
        let span = mistake.span().unwrap_or(0..0);
        reader.fault(
            span,
            &format!("{}; see toml.io", one_line(mistake.message())),
        );
    }
    // What the rest of a spoilt file means is a guess, and not worth further complaints.
    let topology = if mistakes.is_empty() {
        reader.topology(table.get_ref())
    } else {
        None
    };
    reader.errors.sort_by_key(|error| error.position);
    match topology {
        Some(topology) if reader.errors.is_empty() => Ok(topology),
        _ => Err(TopologyErrors(reader.errors)),
    }
}

/// A message as part of a sentence.
fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

struct Reader<'t> {
    text: &'t str,
    source: &'t str,
    errors: Vec<TopologyError>,
}

impl Reader<'_> {
    fn fault(&mut self, span: Range<usize>, message: &str) {
        self.errors.push(TopologyError {
            source: self.source.to_owned(),
            position: Some(Position::of(self.text, span.start)),
            message: message.to_owned(),
        });
    }

    /// None only after a fault.
    fn topology(&mut self, table: &Table<'_>) -> Option<Topology> {
        self.only_known(table, "a topology", &TOP);
        let name = match table.get("name") {
            Some(entry) => self.name(entry),
            None => Some(stem(self.source)),
        };
        let end = self.text.len();
        let Some(list) = table.get("process") else {
            self.fault(
                end..end,
                "the topology has no process; add a `[[process]]` with `components = [...]`",
            );
            return None;
        };
        let tables: Option<Vec<(Range<usize>, &Table<'_>)>> =
            list.get_ref().as_array().and_then(|array| {
                let tables = array.iter();
                tables
                    .map(|one| Some((one.span(), one.get_ref().as_table()?)))
                    .collect()
            });
        let Some(tables) = tables.filter(|tables| !tables.is_empty()) else {
            self.fault(
                list.span(),
                "`process` must be a list of tables; begin each process with `[[process]]`",
            );
            return None;
        };
        let mut places = BTreeMap::new();
        let mut processes = Vec::new();
        for (span, one) in tables {
            let process = self.process(span.clone(), one, &mut places);
            if let Some(process) = process {
                let at = one.get("name").map_or(span, Spanned::span);
                self.unique(at, &process, &processes);
                processes.push(process);
            }
        }
        self.complete(&places);
        Some(Topology {
            name: name?,
            source: self.source.to_owned(),
            processes,
        })
    }

    /// Finds fault with keys that mean nothing here.
    fn only_known(&mut self, table: &Table<'_>, what: &str, known: &[&str]) {
        for (key, _) in table {
            if !known.contains(&key.get_ref().as_ref()) {
                let name = key.get_ref().escape_debug();
                let known = known.join("`, `");
                self.fault(
                    key.span(),
                    &format!("{what} has no `{name}`; it can have `{known}`"),
                );
            }
        }
    }

    fn process(
        &mut self,
        span: Range<usize>,
        table: &Table<'_>,
        places: &mut BTreeMap<Component, Position>,
    ) -> Option<Process> {
        self.only_known(table, "a process", &PROCESS);
        let components = match table.get("components") {
            Some(entry) => self.components(entry, places),
            None => {
                let all = all_names();
                self.fault(
                    span.clone(),
                    &format!("the process has no `components`; list some of {all}"),
                );
                None
            }
        };
        let name = table.get("name").map(|entry| self.name(entry));
        let cores = match table.get("cores") {
            Some(entry) => self.cores(entry),
            None => Some(Vec::new()),
        };
        let program = match table.get("program") {
            Some(entry) => self.program(entry, table.get("cores")),
            None => Some(false),
        };
        let components = components?;
        let joined = || {
            let names: Vec<&str> = components.iter().map(|one| one.name()).collect();
            names.join("+")
        };
        let cores_span = table.get("cores").map_or(span.start, |at| at.span().start);
        Some(Process {
            name: name.unwrap_or_else(|| Some(joined()))?,
            cores: cores?,
            program: program?,
            position: Position::of(self.text, span.start),
            cores_position: Position::of(self.text, cores_span),
            components,
        })
    }

    fn name(&mut self, entry: &Entry<'_>) -> Option<String> {
        let fits = |name: &&str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_+.:".contains(&byte);
            (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(plain)
        };
        let name = entry.get_ref().as_str().filter(fits);
        if name.is_none() {
            self.fault(
                entry.span(),
                "a name is a string of 1 to 64 letters, digits, or characters of -_+.: such as \
                 `name = \"tcp\"`",
            );
        }
        name.map(str::to_owned)
    }

    fn components(
        &mut self,
        entry: &Entry<'_>,
        places: &mut BTreeMap<Component, Position>,
    ) -> Option<Vec<Component>> {
        let Some(array) = entry.get_ref().as_array() else {
            self.fault(
                entry.span(),
                "`components` must be a list; write such as `components = [\"tcp\"]`",
            );
            return None;
        };
        if array.is_empty() {
            self.fault(
                entry.span(),
                "the process is empty; name its components, or leave it out",
            );
        }
        let before = self.errors.len();
        let mut components = Vec::new();
        for one in array {
            let Some(component) = one.get_ref().as_str().and_then(Component::from_name) else {
                let all = all_names();
                let what = one.get_ref().as_str().map_or_else(
                    || "this is no component".to_owned(),
                    |name| format!("there is no component \"{}\"", name.escape_debug()),
                );
                self.fault(one.span(), &format!("{what}; there are {all}"));
                continue;
            };
            let position = Position::of(self.text, one.span().start);
            match places.get(&component) {
                Some(first) => {
                    let (line, column) = (first.line, first.column);
                    self.fault(
                        one.span(),
                        &format!(
                            "component \"{component}\" is placed at line {line}, column {column} \
                             already; strike one of the two"
                        ),
                    );
                }
                None => {
                    places.insert(component, position);
                    components.push(component);
                }
            }
        }
        (before == self.errors.len() && !components.is_empty()).then_some(components)
    }

    fn cores(&mut self, entry: &Entry<'_>) -> Option<Vec<u16>> {
        let Some(array) = entry.get_ref().as_array().filter(|list| !list.is_empty()) else {
            self.fault(
                entry.span(),
                "`cores` must be a list of at least one core, such as `cores = [1]`; leave it out for \
                 any core",
            );
            return None;
        };
        let mut cores = Vec::new();
        let before = self.errors.len();
        for one in array {
            let number = one
                .get_ref()
                .as_integer()
                .and_then(|number| u16::from_str_radix(number.as_str(), number.radix()).ok());
            match number {
                None => self.fault(
                    one.span(),
                    "a core is a number from 0 to 65535; `lscpu -e` lists those there are",
                ),
                Some(core) if cores.contains(&core) => {
                    self.fault(
                        one.span(),
                        &format!("core {core} is in the list twice; strike one"),
                    );
                }
                Some(core) => cores.push(core),
            }
        }
        (before == self.errors.len()).then_some(cores)
    }

    fn program(&mut self, entry: &Entry<'_>, cores: Option<&Entry<'_>>) -> Option<bool> {
        let program = entry.get_ref().as_bool();
        if program.is_none() {
            self.fault(entry.span(), "`program` must be `true` or `false`");
        }
        if let (Some(true), Some(cores)) = (program, cores) {
            self.fault(
                cores.span(),
                "a program chooses its cores itself; strike `cores`, or `program`",
            );
        }
        program
    }

    /// Finds fault with a second process of one name, or a second that is the program. There are no more
    /// processes than components, so looking at each is quick.
    fn unique(&mut self, at: Range<usize>, process: &Process, before: &[Process]) {
        if let Some(first) = before.iter().find(|one| one.name == process.name) {
            let (name, line) = (&process.name, first.position.line);
            let message = format!("the process at line {line} is called {name}, too; rename one");
            self.fault(at.clone(), &message);
        }
        if let Some(first) = before.iter().find(|one| one.program && process.program) {
            let line = first.position.line;
            let message =
                format!("the process at line {line} is the program already; put them together");
            self.fault(at, &message);
        }
    }

    /// Finds fault with components that have no place, unless another fault may be why.
    fn complete(&mut self, places: &BTreeMap<Component, Position>) {
        let missing: Vec<&str> = Component::ALL
            .iter()
            .filter(|component| !places.contains_key(component))
            .map(|component| component.name())
            .collect();
        if missing.is_empty() || !self.errors.is_empty() {
            return;
        }
        let end = self.text.len();
        let missing = missing.join(", ");
        self.fault(
            end..end,
            &format!("no process has {missing}; add what is missing to the `components` of one"),
        );
    }
}

fn all_names() -> String {
    Component::ALL.map(Component::name).join(", ")
}
