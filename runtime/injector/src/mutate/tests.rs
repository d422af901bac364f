use super::*;
use std::collections::BTreeSet;

const START: u64 = 0x1000;

fn code(bytes: &[u8]) -> Code {
    Code {
        address: START,
        bytes: bytes.to_vec(),
    }
}

/// All that faults of a class can make of the instruction at `offset`, as what is executed instead.
fn all(bytes: &[u8], landmarks: &Landmarks, offset: usize, class: Class) -> BTreeSet<String> {
    let code = code(bytes);
    let seeds = 0..4_000;
    seeds
        .filter_map(|seed| mutate(&code, landmarks, offset, class, seed))
        .map(|mutation| mutation.after)
        .collect()
}

fn only(bytes: &[u8], offset: usize, class: Class) -> Option<(Vec<u8>, String)> {
    let code = code(bytes);
    let mutation = mutate(&code, &Landmarks::default(), offset, class, 1)?;
    Some((mutation.apply(&code), mutation.after))
}

/// Faults of which there is just one for an instruction.
#[test]
fn one_fault_only() {
    #[rustfmt::skip]
    let rows: [(Class, &str, &[u8], &[u8]); 19] = [
        // mov rax,[rdi+8]
        (Class::Nop, "4 × nop", &[0x48, 0x8b, 0x47, 0x08], &[0x90; 4]),
        (Class::Stop, "int3; mov eax,[rdi+8]", &[0x48, 0x8b, 0x47, 0x08], &[0xcc, 0x8b, 0x47, 0x08]),
        // je +2, near and short; loop; jrcxz
        (Class::Branch, "2 × nop", &[0x74, 0x02], &[0x90; 2]),
        (Class::Branch, "6 × nop", &[0x0f, 0x84, 2, 0, 0, 0], &[0x90; 6]),
        (Class::Branch, "2 × nop", &[0xe2, 0x02], &[0x90; 2]),
        (Class::Branch, "2 × nop", &[0xe3, 0x02], &[0x90; 2]),
        // rep movsq; repne scasb; with the prefix behind another one
        (Class::Branch, "nop; movsq", &[0xf3, 0x48, 0xa5], &[0x90, 0x48, 0xa5]),
        (Class::Branch, "nop; scasb", &[0xf2, 0xae], &[0x90, 0xae]),
        (Class::Branch, "nop; movsw", &[0x66, 0xf3, 0xa5], &[0x90, 0x66, 0xa5]),
        (Class::Loop, "jne ", &[0x74, 0x02], &[0x75, 0x02]),
        (Class::Loop, "jne ", &[0x0f, 0x84, 2, 0, 0, 0], &[0x0f, 0x85, 2, 0, 0, 0]),
        (Class::Loop, "repe scasb", &[0xf2, 0xae], &[0xf3, 0xae]),
        // mov rbx,rdi
        (Class::Interface, "3 × nop", &[0x48, 0x89, 0xfb], &[0x90; 3]),
        // mov eax,[rsi]
        (Class::Interface, "2 × nop", &[0x8b, 0x06], &[0x90; 2]),
        // mov dword ptr [rsp+4],1; xor eax,eax; movups [rsp],xmm0
        (Class::Init, "8 × nop", &[0xc7, 0x44, 0x24, 0x04, 1, 0, 0, 0], &[0x90; 8]),
        (Class::Init, "2 × nop", &[0x31, 0xc0], &[0x90; 2]),
        (Class::Init, "4 × nop", &[0x0f, 0x11, 0x04, 0x24], &[0x90; 4]),
        // lock xadd [rdi],rax; lock behind another prefix
        (Class::Lock, "nop; xadd [rdi],rax", &[0xf0, 0x48, 0x0f, 0xc1, 0x07], &[0x90, 0x48, 0x0f, 0xc1, 0x07]),
        (Class::Lock, "nop; inc word ptr [rdi]", &[0x66, 0xf0, 0xff, 0x07], &[0x90, 0x66, 0xff, 0x07]),
    ];
    for (class, after, before, bytes) in rows {
        let (made, words) = only(before, 0, class).expect("it fits");
        assert_eq!(made, bytes, "{class} of {before:x?}");
        // Where string instructions say their operands is left open.
        assert!(words.starts_with(after), "{class} of {before:x?}: {words}");
    }
}

