//! Against a model that keeps a list of who holds what, and forgets nothing by itself.

use super::*;
use std::collections::BTreeSet;

const PROGRAMS: u32 = 4;
const SLOTS: u32 = 2;

/// A deterministic generator (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ word >> 31) % u64::from(limit)) as u32
    }
}

/// Holders of sockets that were shared at some time; the owner is one as well.
#[derive(Default)]
struct Model(HashMap<Key, BTreeSet<u32>>);

fn owner(key: Key) -> u32 {
    key.1.slot / SLOTS
}

fn keys() -> impl Iterator<Item = Key> {
    Protocol::ALL.into_iter().flat_map(|protocol| {
        let slots = 0..PROGRAMS * SLOTS;
        slots.map(move |slot| {
            let generation = 1;
            (protocol, SocketId { slot, generation })
        })
    })
}

impl Model {
    fn others(&self, key: Key) -> BTreeSet<u32> {
        let all = self.0.get(&key).into_iter().flatten().copied();
        all.filter(|holder| *holder != owner(key)).collect()
    }

    /// It is the owner's alone, as if it had never been shared.
    fn tidy(&mut self) {
        self.0
            .retain(|key, holders| *holders != BTreeSet::from([owner(*key)]));
    }
}

fn compare(holders: &Holders, model: &Model, step: usize) {
    assert_eq!(holders.is_empty(), model.0.is_empty(), "step {step}");
    for key in keys() {
        let others = model.others(key);
        for program in 0..PROGRAMS {
            let held = others.contains(&program);
            assert_eq!(
                holders.holds(key, program),
                held,
                "step {step}: {key:?} {program}"
            );
        }
        let told = holders.of(key).map(|(owner_holds, told)| {
            assert_eq!(told.len(), others.len(), "each once");
            (owner_holds, told.iter().copied().collect::<BTreeSet<u32>>())
        });
        let expected = model.0.get(&key);
        let expected = expected.map(|all| (all.contains(&owner(key)), others));
        assert_eq!(told, expected, "step {step}: {key:?}");
    }
}

#[test]
fn holders_are_those_who_were_told() {
    let mut random = Random(3);
    let (mut holders, mut model) = (Holders::default(), Model::default());
    let all: Vec<Key> = keys().collect();
    for step in 0..20_000 {
        let key = all[random.below(all.len() as u32) as usize];
        let program = random.below(PROGRAMS);
        match random.below(8) {
            0..4 => {
                holders.add(key, owner(key), program);
                match model.0.get_mut(&key) {
                    Some(all) => {
                        all.insert(program);
                    }
                    // What its owner alone holds isn't shared.
                    None if program == owner(key) => {}
                    None => {
                        model.0.insert(key, BTreeSet::from([owner(key), program]));
                    }
                }
            }
            4 | 5 => {
                holders.remove(key, program);
                if let Some(all) = model.0.get_mut(&key) {
                    all.remove(&program);
                }
            }
            6 => {
                let told: BTreeSet<u32> = holders.forget(key).into_iter().collect();
                assert_eq!(told, model.others(key), "step {step}");
                model.0.remove(&key);
            }
            _ => {
                let protocol = key.0;
                let mut held = holders.end(protocol, program);
                held.sort();
                let of_program = |(of, id): &Key| *of == protocol && id.slot / SLOTS == program;
                let mut expected: Vec<SocketId> = model
                    .0
                    .keys()
                    .filter(|key| of_program(key))
                    .map(|key| key.1)
                    .collect();
                expected.sort();
                assert_eq!(held, expected, "step {step}");
                for (other, all) in &mut model.0 {
                    if other.0 == protocol {
                        all.remove(&program);
                    }
                }
            }
        }
        model.tidy();
        compare(&holders, &model, step);
    }
}
