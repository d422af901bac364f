use super::*;

fn candidate(nic: &str, why: Option<&str>) -> Candidate {
    Candidate {
        nic: nic.parse().expect("a NIC"),
        why: why.map(str::to_owned),
    }
}

/// Opens those that `can` names.
fn outcome(candidates: &[Candidate], can: &[&str]) -> (Result<String, Failure>, Plan) {
    let first = candidates.first().expect("a candidate").nic.clone();
    let mut plan = Plan::new(first, Vec::new());
    plan.candidates = candidates.to_vec();
    let opened = open_best(&mut plan, |candidate| {
        let name = candidate.nic.to_string();
        match can.contains(&name.as_str()) {
            true => Ok(name),
            false => Err(format!("no {name}")),
        }
    });
    (opened, plan)
}

#[test]
fn the_first_that_opens_is_taken_and_what_was_refused_is_told() {
    let both = [
        candidate("xdp:e", Some("it is fast")),
        candidate("packet:e", Some("it works")),
    ];
    let cases = [
        (
            &["xdp:e", "packet:e"][..],
            "xdp:e",
            &["xdp:e chosen: it is fast"][..],
        ),
        (
            &["packet:e"],
            "packet:e",
            &["xdp:e can't be had: no xdp:e", "packet:e chosen: it works"],
        ),
    ];
    for (can, nic, remarks) in cases {
        let (opened, plan) = outcome(&both, can);
        assert_eq!(opened, Ok(nic.to_owned()));
        assert_eq!(plan.nic.to_string(), nic);
        assert_eq!(plan.remarks, remarks);
    }
    let (opened, _) = outcome(&both, &[]);
    assert_eq!(opened, Err(Failure::own("no packet:e")));
}

#[test]
fn of_a_nic_that_was_named_nothing_is_said() {
    let (opened, plan) = outcome(&[candidate("xdp:e", None)], &["xdp:e"]);
    assert_eq!(opened, Ok("xdp:e".to_owned()));
    assert!(plan.remarks.is_empty(), "{:?}", plan.remarks);
}