/// What a class leaves alone.
#[test]
fn unfit() {
    #[rustfmt::skip]
    let rows: [(Class, &str, &[u8]); 17] = [
        (Class::Dst, "an instruction without operands", &[0xc3]),
        (Class::Dst, "fld dword ptr [rdi]", &[0xd9, 0x07]),
        (Class::Src, "fld dword ptr [rdi]", &[0xd9, 0x07]),
        (Class::Branch, "jmp", &[0xeb, 0x02]),
        (Class::Branch, "call", &[0xe8, 0, 0, 0, 0]),
        // pause is rep nop, but no string instruction; nor is movss.
        (Class::Branch, "pause", &[0xf3, 0x90]),
        (Class::Loop, "movss xmm0,[rdi]", &[0xf3, 0x0f, 0x10, 0x07]),
        (Class::Loop, "loop", &[0xe2, 0x02]),
        (Class::Ptr, "mov rax,[rsp+8]", &[0x48, 0x8b, 0x44, 0x24, 0x08]),
        (Class::Ptr, "mov rax,rdi", &[0x48, 0x89, 0xf8]),
        (Class::Ptr, "a nop with an operand", &[0x0f, 0x1f, 0x44, 0x00, 0x00]),
        (Class::Interface, "mov rbx,rax", &[0x48, 0x89, 0xc3]),
        (Class::Init, "mov [rsp],rdi", &[0x48, 0x89, 0x3c, 0x24]),
        (Class::Init, "mov dword ptr [rdi],1", &[0xc7, 0x07, 1, 0, 0, 0]),
        (Class::Init, "xor eax,ecx", &[0x31, 0xc8]),
        (Class::Lock, "xadd [rdi],rax", &[0x48, 0x0f, 0xc1, 0x07]),
        (Class::Copy, "movsq", &[0x48, 0xa5]),
    ];
    for (class, what, bytes) in rows {
        assert_eq!(only(bytes, 0, class), None, "{class} of {what}");
    }
}

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn a_destination_and_a_source() {
    // mov eax,ecx: modrm's low bits say the destination, the middle ones the source. The high two say
    // that it is a register; without one of them it is memory.
    let bytes = [0x89, 0xc8, 0, 0, 0, 0];
    let none = Landmarks::default();
    let destinations = all(&bytes, &none, 0, Class::Dst);
    assert!(destinations.is_superset(&set(&["mov ecx,ecx", "mov edx,ecx", "mov esp,ecx"])));
    assert!(!destinations.contains("mov eax,eax"));
    let sources = all(&bytes, &none, 0, Class::Src);
    assert_eq!(sources, set(&["mov eax,eax", "mov eax,ebx", "mov eax,ebp"]));
    // mov eax,[rdi+8]: here the middle bits say the destination.
    let bytes = [0x8b, 0x47, 0x08, 0, 0, 0, 0];
    let destinations = all(&bytes, &none, 0, Class::Dst);
    let expected = ["mov ecx,[rdi+8]", "mov edx,[rdi+8]", "mov esp,[rdi+8]"];
    assert_eq!(destinations, set(&expected));
    let sources = all(&bytes, &none, 0, Class::Src);
    assert!(sources.is_superset(&set(&[
        "mov eax,[rdi+9]",
        "mov eax,[rsi+8]",
        "mov eax,[rdi-78h]"
    ])));
}

#[test]
fn a_constant_is_a_source() {
    // mov eax,0
    let made = all(&[0xb8, 0, 0, 0, 0], &Landmarks::default(), 0, Class::Src);
    assert_eq!(made.len(), 32);
    assert!(made.contains("mov eax,1") && made.contains("mov eax,80000000h"));
}

