use super::*;
use std::os::fd::{AsFd, AsRawFd};

const ONE: HolderId = HolderId(0);
const OTHER: HolderId = HolderId(1);

fn pool(chunks: u32) -> (Pool, PoolSet) {
    let geometry = PoolGeometry::new(128, chunks).expect("sizes");
    let pool = Pool::create(7, "test", geometry, 2).expect("a pool");
    let mut set = PoolSet::new();
    set.insert(PoolReader::attach(pool.descriptors().expect("descriptors")).expect("attach"));
    (pool, set)
}

fn read(set: &PoolSet, pointer: RichPointer) -> Result<Vec<u8>, ResolveError> {
    let bytes = set.resolve(pointer)?;
    let mut copy = vec![0; bytes.len()];
    bytes.copy_to(&mut copy);
    Ok(copy)
}

#[test]
fn what_is_written_is_read_until_it_is_free() {
    let (mut pool, set) = pool(2);
    let chunk = pool.allocate().expect("free");
    pool.write(&chunk, 3, b"payload").expect("fits");
    let pointer = pool.lend(&chunk, 3, 7, ONE).expect("lend");
    let tail = pool.lend(&chunk, 6, 4, OTHER).expect("lend");
    assert_eq!(pool.write(&chunk, 0, b"x"), Err(PoolError::Lent));
    pool.free(chunk);
    assert_eq!(pool.available(), 1, "two have it");
    assert_eq!(pool.give_back(pointer, ONE), Ok(()));
    assert_eq!(pool.give_back(pointer, ONE), Err(PoolError::NoSuchLoan));
    assert_eq!(read(&set, tail), Ok(b"load".to_vec()), "the other has it");
    assert_eq!(pool.give_back(tail, OTHER), Ok(()));
    assert_eq!(pool.available(), 2);
    assert_eq!(read(&set, tail), Err(ResolveError::Stale));
    assert_eq!(pool.give_back(tail, OTHER), Err(PoolError::NotInUse));
}

#[test]
fn a_chunk_lent_twice_to_one_holder_comes_back_twice() {
    let (mut pool, set) = pool(1);
    let chunk = pool.allocate().expect("free");
    let pointer = pool.lend(&chunk, 0, 1, ONE).expect("lend");
    pool.lend(&chunk, 0, 1, ONE).expect("lend");
    pool.free(chunk);
    pool.give_back(pointer, ONE).expect("lent");
    assert!(read(&set, pointer).is_ok());
    pool.give_back(pointer, ONE).expect("lent");
    assert_eq!(pool.available(), 1);
}

#[test]
fn a_chunk_is_free_when_all_holders_have_given_it_back() {
    let (mut pool, _set) = pool(4);
    let lend = |pool: &mut Pool, holders: &[HolderId]| {
        let chunk = pool.allocate().expect("free");
        let lent = |holder: &HolderId| pool.lend(&chunk, 0, 1, *holder).expect("lend");
        let pointers: Vec<RichPointer> = holders.iter().map(lent).collect();
        (chunk, pointers[0])
    };
    let (twice, twice_at) = lend(&mut pool, &[ONE, ONE]);
    let (both, both_at) = lend(&mut pool, &[ONE, OTHER]);
    let (kept, kept_at) = lend(&mut pool, &[ONE]);
    let (other, other_at) = lend(&mut pool, &[OTHER]);
    [twice, both, other]
        .into_iter()
        .for_each(|chunk| pool.free(chunk));
    assert_eq!(pool.available(), 0);
    assert_eq!(pool.allocate(), Err(PoolError::Exhausted));
    for (at, holder, available) in [
        (twice_at, ONE, 0),
        (twice_at, ONE, 1),
        (both_at, ONE, 1),
        (kept_at, ONE, 1),
        (both_at, OTHER, 2),
        (other_at, OTHER, 3),
    ] {
        assert_eq!(pool.give_back(at, holder), Ok(()));
        assert!(pool.give_back(at, HolderId(9)).is_err(), "no such holder");
        assert_eq!(pool.available(), available);
    }
    for (at, holder) in [(twice_at, ONE), (kept_at, ONE), (other_at, ONE)] {
        assert!(pool.give_back(at, holder).is_err(), "it has nothing");
    }
    pool.free(kept);
    assert_eq!((pool.available(), pool.refused()), (4, 1));
}

#[test]
fn pointers_that_lead_nowhere_are_refused() {
    let (mut pool, set) = pool(2);
    let chunk = pool.allocate().expect("free");
    let good = pool.lend(&chunk, 0, 128, ONE).expect("lend");
    let table = [
        (good, Ok(())),
        (RichPointer { length: 0, ..good }, Ok(())),
        (
            RichPointer { pool: 8, ..good },
            Err(ResolveError::UnknownPool),
        ),
        (
            RichPointer { offset: 1, ..good },
            Err(ResolveError::OutOfBounds),
        ),
        (
            RichPointer {
                length: 129,
                ..good
            },
            Err(ResolveError::OutOfBounds),
        ),
        (
            RichPointer {
                offset: 256,
                ..good
            },
            Err(ResolveError::OutOfBounds),
        ),
        (
            RichPointer {
                offset: 256,
                length: 0,
                ..good
            },
            Err(ResolveError::OutOfBounds),
        ),
        (
            RichPointer {
                offset: u32::MAX,
                length: u32::MAX,
                ..good
            },
            Err(ResolveError::OutOfBounds),
        ),
        (
            RichPointer {
                generation: 0,
                ..good
            },
            Err(ResolveError::Stale),
        ),
        (
            RichPointer {
                generation: 2,
                ..good
            },
            Err(ResolveError::Stale),
        ),
        (RichPointer::default(), Err(ResolveError::UnknownPool)),
    ];
    for (pointer, expected) in table {
        assert_eq!(set.resolve(pointer).map(drop), expected, "{pointer:?}");
        if expected.is_err() {
            let refused = pool.give_back(pointer, ONE);
            assert_eq!(refused, Err(PoolError::NotInUse), "{pointer:?}");
        }
    }
    assert_eq!(pool.give_back(good, OTHER), Err(PoolError::NoSuchLoan));
    assert_eq!(
        pool.give_back(good, HolderId(2)),
        Err(PoolError::NoSuchLoan)
    );
    assert_eq!(pool.give_back(good, ONE), Ok(()));
}

