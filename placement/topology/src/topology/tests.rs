use super::*;

/// The last six components, in a process at the end of a file.
const REST: &str = "[[process]]\nname = \"rest\"\n\
    components = [\"ip\", \"filter\", \"udp\", \"tcp\", \"syscall\", \"store\"]\n";

fn with_link(process: &str) -> String {
    format!("[[process]]\n{process}\n{REST}")
}

fn errors(text: &str) -> Vec<String> {
    match Topology::parse("t.toml", text) {
        Ok(topology) => panic!("no error in {text}: {topology:?}"),
        Err(TopologyErrors(errors)) => errors.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn presets_are_complete_and_called_what_they_are() {
    let shapes = [
        ("library", 1, true),
        ("single", 1, false),
        ("split", 7, false),
    ];
    assert_eq!(
        PRESETS.map(|(name, _)| name),
        shapes.map(|(name, _, _)| name)
    );
    for (name, processes, program) in shapes {
        let topology = Topology::load(name).expect("ships");
        assert_eq!(topology.name, name);
        assert_eq!(topology.processes.len(), processes, "{name}");
        assert!(topology.processes.iter().all(|one| one.program == program));
        for component in Component::ALL {
            assert!(
                topology.process_of(component).is_some(),
                "{name}: {component}"
            );
        }
    }
}

#[test]
fn presets_can_be_read_from_their_files_as_well() {
    for (name, _) in PRESETS {
        let path = format!(
            "{}/../../topologies/{name}.toml",
            env!("CARGO_MANIFEST_DIR")
        );
        let mut read = Topology::load(&path).expect("a file");
        assert_eq!(read.source, path);
        read.source = format!("topologies/{name}.toml");
        assert_eq!(Ok(read), Topology::load(name));
    }
}

#[test]
fn what_is_left_out_has_its_default() {
    let text = with_link("components = [\"link\"]");
    let topology = Topology::parse("/etc/skink/mine.toml", &text).expect("a topology");
    assert_eq!(topology.name, "mine");
    let link = topology.process_of(Component::Link).expect("placed");
    let expected = Process {
        name: "link".to_owned(),
        components: vec![Component::Link],
        cores: Vec::new(),
        program: false,
        position: Position { line: 1, column: 1 },
        cores_position: Position { line: 1, column: 1 },
    };
    assert_eq!(*link, expected);
    let joined = text.replace("name = \"rest\"\n", "");
    let topology = Topology::parse("x", &joined).expect("a topology");
    assert_eq!(
        topology.processes[1].name,
        "ip+filter+udp+tcp+syscall+store"
    );
}

#[test]
fn what_is_said_is_taken() {
    let text = with_link("name = \"wire\"\ncomponents = [\"link\"]\ncores = [0x10, 1]");
    let topology = Topology::parse("x", &format!("name = \"my-1\"\n{text}")).expect("a topology");
    let link = topology.process_of(Component::Link).expect("placed");
    assert_eq!(
        (topology.name.as_str(), link.name.as_str()),
        ("my-1", "wire")
    );
    assert_eq!(link.cores, [16, 1]);
    assert_eq!(link.position.line, 2);
    assert_eq!(link.cores_position, Position { line: 5, column: 9 });
    assert!(!link.program);
}

/// What stands in the first process, besides the rest; where the fault is, and words of the message.
const FAULTS: &[(&str, &str, &str)] = &[
    (
        "components = [\"lnik\"]",
        "2:15",
        "no component \"lnik\"; there are link, ip,",
    ),
    (
        "components = [\"link\", 7]",
        "2:23",
        "this is no component; there are",
    ),
    (
        "components = [\"link\", \"link\"]",
        "2:23",
        "line 2, column 15 already; strike one",
    ),
    (
        "components = [\"link\", \"tcp\"]",
        "5:38",
        "\"tcp\" is placed at line 2",
    ),
    ("components = []", "2:14", "the process is empty"),
    ("components = \"link\"", "2:14", "must be a list"),
    (
        "name = \"x\"",
        "1:1",
        "has no `components`; list some of link,",
    ),
    (
        "components = [\"link\"]\ncore = [1]",
        "3:1",
        "no `core`; it can have `name`, `components`, `cores`",
    ),
    (
        "components = [\"link\"]\nreplicas = 2",
        "3:1",
        "no `replicas`",
    ),
    (
        "components = [\"link\"]\n\"a\\nb\" = 2",
        "3:1",
        "no `a\\nb`",
    ),
    (
        "components = [\"link\"]\ncores = 1",
        "3:9",
        "must be a list of at least one core",
    ),
    (
        "components = [\"link\"]\ncores = []",
        "3:9",
        "leave it out for any",
    ),
    (
        "components = [\"link\"]\ncores = [-1]",
        "3:10",
        "a number from 0 to 65535",
    ),
    (
        "components = [\"link\"]\ncores = [0, 65536]",
        "3:13",
        "a number from 0 to 65535",
    ),
    (
        "components = [\"link\"]\ncores = [1_0, 10]",
        "3:15",
        "core 10 is in the list twice",
    ),
    (
        "components = [\"link\"]\nname = 5",
        "3:8",
        "a name is a string",
    ),
    (
        "components = [\"link\"]\nname = \"a b\"",
        "3:8",
        "a name is a string",
    ),
    (
        "components = [\"link\"]\nname = \"\"",
        "3:8",
        "a name is a string",
    ),
    (
        "components = [\"link\"]\nname = \"rest\"",
        "5:8",
        "line 1 is called rest, too; rename",
    ),
    (
        "components = [\"link\"]\nprogram = 1",
        "3:11",
        "must be `true` or `false`",
    ),
    (
        "components = [\"link\"]\nprogram = true\ncores = [1]",
        "4:9",
        "chooses its cores itself",
    ),
    // What TOML itself forbids.
    ("components = [\"link\"", "5:1", "toml.io"),
    (
        "components = [\"link\"]\ncomponents = [\"link\"]",
        "3:1",
        "duplicate key",
    ),
    ("components: link", "2:11", "toml.io"),
];

#[test]
fn faults_are_told_with_their_place() {
    for (process, place, words) in FAULTS {
        let found = errors(&with_link(process));
        let start = format!("t.toml:{place}: ");
        assert!(
            found
                .iter()
                .any(|one| one.starts_with(&start) && one.contains(words)),
            "{process}: expected {place}: {words}, found {found:#?}"
        );
    }
}

#[test]
fn faults_of_the_whole_are_told() {
    let table = [
        (
            "",
            "t.toml:1:1: the topology has no process; add a `[[process]]`".to_owned(),
        ),
        (
            "name = \"x\"\nprocess = 3",
            "t.toml:2:11: `process` must be a list of tables".to_owned(),
        ),
        (
            "process = []",
            "t.toml:1:11: `process` must be a list of tables".to_owned(),
        ),
        (
            "[process]\ncomponents = []",
            "t.toml:1:1: `process` must be a list of tables".to_owned(),
        ),
        (REST, "t.toml:4:1: no process has link; add".to_owned()),
        ("é = 1", "t.toml:1:1: ".to_owned()),
        (
            "proces = 1\n",
            "t.toml:1:1: a topology has no `proces`; it can have `name`, `process`".to_owned(),
        ),
    ];
    for (text, start) in table {
        let found = errors(text);
        assert!(
            found.iter().any(|one| one.starts_with(&start)),
            "{text}: {found:#?}"
        );
    }
}

#[test]
fn two_programs_are_one_too_many() {
    let rest = REST.replace("name", "program = true\nname");
    let text = format!("[[process]]\nprogram = true\ncomponents = [\"link\"]\n{rest}");
    let found = errors(&text);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].starts_with("t.toml:6:8: the process at line 1 is the program already"));
}

