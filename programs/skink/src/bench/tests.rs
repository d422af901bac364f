use super::lab::Receive;
use super::plan::Plan;
use super::*;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: BenchOptions,
}

fn parse(words: &str) -> Result<What, clap::Error> {
    let words = std::iter::once("bench").chain(words.split_whitespace());
    Line::try_parse_from(words).map(|line| line.options.what)
}

fn plan(words: &str) -> Plan {
    let what = parse(words).expect("good");
    what.plan()
        .unwrap_or_else(|| panic!("{words} has no plan"))
        .1
}

fn names<T: ToString>(all: &[T]) -> String {
    let names: Vec<String> = all.iter().map(ToString::to_string).collect();
    names.join(" ")
}

#[test]
fn each_verb_measures_what_it_says() {
    const KERNEL: &str = "kernel-gso-on kernel-gso-off";
    for (words, tasks, skink) in [
        (
            "web",
            "20B 20B-close 22KB 22KB-close 1MB",
            "library-packet-gso-on library-packet-gso-off library-xdp-gso-on library-xdp-gso-off \
             library-tap-gso-on library-tap-gso-off",
        ),
        (
            "web --nic xdp --topology split --workload 22KB-close",
            "22KB-close",
            "split-xdp-gso-on split-xdp-gso-off",
        ),
        (
            "web --server lighttpd --nic packet --workload 22KB",
            "lighttpd-22KB",
            "library-packet-gso-on library-packet-gso-off",
        ),
        (
            "bulk --topology single",
            "bulk-send bulk-receive",
            "single-packet-gso-on single-packet-gso-off",
        ),
        (
            "bulk --direction receive --nic xdp --topology library",
            "bulk-receive",
            "library-xdp-gso-on library-xdp-gso-off",
        ),
        (
            "rr",
            "rr-1 rr-16",
            "library-packet-gso-on library-packet-gso-off single-packet-gso-on \
             single-packet-gso-off split-packet-gso-on split-packet-gso-off",
        ),
        (
            "rr --connections 7 --topology library",
            "rr-7",
            "library-packet-gso-on library-packet-gso-off",
        ),
        (
            "conn",
            "conn",
            "library-packet-gso-on library-packet-gso-off",
        ),
        (
            "kv",
            "redis-get redis-set memcached-get",
            "library-packet-gso-on library-packet-gso-off",
        ),
        (
            "conn --nic xdp --topology single",
            "conn",
            "single-xdp-gso-on single-xdp-gso-off",
        ),
        (
            "web --nic tap --rate 1000",
            "20B 22KB",
            "library-tap-gso-on library-tap-gso-off",
        ),
        (
            "topologies",
            "bulk-send bulk-receive 20B 22KB rr-1 rr-16",
            "library-packet-gso-on library-packet-gso-off single-packet-gso-on \
             single-packet-gso-off split-packet-gso-on split-packet-gso-off",
        ),
        (
            "library",
            "20B 20B-close 22KB redis-get redis-set memcached-get bulk-send bulk-receive conn rr-1 64B-1 64B 1514B",
            "library-packet-gso-on library-packet-gso-off library-xdp-gso-on library-xdp-gso-off \
             raw-packet raw-packet-gso-off raw-xdp raw-xdp-gso-off",
        ),
        (
            "library --nic xdp --workload 64B --workload conn",
            "64B conn",
            "library-xdp-gso-on library-xdp-gso-off raw-xdp raw-xdp-gso-off",
        ),
        (
            // There is nothing for back ends without a stack to do.
            "library --workload conn --nic packet",
            "conn",
            "library-packet-gso-on library-packet-gso-off",
        ),
        (
            "topologies --workload rr-1 --topology library --nic xdp",
            "rr-1",
            "library-xdp-gso-on library-xdp-gso-off",
        ),
    ] {
        let plan = plan(words);
        assert_eq!(names(&plan.tasks), tasks, "{words}");
        assert_eq!(
            names(&plan.variants),
            format!("{KERNEL} {skink}"),
            "{words}"
        );
    }
    for (words, tasks, variants) in [
        (
            "idle --idle 7",
            "echo-64B",
            "kernel-gso-on kernel-gso-on-idle-7 library-packet-gso-on library-packet-gso-on-idle-7",
        ),
        (
            "web --workload 20B --nic xdp --workers 1 --workers 2",
            "20B",
            "kernel-gso-on kernel-gso-on-workers-2 kernel-gso-off kernel-gso-off-workers-2 \
             library-xdp-gso-on library-xdp-gso-on-workers-2 \
             library-xdp-gso-off library-xdp-gso-off-workers-2",
        ),
        (
            "pps --nic xdp --rate 9",
            "64B 1514B 64B-9/s 1514B-9/s 64B-1 1514B-1",
            "kernel-gso-on raw-xdp library-xdp-gso-on",
        ),
        (
            "local",
            "null file open pipe epoll",
            "kernel-gso-on library-packet-gso-on",
        ),
    ] {
        let plan = plan(words);
        assert_eq!(names(&plan.tasks), tasks, "{words}");
        assert_eq!(names(&plan.variants), variants, "{words}");
    }
    let filter = plan("filter --filter-rules 9 --filter-rules 64");
    assert_eq!(names(&filter.tasks), "bulk-send bulk-receive 20B rr-1");
    assert_eq!(
        names(&filter.variants),
        "library-packet-gso-on library-packet-gso-on-rules-9 library-packet-gso-on-rules-64"
    );
}