#[test]
fn only_the_creator_can_write() {
    let (mut pool, _set) = pool(2);
    let fd = pool.descriptors().expect("descriptors").memory;
    assert!(Memory::from_fd(duplicate(&fd).expect("dup")).is_err());
    // Not even who opens it anew by the right to do so.
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    let anew = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path);
    if let Ok(anew) = anew {
        assert!(rustix::io::write(&anew, b"x").is_err());
        assert!(Memory::from_fd(anew.into()).is_err());
    }
    // The creator's own mapping still can.
    let chunk = pool.allocate().expect("free");
    pool.write(&chunk, 0, b"x").expect("fits");
}

#[test]
fn writes_and_loans_stay_inside_the_chunk() {
    let (mut pool, _set) = pool(2);
    let chunk = pool.allocate().expect("free");
    for (offset, length, good) in [
        (0, 128, true),
        (128, 0, true),
        (127, 1, true),
        (1, 128, false),
        (129, 0, false),
        (u32::MAX, 1, false),
    ] {
        let bytes = vec![1; length as usize];
        let expected = if good {
            Ok(())
        } else {
            Err(PoolError::TooLong)
        };
        assert_eq!(
            pool.write(&chunk, offset, &bytes),
            expected,
            "{offset} {length}"
        );
    }
    assert_eq!(pool.lend(&chunk, 1, 128, ONE), Err(PoolError::TooLong));
    assert_eq!(
        pool.lend(&chunk, 0, 1, HolderId(2)),
        Err(PoolError::NoSuchLoan)
    );
    // Nothing was lent by this.
    assert_eq!(pool.write(&chunk, 0, b"x"), Ok(()));
    // A chunk of another pool, which isn't in use here.
    let (mut other, _) = self::pool(2);
    assert_eq!(other.write(&chunk, 0, b"x"), Err(PoolError::NotInUse));
}

#[test]
fn sizes_that_cant_be_are_refused() {
    for (chunk_bytes, chunks, good) in [
        (64, 1, true),
        (2048, 1 << 20, true),
        (4096, 1 << 20, false),
        (0, 1, false),
        (64, 0, false),
        (100, 8, false),
    ] {
        let geometry = PoolGeometry::new(chunk_bytes, chunks);
        assert_eq!(geometry.is_some(), good, "{chunk_bytes} {chunks}");
    }
    let (pool, _) = pool(2);
    let mut descriptors = pool.descriptors().expect("descriptors");
    descriptors.geometry = PoolGeometry::new(128, 4).expect("sizes");
    assert!(matches!(
        PoolReader::attach(descriptors),
        Err(AttachError::OtherLayout)
    ));
}

#[test]
fn a_set_tells_its_pools_apart() {
    let mut set = PoolSet::new();
    let mut pointers = Vec::new();
    let mut pools = Vec::new();
    for id in [5, 1, 9, 3] {
        let geometry = PoolGeometry::new(64, 1).expect("sizes");
        let mut pool = Pool::create(id, "test", geometry, 1).expect("a pool");
        let chunk = pool.allocate().expect("free");
        pool.write(&chunk, 0, &[id as u8]).expect("fits");
        pointers.push((id, pool.lend(&chunk, 0, 1, ONE).expect("lend")));
        let reader = PoolReader::attach(pool.descriptors().expect("descriptors"));
        assert!(set.insert(reader.expect("attach")).is_none());
        pools.push(pool);
    }
    for (id, pointer) in &pointers {
        assert_eq!(read(&set, *pointer), Ok(vec![*id as u8]));
    }
    assert!(set.remove(1) && !set.remove(1));
    assert_eq!(read(&set, pointers[1].1), Err(ResolveError::UnknownPool));
    assert_eq!(read(&set, pointers[2].1), Ok(vec![9]));
    // The memory outlives its creator for as long as a reader has it.
    pools.clear();
    assert_eq!(read(&set, pointers[0].1), Ok(vec![5]));
}

#[test]
fn what_is_copied_out_is_whole_or_not_at_all() {
    let (mut pool, set) = pool(1);
    let chunk = pool.allocate().expect("free");
    pool.write(&chunk, 0, b"payload").expect("fits");
    let pointer = pool.lend(&chunk, 1, 5, ONE).expect("lend");
    let mut to = [0; 6];
    assert_eq!(set.copy_out(pointer, &mut to), Ok(()));
    assert_eq!(&to, b"ayloa\0");
    let short = set.copy_out(pointer, &mut [0; 4]);
    assert_eq!(short, Err(ResolveError::OutOfBounds));
    pool.free(chunk);
    pool.give_back(pointer, ONE).expect("lent");
    assert_eq!(set.copy_out(pointer, &mut to), Err(ResolveError::Stale));
    let other = RichPointer { pool: 8, ..pointer };
    assert_eq!(set.copy_out(other, &mut to), Err(ResolveError::UnknownPool));
}