#[test]
fn a_pointer() {
    // mov rax,[rdi+rcx*8+16]: four bits of modrm, sib and displacement, but not the opcode.
    let bytes = [0x48, 0x8b, 0x44, 0xcf, 0x10, 0, 0, 0, 0];
    let code = code(&bytes);
    let none = Landmarks::default();
    let mut bits = BTreeSet::new();
    for seed in 0..4_000 {
        let made = mutate(&code, &none, 0, Class::Ptr, seed).map(|made| made.apply(&code));
        let made = made.expect("it fits");
        let changed = bytes.iter().zip(&made).enumerate();
        bits.extend(changed.filter_map(|(at, (old, new))| match old ^ new {
            0 => None,
            bit => Some(at * 8 + bit.trailing_zeros() as usize),
        }));
    }
    let expected = (16..20).chain(24..40).collect::<BTreeSet<usize>>();
    assert_eq!(bits, expected);
    // With a frame pointer, rbp is the stack frame's; else it is any register.
    let with = [0x55, 0x48, 0x89, 0xe5, 0x8b, 0x45, 0x08];
    let without = [0x55, 0x90, 0x90, 0x90, 0x8b, 0x45, 0x08];
    assert_eq!(only(&with, 4, Class::Ptr), None);
    assert!(only(&without, 4, Class::Ptr).is_some());
}

#[test]
fn text_is_any_of_32_bits_within_the_function() {
    let none = Landmarks::default();
    let changed = |bytes: &[u8]| {
        let code = code(bytes);
        let seeds = 0..4_000;
        let made = seeds.filter_map(|seed| mutate(&code, &none, 0, Class::Text, seed));
        made.map(|made| made.apply(&code)).collect::<BTreeSet<_>>()
    };
    assert_eq!(changed(&[0x90; 6]).len(), 32);
    assert_eq!(changed(&[0x90, 0xc3]).len(), 16);
}

#[test]
fn an_argument_is_loaded_once_and_early() {
    // mov rbx,rdi; xor edi,edi; mov rcx,rdi; mov rdx,rsi
    let bytes = [
        0x48, 0x89, 0xfb, 0x31, 0xff, 0x48, 0x89, 0xf9, 0x48, 0x89, 0xf2,
    ];
    let fits = |bytes: &[u8]| candidates(&code(bytes), &Landmarks::default(), Class::Interface);
    assert_eq!(fits(&bytes), [0, 8]);
    // A call takes the arguments.
    let call = [0xe8, 0, 0, 0, 0, 0x48, 0x89, 0xfb];
    assert_eq!(fits(&call), []);
    let late = [&[0x90; 24][..], &[0x48, 0x89, 0xfb]].concat();
    assert_eq!(fits(&late), []);
}

#[test]
fn the_jump_to_a_panic() {
    // cmp rsi,4; jae +1; ret; lea rdi,[rip]; call 0x1018+…; then the same to somewhere else.
    let bytes = [
        0x48, 0x83, 0xfe, 0x04, 0x73, 0x03, 0x74, 0x0d, 0xc3, 0x48, 0x8d, 0x3d, 0, 0, 0, 0, 0xe8,
        0x0b, 0, 0, 0, 0xe8, 0x0b, 0, 0, 0,
    ];
    let landmarks = Landmarks {
        panics: [START + 0x20].into(),
        copies: BTreeSet::new(),
    };
    let fits = candidates(&code(&bytes), &landmarks, Class::Bounds);
    assert_eq!(fits, [4]);
    // By a slot that holds the function's address: call [rip+0x10].
    let bytes = [0x73, 0x01, 0xc3, 0xff, 0x15, 0x10, 0, 0, 0];
    let landmarks = Landmarks {
        panics: [START + 0x19].into(),
        copies: BTreeSet::new(),
    };
    assert_eq!(candidates(&code(&bytes), &landmarks, Class::Bounds), [0]);
}

