//! The configuration file of `skink up`: TOML, with a place for every mistake. Goes on after a mistake,
//! to find all of them.
use crate::cli::Recovery;
use crate::failure::Failure;
use crate::run::choice::Wanted;
use crate::run::user::{self, User};
use skink_control::{TableSize, check_name};
use skink_wire::IpCidr;
use std::fmt::Display;
use std::io::Read;
use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What the file, and its tables, can say.
const TOP: [&str; 15] = [
    "name",
    "topology",
    "nic",
    "addresses",
    "gateways",
    "probe",
    "rules",
    "user",
    "recovery",
    "allow",
    "programs",
    "programs-per-user",
    "memory-mib",
    "tcp",
    "udp",
];
const TABLE: [&str; 3] = ["sockets", "send-bytes", "receive-bytes"];

/// No file is longer, in bytes.
const LONGEST: u64 = 1 << 20;

/// Most programs at a time.
pub const MAXIMUM_PROGRAMS: u16 = 4096;
/// Most sockets of one kind in one program.
const MAXIMUM_SOCKETS: u32 = 1 << 20;
/// Most memory for what programs haven't read, in mebibytes.
const MAXIMUM_MEMORY: u32 = 1 << 24;
/// Smallest and largest ring in bytes.
const RING: (u32, u32) = (1 << 12, 1 << 28);

/// What the file says. What it leaves open is `None` or empty.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Config {
    pub name: Option<String>,
    pub topology: Option<String>,
    pub nic: Option<Wanted>,
    pub addresses: Vec<IpCidr>,
    pub gateways: Vec<IpAddr>,
    pub probe: Option<bool>,
    /// A file; where it isn't absolute it is beside the configuration.
    pub rules: Option<PathBuf>,
    pub user: Option<User>,
    pub recovery: Option<Recovery>,
    pub allow: Option<Allow>,
    pub programs: Option<u16>,
    pub programs_per_user: Option<u16>,
    /// What peers have sent, and programs haven't read, may take of the memory, in mebibytes.
    pub memory_mib: Option<u32>,
    pub tcp: PartialSize,
    pub udp: PartialSize,
}

/// Who may attach programs, besides root and the user who runs the supervisor.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Allow {
    pub users: Vec<u32>,
    pub groups: Vec<u32>,
}

/// A table's size as far as the file says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PartialSize {
    pub sockets: Option<u32>,
    pub send_bytes: Option<u32>,
    pub receive_bytes: Option<u32>,
}

impl PartialSize {
    /// With the rest as in `whole`.
    pub fn or(self, whole: TableSize) -> TableSize {
        TableSize {
            sockets: self.sockets.unwrap_or(whole.sockets),
            send_bytes: self.send_bytes.unwrap_or(whole.send_bytes),
            receive_bytes: self.receive_bytes.unwrap_or(whole.receive_bytes),
        }
    }
}

impl Config {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Config, Failure> {
        let shown = path.display();
        let mut text = String::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text))
            .map_err(|error| Failure::own(format!("{shown}: can't be read: {error}")))?;
        if text.len() as u64 > LONGEST {
            return Err(Failure::own(format!(
                "{shown}: longer than {LONGEST} bytes, which no configuration is: give another file"
            )));
        }
        Config::parse(path, &text).map_err(|mistakes| Failure::own(mistakes.join("\nskink: ")))
    }

    /// Reads a text, or finds all that is wrong with it: lines that begin with the place.
    pub fn parse(path: &Path, text: &str) -> Result<Config, Vec<String>> {
        let mut reader = Reader {
            text,
            mistakes: Vec::new(),
        };
        let (table, mistakes) = DeTable::parse_recoverable(text);
        for mistake in &mistakes {
            let words: Vec<&str> = mistake.message().split_whitespace().collect();
            let span = mistake.span().unwrap_or(0..0);
            reader.fault(span, format!("{}; see toml.io", words.join(" ")));
        }
        // What the rest of a spoilt file means is a guess, and not worth further complaints.
        let config = match mistakes.is_empty() {
            true => reader.config(table.get_ref(), path),
            false => Config::default(),
        };
        if reader.mistakes.is_empty() {
            return Ok(config);
        }
        reader.mistakes.sort();
        let places = reader.mistakes.into_iter();
        let line = |((line, column), what): ((usize, usize), String)| {
            format!("{}:{line}:{column}: {what}", path.display())
        };
        Err(places.map(line).collect())
    }
}

