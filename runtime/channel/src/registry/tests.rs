use super::*;
use zerocopy::{FromBytes, IntoBytes};

const IP: Credentials = Credentials {
    uid: 501,
    component: ComponentId(1),
};
const TCP: Credentials = Credentials {
    uid: 502,
    component: ComponentId(2),
};
const UDP: Credentials = Credentials {
    uid: 503,
    component: ComponentId(3),
};
const POOL: Offer = Offer::Pool {
    id: 7,
    chunk_bytes: 2048,
    chunks: 64,
};
const QUEUE: Offer = Offer::Queue {
    slot_bytes: 64,
    capacity: 256,
};

fn name(text: &str) -> ChannelName {
    ChannelName::new(text).expect("a name")
}

fn publish(generation: u64, offer: Offer) -> Request {
    Request::Publish {
        name: name("ip/x"),
        generation,
        offer,
    }
}

fn attach(generation: u64) -> Request {
    Request::Attach {
        name: name("ip/x"),
        generation,
    }
}

fn grant(generation: u64, to: Credentials) -> Request {
    Request::Grant {
        name: name("ip/x"),
        generation,
        to: to.component,
    }
}

fn subscribe() -> Request {
    Request::Subscribe { name: name("ip/x") }
}

fn events(registry: &mut Registry) -> Vec<(u32, Event)> {
    std::iter::from_fn(|| registry.poll_event())
        .map(|told| (told.to.0, told.event))
        .collect()
}

fn publication(generation: u64, offer: Offer) -> Publication {
    Publication {
        name: name("ip/x"),
        creator: IP,
        generation,
        offer,
    }
}

fn withdrawn(generation: u64) -> Event {
    Event::Withdrawn {
        name: name("ip/x"),
        generation,
    }
}

fn detached(who: Credentials) -> Event {
    Event::Detached {
        name: name("ip/x"),
        component: who.component,
    }
}

fn denied(generation: u64) -> Event {
    Event::Denied {
        name: name("ip/x"),
        generation,
    }
}

/// Registry in which IP has published generation 1 and TCP is subscribed and attached.
fn attached(offer: Offer) -> Registry {
    let mut registry = Registry::new(RegistryLimits::default());
    for (from, request) in [
        (TCP, subscribe()),
        (IP, publish(1, offer)),
        (TCP, attach(1)),
        (IP, grant(1, TCP)),
    ] {
        assert_eq!(registry.on_request(from, request), Ok(()), "{request:?}");
    }
    let expected = vec![
        (2, Event::Published(publication(1, offer))),
        (
            1,
            Event::ExportAsked {
                name: name("ip/x"),
                generation: 1,
                by: TCP,
            },
        ),
        (2, Event::Attached(publication(1, offer))),
    ];
    assert_eq!(events(&mut registry), expected);
    registry
}

#[test]
fn who_subscribes_later_is_told_at_once() {
    let mut registry = attached(POOL);
    assert_eq!(registry.on_request(UDP, subscribe()), Ok(()));
    let told = vec![(3, Event::Published(publication(1, POOL)))];
    assert_eq!(events(&mut registry), told);
}

#[test]
fn a_restarted_creator_publishes_anew_and_the_old_is_over() {
    let mut registry = attached(POOL);
    registry.on_request(UDP, attach(1)).expect("asked");
    registry.on_death(IP.component);
    // What IP was to be told isn't, as it is dead.
    let told = vec![(2, withdrawn(1)), (3, denied(1))];
    assert_eq!(events(&mut registry), told);
    assert_eq!(registry.publication(name("ip/x")), None);
    let steps = [
        (TCP, attach(1), Err(Refusal::NotPublished)),
        (IP, grant(1, UDP), Err(Refusal::NotPublished)),
        (IP, publish(1, POOL), Err(Refusal::Stale)),
        (IP, publish(2, POOL), Ok(())),
        (TCP, attach(1), Err(Refusal::Stale)),
        (TCP, attach(2), Ok(())),
        (IP, grant(1, TCP), Err(Refusal::Stale)),
        (IP, grant(2, TCP), Ok(())),
    ];
    for (from, request, expected) in steps {
        assert_eq!(registry.on_request(from, request), expected, "{request:?}");
    }
    assert_eq!(registry.refused(), 5);
    let told = events(&mut registry);
    assert_eq!(
        told.first(),
        Some(&(2, Event::Published(publication(2, POOL))))
    );
    assert_eq!(
        told.last(),
        Some(&(2, Event::Attached(publication(2, POOL))))
    );
}