#[test]
fn options_have_bounds_and_defaults() {
    for verb in [
        "web",
        "bulk",
        "rr",
        "conn",
        "kv",
        "idle",
        "pps",
        "local",
        "library",
        "topologies",
        "filter",
    ] {
        let plan = plan(verb);
        assert_eq!((plan.rounds, plan.seconds, plan.connections), (5, 3, 64));
        assert_eq!(plan.verb, verb);
        assert_eq!(plan.receive, Receive::Own);
        for bad in [
            "--receive nobody",
            "--rounds 0",
            "--seconds 0",
            "--nic wifi",
            "--topology town",
        ] {
            assert!(parse(&format!("{verb} {bad}")).is_err(), "{verb} {bad}");
        }
    }
    assert_eq!(plan("rr --receive sender").receive, Receive::Sender);
    assert!(plan("rr --napi-batch").napi_batch && !plan("rr").napi_batch);
    for bad in [
        "web --workload 1B",
        "web --server apache",
        "topologies --workload 1MB",
        "library --workload 1MB",
        "rr --connections 0",
        "rr --rate 0",
        "rr --receive sender --napi-batch",
        "kv --workload redis-del",
        "idle --idle 0",
        "idle --idle 3000001",
        "pps --bytes 63",
        "pps --bytes 1515",
        "local --operation think",
        "bulk --direction up",
        "filter --filter-rules 2",
        "filter --filter-rules 65537",
    ] {
        assert!(parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn connections_for_each_request_have_no_rate() {
    assert_eq!(plan("web --rate 9 --workload 20B").mistake(), None);
    assert_eq!(plan("web --workload 20B-close").mistake(), None);
    let mistake = plan("web --rate 9 --workload 20B-close").mistake();
    assert!(mistake.is_some_and(|why| why.contains("20B-close")));
    assert_eq!(plan("web --workers 2").mistake(), None);
    let mistake = plan("web --workers 2 --server lighttpd").mistake();
    assert!(mistake.is_some_and(|why| why.contains("--workers")));
}

#[test]
fn only_web_needs_other_programs() {
    for (words, nginx) in [
        ("rr", false),
        ("bulk", false),
        ("web", true),
        ("filter", true),
        ("web --rate 9", true),
        ("library", true),
        ("library --workload rr-1", false),
        ("web --server lighttpd", false),
        ("kv", false),
    ] {
        let needs = plan(words).programs().contains(&"nginx");
        assert_eq!(needs, nginx, "{words}");
    }
}

#[test]
fn the_peer_reads_what_it_is_started_with() {
    for words in [
        "peer serve 16",
        "peer close",
        "peer ask echo 10.9.0.2:5201 16 3",
        "peer connect 10.9.0.2:5201 64 3",
        "peer many 3",
        "peer datagrams",
        "peer reflect xdp:eth0 10.9.0.2/24",
        "peer reflect --look-on xdp:eth0 10.9.0.2/24",
        "peer pair 64 10.9.0.2:5201 1 3",
        "peer hold 10.9.0.2:5201 15000 30000",
        "peer local pipe 10.9.0.2:5201 1 3",
        "peer pairs 64 10.9.0.2:5201 1 3 150000",
        "peer load redis-get 10.9.0.2:6379 64 3",
        "peer load http:small:20 10.9.0.2:80 64 3 1000",
    ] {
        assert!(matches!(parse(words), Ok(What::Peer(_))), "{words}");
    }
}
