use super::*;

#[test]
fn each_way_of_asking_has_a_word() {
    for (word, talk) in [
        ("byte", Talk::Byte),
        ("block", Talk::Block),
        ("redis-get", Talk::RedisGet),
        ("redis-set", Talk::RedisSet),
        ("memcached-get", Talk::MemcachedGet),
        (
            "http:small:20",
            Talk::Http {
                file: "small".to_owned(),
                bytes: 20,
            },
        ),
    ] {
        assert_eq!(word.parse(), Ok(talk));
    }
    for bad in ["", "bytes", "http:small", "http:small:many", "byte:1"] {
        assert!(bad.parse::<Talk>().is_err(), "{bad}");
    }
}

#[test]
fn requests_are_as_the_protocols_want_them() {
    let v64 = "v".repeat(56);
    let v100 = "v".repeat(92);
    for (talk, request, answer) in [
        (Talk::Byte, "\u{5}".to_owned(), "\u{5}".to_owned()),
        (
            Talk::RedisGet,
            "*2\r\n$3\r\nGET\r\n$12\r\nkey:00000005\r\n".to_owned(),
            format!("$64\r\n00000005{v64}\r\n"),
        ),
        (
            Talk::RedisSet,
            format!("*3\r\n$3\r\nSET\r\n$12\r\nkey:00000005\r\n$64\r\n00000005{v64}\r\n"),
            "+OK\r\n".to_owned(),
        ),
        (
            Talk::MemcachedGet,
            "get key:00000005\r\n".to_owned(),
            format!("VALUE key:00000005 0 100\r\n00000005{v100}\r\nEND\r\n"),
        ),
    ] {
        let (mut asked, mut expected) = ("old".to_owned(), "old".to_owned());
        talk.prepare(KEYS * 128 + 5, &mut asked, &mut expected);
        assert_eq!((asked, expected), (request, answer));
    }
}

#[test]
fn an_answer_is_whole_or_not_yet_or_wrong() {
    let http = Talk::Http {
        file: "f".to_owned(),
        bytes: 3,
    };
    let of = |talk: &Talk, got: &str| talk.is_complete(got.as_bytes(), "+OK\r\n").ok();
    for (talk, got, expected) in [
        (&Talk::RedisSet, "", Some(false)),
        (&Talk::RedisSet, "+OK\r", Some(false)),
        (&Talk::RedisSet, "+OK\r\n", Some(true)),
        (&Talk::RedisSet, "+OK\r\n+", None),
        (&Talk::RedisSet, "-ERR", None),
        (&http, "HTTP/1.1 200 OK\r\nA: b\r\n", Some(false)),
        (&http, "HTTP/1.1 200 OK\r\nA: b\r\n\r\nab", Some(false)),
        (&http, "HTTP/1.1 200 OK\r\nA: b\r\n\r\nabc", Some(true)),
        (&http, "HTTP/1.1 200 OK\r\nA: b\r\n\r\nabcd", None),
        (&http, "HTTP/1.1 404 No\r\nA: b\r\n\r\nabc", None),
    ] {
        assert_eq!(of(talk, got), expected, "{got:?}");
    }
}

#[test]
fn every_key_is_filled() {
    let (text, bytes) = Talk::RedisGet.fill();
    assert_eq!(text.matches("SET").count() as u64, KEYS);
    assert_eq!(bytes as u64, KEYS * 5);
    let (text, bytes) = Talk::MemcachedGet.fill();
    assert_eq!(text.matches("set key").count() as u64, KEYS);
    assert_eq!(bytes as u64, KEYS * 8);
    assert_eq!(Talk::Block.fill(), (String::new(), 0));
}