#[test]
fn publishing_over_a_channel_ends_it_first() {
    let mut registry = attached(QUEUE);
    assert_eq!(registry.on_request(IP, publish(5, QUEUE)), Ok(()));
    let told = vec![
        (2, withdrawn(1)),
        (2, Event::Published(publication(5, QUEUE))),
    ];
    assert_eq!(events(&mut registry), told);
    assert_eq!(registry.on_request(TCP, attach(5)), Ok(()));
}

#[test]
fn withdrawing_tells_everybody_once() {
    let mut registry = attached(POOL);
    registry.on_request(UDP, subscribe()).expect("subscribed");
    events(&mut registry);
    let withdraw = Request::Withdraw { name: name("ip/x") };
    assert_eq!(registry.on_request(IP, withdraw), Ok(()));
    let told = vec![(2, withdrawn(1)), (3, withdrawn(1))];
    assert_eq!(events(&mut registry), told);
    let again = registry.on_request(IP, withdraw);
    assert_eq!(again, Err(Refusal::NotPublished));
}

#[test]
fn a_dead_holder_gives_back() {
    let mut registry = attached(QUEUE);
    let attaching = registry.on_request(UDP, attach(1));
    assert_eq!(attaching, Err(Refusal::Taken), "a queue has one at its end");
    registry.on_death(TCP.component);
    assert_eq!(events(&mut registry), vec![(1, detached(TCP))]);
    assert_eq!(registry.on_request(UDP, attach(1)), Ok(()));
    registry.on_death(UDP.component);
    let granting = registry.on_request(IP, grant(1, UDP));
    assert_eq!(granting, Err(Refusal::NoSuch), "it asked and died");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let table = [
        (UDP, publish(2, POOL), Refusal::NotYours),
        (
            Credentials { uid: 0, ..IP },
            publish(2, POOL),
            Refusal::NotYours,
        ),
        (
            UDP,
            Request::Withdraw { name: name("ip/x") },
            Refusal::NotYours,
        ),
        (UDP, grant(1, UDP), Refusal::NotYours),
        (IP, grant(1, UDP), Refusal::NoSuch),
        (IP, grant(2, UDP), Refusal::Stale),
        (IP, publish(1, POOL), Refusal::Stale),
        (IP, publish(0, POOL), Refusal::Stale),
        (TCP, attach(1), Refusal::Already),
        (TCP, attach(0), Refusal::Stale),
        (TCP, subscribe(), Refusal::Already),
        (UDP, Request::Detach { name: name("ip/x") }, Refusal::NoSuch),
        (UDP, Request::Detach { name: name("y") }, Refusal::NoSuch),
        (
            UDP,
            Request::Unsubscribe { name: name("ip/x") },
            Refusal::NoSuch,
        ),
        (
            UDP,
            Request::Unsubscribe { name: name("y") },
            Refusal::NoSuch,
        ),
        (
            UDP,
            Request::Withdraw { name: name("y") },
            Refusal::NotPublished,
        ),
        (
            UDP,
            Request::Attach {
                name: name("y"),
                generation: 0,
            },
            Refusal::NotPublished,
        ),
    ];
    for (from, request, expected) in table {
        let mut registry = attached(POOL);
        let refused = registry.on_request(from, request);
        assert_eq!(refused, Err(expected), "{from:?} {request:?}");
        assert_eq!(events(&mut registry), vec![], "{request:?}");
        let publication = publication(1, POOL);
        assert_eq!(registry.publication(publication.name), Some(publication));
    }
}

#[test]
fn a_component_cant_fill_it() {
    let limits = RegistryLimits {
        names: 10,
        per_component: 4,
    };
    let mut registry = Registry::new(limits);
    let ask = |registry: &mut Registry, from, text: &str, subscribing| {
        let name = name(text);
        let publishing = Request::Publish {
            name,
            generation: 1,
            offer: POOL,
        };
        let request = match subscribing {
            true => Request::Subscribe { name },
            false => publishing,
        };
        registry.on_request(from, request)
    };
    for text in ["a", "b"] {
        assert_eq!(ask(&mut registry, UDP, text, false), Ok(()));
        assert_eq!(
            ask(&mut registry, UDP, &format!("{text}{text}"), true),
            Ok(())
        );
    }
    assert_eq!(ask(&mut registry, UDP, "c", false), Err(Refusal::Full));
    assert_eq!(ask(&mut registry, UDP, "c", true), Err(Refusal::Full));
    assert_eq!(ask(&mut registry, TCP, "c", false), Ok(()), "others can");
    // What nobody has any more makes room; what has an owner stays.
    registry.on_death(UDP.component);
    assert_eq!(ask(&mut registry, UDP, "aa", true), Ok(()));
    assert_eq!(ask(&mut registry, UDP, "bb", true), Ok(()));
    assert_eq!(ask(&mut registry, UDP, "cc", true), Err(Refusal::Full));
    for text in ["1", "2", "3"] {
        assert_eq!(ask(&mut registry, TCP, text, true), Ok(()));
    }
    for text in ["4", "5"] {
        assert_eq!(ask(&mut registry, IP, text, true), Ok(()));
    }
    assert_eq!(
        ask(&mut registry, IP, "6", true),
        Err(Refusal::Full),
        "ten names"
    );
    assert_eq!(ask(&mut registry, IP, "5", false), Ok(()), "it is there");
}

