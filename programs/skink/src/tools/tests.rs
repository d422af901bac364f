use super::*;
use std::collections::BTreeMap;

pub fn info() -> InstanceInfo {
    let process = |owner: u16, pid: u32, program: &str| ProcessInfo {
        owner,
        pid,
        uid: 0,
        program: program.to_owned(),
        regions: Vec::new(),
        queues: Vec::new(),
    };
    InstanceInfo {
        release: "0.1.0".to_owned(),
        pid: 100,
        name: "web".to_owned(),
        command: vec!["nginx".to_owned()],
        nic: "tap:skink0".to_owned(),
        addresses: vec!["10.77.0.2/24".parse().expect("an address")],
        gateways: Vec::new(),
        started_ms: 5,
        topology: None,
        standby: None,
        components: Vec::new(),
        processes: vec![process(0, 101, "nginx"), process(1, 102, "helper")],
        finished: BTreeMap::from([("tcp.bytes_in".to_owned(), 7)]),
    }
}

#[test]
fn instances_are_selected_by_name_or_number_and_so_are_single_processes() {
    let cases = [
        (None, true, 2, 1),
        (Some("web"), true, 2, 1),
        (Some("100"), true, 2, 1),
        (Some("102"), true, 1, 0),
        (Some("helper"), true, 1, 0),
        (Some("we"), false, 0, 0),
        (Some("103"), false, 0, 0),
    ];
    for (selector, selected, processes, finished) in cases {
        let mut info = info();
        assert_eq!(select(&mut info, selector), selected, "{selector:?}");
        let counts = (info.processes.len(), info.finished.len());
        assert_eq!(counts, (processes, finished), "{selector:?}");
    }
}

#[test]
fn columns_are_as_wide_as_their_widest_cell() {
    let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect();
    let rows: Vec<Vec<String>> = vec![row(&["name", "n", "x"]), row(&["a", "100"])];
    assert_eq!(table(&rows, &[1]), "name    n  x\na     100\n");
}

/// A program names itself, and may write to the terminal of who looks at it otherwise.
#[test]
fn names_hold_no_escape_sequences() {
    let mut info = info();
    info.processes[1].program = "\x1b[31mX\n\u{9b}2J".to_owned();
    clean(&mut info);
    let names = info.processes.iter().map(|it| it.program.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["nginx", "?[31mX??2J"]);
}