type Entry<'t> = Spanned<DeValue<'t>>;

struct Reader<'t> {
    text: &'t str,
    mistakes: Vec<((usize, usize), String)>,
}

impl Reader<'_> {
    fn fault(&mut self, span: Range<usize>, what: String) {
        self.mistakes.push((place(self.text, span.start), what));
    }

    fn config(&mut self, table: &DeTable<'_>, path: &Path) -> Config {
        self.only_known(table, "the configuration", &TOP);
        let probe = table.get("probe").and_then(|entry| {
            let value = entry.get_ref().as_bool();
            if value.is_none() {
                self.fault(entry.span(), "`probe` must be `true` or `false`".to_owned());
            }
            value
        });
        let beside = |file: String| path.parent().unwrap_or(Path::new("")).join(file);
        Config {
            name: self.name(table.get("name")),
            topology: self.topology(table.get("topology"), path),
            nic: self.parsed(table.get("nic"), "nic", "packet:eth0"),
            addresses: self.list(table.get("addresses"), "addresses", "10.0.0.2/24"),
            gateways: self.list(table.get("gateways"), "gateways", "10.0.0.1"),
            probe,
            rules: self.string(table.get("rules"), "rules").map(beside),
            user: self.user(table.get("user")),
            recovery: self.parsed(table.get("recovery"), "recovery", "adopt"),
            allow: self.allow(table.get("allow")),
            programs: self.programs(table.get("programs"), "programs"),
            programs_per_user: self.programs(table.get("programs-per-user"), "programs-per-user"),
            memory_mib: self.number(table.get("memory-mib"), "memory-mib", (1, MAXIMUM_MEMORY)),
            tcp: self.size(table.get("tcp"), "tcp"),
            udp: self.size(table.get("udp"), "udp"),
        }
    }

    /// Finds fault with keys that mean nothing here.
    fn only_known(&mut self, table: &DeTable<'_>, what: &str, known: &[&str]) {
        for (key, _) in table {
            if !known.contains(&key.get_ref().as_ref()) {
                let name = key.get_ref().escape_debug();
                let known = known.join("`, `");
                self.fault(
                    key.span(),
                    format!("{what} has no `{name}`; it can have `{known}`"),
                );
            }
        }
    }

    fn string(&mut self, entry: Option<&Entry<'_>>, key: &str) -> Option<String> {
        let entry = entry?;
        let value = entry.get_ref().as_str().filter(|text| !text.is_empty());
        if value.is_none() {
            let what = format!("`{key}` must be a string that isn't empty: write {key} = \"...\"");
            self.fault(entry.span(), what);
        }
        value.map(str::to_owned)
    }

    fn name(&mut self, entry: Option<&Entry<'_>>) -> Option<String> {
        let name = self.string(entry, "name")?;
        if let (Err(why), Some(entry)) = (check_name(&name), entry) {
            self.fault(entry.span(), why);
        }
        Some(name)
    }

    /// A file of this name is beside the configuration, too.
    fn topology(&mut self, entry: Option<&Entry<'_>>, path: &Path) -> Option<String> {
        let word = self.string(entry, "topology")?;
        if !word.contains('/') && !word.ends_with(".toml") {
            return Some(word);
        }
        let path = path.parent().unwrap_or(Path::new("")).join(&word);
        // A bare file name would be taken for a preset's.
        Some(match path.to_str() {
            Some(path) if path.contains('/') => path.to_owned(),
            _ => format!("./{word}"),
        })
    }

    fn parsed<T>(&mut self, entry: Option<&Entry<'_>>, key: &str, example: &str) -> Option<T>
    where
        T: FromStr<Err: Display>,
    {
        let entry = entry?;
        let Some(text) = entry.get_ref().as_str() else {
            let what = format!("`{key}` must be a string, such as \"{example}\"");
            self.fault(entry.span(), what);
            return None;
        };
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                let what = format!("{error}; write such as \"{example}\"");
                self.fault(entry.span(), what);
                None
            }
        }
    }

    fn list<T>(&mut self, entry: Option<&Entry<'_>>, key: &str, example: &str) -> Vec<T>
    where
        T: FromStr<Err: Display>,
    {
        let Some(entry) = entry else {
            return Vec::new();
        };
        let Some(array) = entry.get_ref().as_array() else {
            let what = format!("`{key}` must be a list: write {key} = [\"{example}\"]");
            self.fault(entry.span(), what);
            return Vec::new();
        };
        let items = array.iter();
        items
            .filter_map(|item| self.parsed(Some(item), key, example))
            .collect()
    }

    fn user(&mut self, entry: Option<&Entry<'_>>) -> Option<User> {
        let name = self.string(entry, "user")?;
        match User::find(&name) {
            Ok(user) => Some(user),
            Err(_) => {
                let what =
                    format!("there is no user {name} in /etc/passwd; give another, or a number");
                self.fault(entry?.span(), what);
                None
            }
        }
    }

    fn allow(&mut self, entry: Option<&Entry<'_>>) -> Option<Allow> {
        let entry = entry?;
        let Some(array) = entry.get_ref().as_array() else {
            let what = "`allow` must be a list of users, and of groups with a % in front: write \
                        allow = [\"www-data\", \"%web\"]";
            self.fault(entry.span(), what.to_owned());
            return None;
        };
        let mut allow = Allow::default();
        for item in array {
            let word = item.get_ref().as_str().unwrap_or_default();
            let found = match word.strip_prefix('%') {
                Some(group) => user::group(group).map(|gid| allow.groups.push(gid)),
                None => User::find(word).ok().map(|user| allow.users.push(user.uid)),
            };
            if found.is_none() {
                let what = format!(
                    "there is no {} in {}; give the name or number of a user, or of a group with a % in \
                     front, such as \"www-data\" or \"%web\"",
                    match word {
                        "" => "such user",
                        word => word,
                    },
                    match word.starts_with('%') {
                        true => "/etc/group",
                        false => "/etc/passwd",
                    }
                );
                self.fault(item.span(), what);
            }
        }
        Some(allow)
    }

    fn number(&mut self, entry: Option<&Entry<'_>>, key: &str, range: (u32, u32)) -> Option<u32> {
        let entry = entry?;
        let number = entry.get_ref().as_integer();
        let number = number.and_then(|it| u32::from_str_radix(it.as_str(), it.radix()).ok());
        let (least, most) = range;
        let number = number.filter(|number| (least..=most).contains(number));
        if number.is_none() {
            let what = format!("`{key}` must be a number from {least} to {most}");
            self.fault(entry.span(), what);
        }
        number
    }

    fn programs(&mut self, entry: Option<&Entry<'_>>, key: &str) -> Option<u16> {
        let number = self.number(entry, key, (1, MAXIMUM_PROGRAMS.into()))?;
        u16::try_from(number).ok()
    }

    fn size(&mut self, entry: Option<&Entry<'_>>, key: &str) -> PartialSize {
        let Some(entry) = entry else {
            return PartialSize::default();
        };
        let Some(table) = entry.get_ref().as_table() else {
            let what = format!("`{key}` must be a table: write [{key}], and its keys below");
            self.fault(entry.span(), what);
            return PartialSize::default();
        };
        self.only_known(table, &format!("`{key}`"), &TABLE);
        PartialSize {
            sockets: self.number(table.get("sockets"), "sockets", (1, MAXIMUM_SOCKETS)),
            send_bytes: self.ring(table.get("send-bytes"), "send-bytes"),
            receive_bytes: self.ring(table.get("receive-bytes"), "receive-bytes"),
        }
    }

    fn ring(&mut self, entry: Option<&Entry<'_>>, key: &str) -> Option<u32> {
        let bytes = self.number(entry, key, RING)?;
        if !bytes.is_power_of_two() {
            let what = format!(
                "`{key}` must be a power of two, such as {}",
                bytes.next_power_of_two()
            );
            self.fault(entry?.span(), what);
        }
        Some(bytes)
    }
}

/// Line and column of the byte at `offset`, in characters, from 1.
fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (1 + before.matches('\n').count(), 1 + line.chars().count())
}

#[cfg(test)]
mod tests;