#[test]
fn a_reserved_name_is_for_one() {
    let mut registry = Registry::new(RegistryLimits::default());
    registry.reserve(name("ip/x"), IP).expect("reserved");
    assert_eq!(registry.reserve(name("ip/x"), UDP), Err(Refusal::NotYours));
    let publishing = registry.on_request(UDP, publish(1, POOL));
    assert_eq!(publishing, Err(Refusal::NotYours));
    assert_eq!(registry.on_request(IP, publish(1, POOL)), Ok(()));
}

#[test]
fn names_are_short_printable_words() {
    for (text, good) in [
        ("a", true),
        ("ip/transmit", true),
        ("12345678901234567890123456789012", true),
        ("123456789012345678901234567890123", false),
        ("", false),
        ("a b", false),
        ("a\0b", false),
        ("ä", false),
    ] {
        let made = ChannelName::new(text);
        assert_eq!(made.is_some(), good, "{text}");
        if let Some(made) = made {
            assert_eq!(made.to_string(), text);
        }
    }
}

#[test]
fn messages_survive_the_way() {
    let (name, generation) = (name("ip/x"), 9);
    let to = ComponentId(4);
    let requests = [
        publish(3, POOL),
        publish(3, QUEUE),
        publish(3, Offer::Doorbell),
        Request::Withdraw { name },
        subscribe(),
        Request::Unsubscribe { name },
        attach(3),
        grant(3, TCP),
        Request::Deny {
            name,
            generation,
            to,
        },
        Request::Detach { name },
    ];
    for request in requests {
        let message = RegistryMessage::from(request);
        let message = RegistryMessage::read_from_bytes(message.as_bytes()).expect("its size");
        assert_eq!((message.request(), message.event()), (Some(request), None));
        let refused = RegistryMessage::refused(request, Refusal::Taken);
        assert_eq!(refused.refusal(), Some((name, Refusal::Taken)));
        assert_eq!((refused.request(), refused.event()), (None, None));
        assert_eq!(message.refusal(), None);
    }
    let asked = Event::ExportAsked {
        name,
        generation,
        by: TCP,
    };
    for event in [
        Event::Published(publication(4, QUEUE)),
        withdrawn(4),
        asked,
        Event::Attached(publication(4, POOL)),
        denied(4),
        detached(TCP),
    ] {
        let message = RegistryMessage::from(event);
        assert_eq!((message.event(), message.request()), (Some(event), None));
    }
}

#[test]
fn noise_is_no_message_or_harmless() {
    let mut state = 5_u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u32
    };
    assert_eq!(RegistryMessage::default().request(), None);
    let mut registry = Registry::new(RegistryLimits {
        names: 8,
        per_component: 8,
    });
    let mut understood = 0;
    for _ in 0..200_000 {
        let mut bytes = [0; 72];
        // Small numbers make sense more often than others.
        bytes[..4].copy_from_slice(&(random() % 10).to_ne_bytes());
        bytes[4..8].copy_from_slice(&(random() % 5).to_ne_bytes());
        bytes[8..12].copy_from_slice(&(random() % 64).to_ne_bytes());
        bytes[16..20].copy_from_slice(&(random() % 4).to_ne_bytes());
        bytes[40] = b'a' + (random() % 4) as u8 * 9;
        let from = [IP, TCP, UDP][random() as usize % 3];
        let message = RegistryMessage::read_from_bytes(&bytes).expect("its size");
        if let Some(request) = message.request() {
            understood += 1;
            let _ = registry.on_request(from, request);
        }
        if random() % 50 == 0 {
            registry.on_death(from.component);
        }
        assert!(registry.events.len() <= 16, "bounded");
        while registry.poll_event().is_some() {}
        assert!(registry.entries.len() <= 8);
    }
    assert!(understood > 100_000);
}