#[test]
fn all_faults_are_told_at_once_in_the_order_of_the_file() {
    let found = errors(&with_link("components = [\"lnik\"]\ncores = []\nx = 1"));
    let places: Vec<&str> = found
        .iter()
        .filter_map(|one| one.strip_prefix("t.toml:")?.split(": ").next())
        .collect();
    assert_eq!(places, ["2:15", "3:9", "4:1"]);
}

#[test]
fn cores_that_the_machine_lacks_are_told() {
    let text = with_link("components = [\"link\"]\ncores = [0, 3, 9]");
    let topology = Topology::parse("t.toml", &text).expect("a topology");
    assert_eq!(topology.check_cores(&[0, 3, 9, 12]), Ok(()));
    let errors = topology
        .check_cores(&[0, 1])
        .expect_err("3 and 9 are missing");
    assert_eq!(
        errors.to_string(),
        "t.toml:3:9: process link is to run on core 3, which Skink can't use here; name some of 0, 1, \
         or leave `cores` out\n\
         t.toml:3:9: process link is to run on core 9, which Skink can't use here; name some of 0, 1, \
         or leave `cores` out"
    );
}

#[test]
fn what_can_t_be_read_says_what_to_do() {
    let table = [
        (
            "splt",
            "splt: there is no topology of this name; use one of library, single, split, or a file",
        ),
        (
            "./nowhere.toml",
            "./nowhere.toml: the topology can't be read: No such file",
        ),
        ("/", "/: the topology can't be read: Is a directory"),
        ("/dev/zero", "/dev/zero: this is longer than"),
    ];
    for (word, start) in table {
        let error = Topology::load(word).expect_err("no topology").to_string();
        assert!(error.starts_with(start), "{error}");
    }
}