#[test]
fn off_by_one_with_carry() {
    #[rustfmt::skip]
    let rows: [(&[u8], [&str; 2]); 3] = [
        // cmp eax,100h; jb
        (&[0x3d, 0, 1, 0, 0, 0x72, 0x00], ["cmp eax,0FFh", "cmp eax,101h"]),
        // cmp rsi,4; jae
        (&[0x48, 0x83, 0xfe, 0x04, 0x73, 0x00], ["cmp rsi,3", "cmp rsi,5"]),
        // sub ecx,1; jne
        (&[0x83, 0xe9, 0x01, 0x75, 0x00], ["sub ecx,0", "sub ecx,2"]),
    ];
    for (bytes, expected) in rows {
        let made = all(bytes, &Landmarks::default(), 0, Class::OffByOne);
        assert_eq!(made, set(&expected), "{bytes:x?}");
    }
    // Nothing is decided by it: cmp rsi,4; ret.
    let bytes = [0x48, 0x83, 0xfe, 0x04, 0xc3];
    assert_eq!(only(&bytes, 0, Class::OffByOne), None);
}

#[test]
fn copies_overrun_by_amounts_as_in_rio() {
    // call [rip+0x10], which is memcpy; rep movsb.
    let landmarks = Landmarks {
        panics: BTreeSet::new(),
        copies: [START + 0x16].into(),
    };
    let call = code(&[0xff, 0x15, 0x10, 0, 0, 0, 0xf3, 0xa4]);
    for (offset, expected) in [(0, Counter::Rdx), (6, Counter::Rcx)] {
        let mut counts = [0; 3];
        for seed in 0..1_000 {
            let made = mutate(&call, &landmarks, offset, Class::Copy, seed);
            let made = made.expect("it fits");
            assert_eq!(made.apply(&call), call.bytes);
            let Change::Overrun { register, by } = made.change else {
                panic!("{made:?}");
            };
            assert_eq!(register, expected);
            counts[match by {
                1 => 0,
                2..=1_024 => 1,
                2_048..=4_096 => 2,
                _ => panic!("{by}"),
            }] += 1;
        }
        assert!(
            counts[0] > 400 && counts[1] > 350 && (20..120).contains(&counts[2]),
            "{counts:?}"
        );
    }
}

#[test]
fn the_same_seed_makes_the_same_fault() {
    let code = code(&[0x48, 0x8b, 0x47, 0x08, 0x74, 0x02, 0x31, 0xc0, 0xc3]);
    for class in Class::ALL {
        for seed in 0..50 {
            let make = || mutate(&code, &Landmarks::default(), 0, class, seed);
            assert_eq!(make(), make());
        }
    }
}

#[test]
fn random_is_any_class_that_fits() {
    let code = code(&[0x48, 0x8b, 0x47, 0x08, 0xc3]);
    let made = (0..2_000).filter_map(|seed| {
        mutate(&code, &Landmarks::default(), 0, Class::Random, seed).map(|made| made.class)
    });
    let made: BTreeSet<Class> = made.collect();
    let expected = [
        Class::Text,
        Class::Nop,
        Class::Dst,
        Class::Src,
        Class::Ptr,
        Class::Interface,
        Class::Stop,
    ];
    assert_eq!(made, expected.into());
}

#[test]
fn no_bytes_and_no_place_make_it_panic() {
    let mut random = Random::new(7);
    for round in 0..3_000 {
        let bytes: Vec<u8> = (0..round % 40).map(|_| random.draw() as u8).collect();
        let code = code(&bytes);
        for offset in 0..=bytes.len() {
            let class = *random.pick(&Class::ALL).expect("there are some");
            let seed = random.draw();
            if let Some(made) = mutate(&code, &Landmarks::default(), offset, class, seed) {
                assert_eq!(made.apply(&code).len(), bytes.len());
            }
        }
    }
}