#[test]
fn places_count_characters() {
    let text = "aé\nüb\r\nc";
    let table = [
        (0, 1, 1),
        (1, 1, 2),
        (3, 1, 3),
        (4, 2, 1),
        (6, 2, 2),
        (9, 3, 1),
        (10, 3, 2),
        (99, 3, 2),
    ];
    for (offset, line, column) in table {
        assert_eq!(
            Position::of(text, offset),
            Position { line, column },
            "{offset}"
        );
    }
}

/// A sequence of pseudo-random numbers (Marsaglia's xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

/// Cuts, doubles, swaps and overwrites parts of a file.
fn mutate(random: &mut Random, text: &str) -> String {
    const WORDS: [&str; 16] = [
        "[",
        "]",
        "[[process]]",
        "\"",
        "'''",
        "=",
        ",",
        "\n",
        "components",
        "true",
        "-1",
        "{",
        "}",
        "é",
        "0x",
        "\"tcp\"",
    ];
    let mut characters: Vec<char> = text.chars().collect();
    for _ in 0..=random.below(4) {
        let start = random.below(characters.len() + 1);
        let end = (start + random.below(12)).min(characters.len());
        let word = WORDS[random.below(WORDS.len())];
        match random.below(4) {
            0 => drop(characters.drain(start..end)),
            1 => {
                let part = characters[start..end].to_vec();
                characters.splice(start..start, part);
            }
            2 => drop(characters.splice(start..end, word.chars())),
            _ => {
                if let Some(one) = characters.get_mut(start) {
                    *one = char::from(random.below(128) as u8);
                }
            }
        }
    }
    characters.into_iter().collect()
}

#[test]
fn no_file_does_harm() {
    let mut random = Random(0x5eed);
    let (mut good, mut bad) = (0, 0);
    for round in 0..30_000 {
        let (_, text) = PRESETS[round % PRESETS.len()];
        let text = mutate(&mut random, text);
        match Topology::parse("t.toml", &text) {
            Ok(topology) => {
                good += 1;
                for component in Component::ALL {
                    let has = |one: &&Process| one.components.contains(&component);
                    assert_eq!(topology.processes.iter().filter(has).count(), 1, "{text}");
                }
                let _ = topology.channels();
            }
            Err(TopologyErrors(errors)) => {
                bad += 1;
                assert!(!errors.is_empty(), "{text}");
                for error in errors {
                    let Position { line, column } = error.position.expect("a place");
                    let lines: Vec<&str> = text.split('\n').collect();
                    let chosen = lines.get(line - 1).expect("a line of the file");
                    assert!(column <= chosen.chars().count() + 1, "{error}: {text}");
                    assert!(!error.to_string().contains('\n'), "{error}");
                }
            }
        }
    }
    assert!(good > 1_000 && bad > 1_000, "{good} good, {bad} bad");
}
