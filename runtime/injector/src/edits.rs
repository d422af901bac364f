//! Which changes of an instruction make a fault of which class.
use crate::class::Class;
use crate::code::{Item, Landmarks, Layout, Listing, callee, is_x87};
use crate::operands;
use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use serde::{Deserialize, Serialize};

/// One change that makes a fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Edit {
    /// A bit is flipped, counted from the instruction's first byte's lowest.
    Bit(usize),
    /// The instruction's bytes become these, as many.
    Bytes(Vec<u8>),
    /// A register that says how much is to be copied is too large, this once.
    Overrun(Counter),
}

/// A register that says how much is to be copied.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Counter {
    /// The third argument of a function.
    Rdx,
    /// How often a `rep` repeats.
    Rcx,
}

const NOP: u8 = 0x90;
const TRAP: u8 = 0xcc;
/// Arguments are loaded early in a function.
const EARLY: usize = 24;
/// Where arguments are, in order.
const ARGUMENTS: [Register; 6] = [
    Register::RDI,
    Register::RSI,
    Register::RDX,
    Register::RCX,
    Register::R8,
    Register::R9,
];

/// All changes of an instruction that make a fault of a class; none if it doesn't fit.
pub(crate) fn edits(
    listing: &Listing<'_>,
    at: usize,
    landmarks: &Landmarks,
    class: Class,
) -> Vec<Edit> {
    let Some(item) = listing.items.get(at) else {
        return Vec::new();
    };
    let bytes = listing.bytes(item);
    let layout = item.layout(bytes);
    match class {
        Class::Text => text(listing, item),
        Class::Nop => deleted(bytes),
        Class::Dst => operands::bits(item, bytes, &layout, operands::Side::Destination),
        Class::Src => operands::bits(item, bytes, &layout, operands::Side::Source),
        Class::Branch => branch(item, bytes),
        Class::Ptr => pointer(listing, item, bytes, &layout),
        Class::Loop => inverted(item, bytes, &layout),
        Class::Interface => when(loads_argument(listing, at), bytes),
        Class::Init => when(initialises(listing, item), bytes),
        Class::Stop => trap(bytes),
        Class::Bounds => when(checks(listing, item, landmarks), bytes),
        Class::OffByOne => off_by_one(listing, at, bytes, &layout),
        Class::Lock => match item.instruction.has_lock_prefix() {
            true => vec![Edit::Bytes(without_prefix(bytes, 0xf0))],
            false => Vec::new(),
        },
        Class::Copy => copies(item, landmarks),
        Class::Random | Class::Heap | Class::Stack | Class::Alloc | Class::Kill | Class::Hang => {
            Vec::new()
        }
    }
}

fn text(listing: &Listing<'_>, item: &Item) -> Vec<Edit> {
    let left = listing.code.bytes.len().saturating_sub(item.offset);
    (0..left.min(4) * 8).map(Edit::Bit).collect()
}

fn deleted(bytes: &[u8]) -> Vec<Edit> {
    vec![Edit::Bytes(vec![NOP; bytes.len()])]
}

fn when(fits: bool, bytes: &[u8]) -> Vec<Edit> {
    if fits { deleted(bytes) } else { Vec::new() }
}

fn trap(bytes: &[u8]) -> Vec<Edit> {
    let rest = bytes.iter().skip(1).copied();
    vec![Edit::Bytes(std::iter::once(TRAP).chain(rest).collect())]
}

/// The instruction without one of its prefixes, and as long as before.
fn without_prefix(bytes: &[u8], prefix: u8) -> Vec<u8> {
    let at = bytes.iter().position(|byte| *byte == prefix);
    let kept = bytes.iter().enumerate();
    let kept = kept.filter(|(place, _)| Some(*place) != at);
    std::iter::once(NOP)
        .chain(kept.map(|(_, byte)| *byte))
        .collect()
}

/// The prefix that repeats a string instruction.
fn repeats(item: &Item) -> Option<u8> {
    let it = &item.instruction;
    match (
        it.is_string_instruction(),
        it.has_rep_prefix(),
        it.has_repne_prefix(),
    ) {
        (true, true, _) => Some(0xf3),
        (true, _, true) => Some(0xf2),
        _ => None,
    }
}

fn branch(item: &Item, bytes: &[u8]) -> Vec<Edit> {
    if item.instruction.flow_control() == FlowControl::ConditionalBranch {
        return deleted(bytes);
    }
    let prefix = repeats(item);
    let prefix = prefix.map(|prefix| Edit::Bytes(without_prefix(bytes, prefix)));
    prefix.into_iter().collect()
}

fn inverted(item: &Item, bytes: &[u8], layout: &Layout) -> Vec<Edit> {
    if item.instruction.is_jcc_short_or_near() {
        // The lowest bit of the opcode's last byte.
        return vec![Edit::Bit(layout.opcode * 8)];
    }
    let Some(prefix) = repeats(item) else {
        return Vec::new();
    };
    // 0xf2 and 0xf3 differ in the lowest bit.
    let at = bytes.iter().position(|byte| *byte == prefix);
    at.map(|at| Edit::Bit(at * 8)).into_iter().collect()
}

fn pointer(listing: &Listing<'_>, item: &Item, bytes: &[u8], layout: &Layout) -> Vec<Edit> {
    let it = &item.instruction;
    let Some(modrm) = layout.modrm else {
        return Vec::new();
    };
    let memory = it.op_kinds().any(|kind| kind == OpKind::Memory);
    let frame = of_frame(listing, it.memory_base());
    if !memory || frame || it.mnemonic() == Mnemonic::Nop || is_x87(bytes) {
        return Vec::new();
    }
    let low = modrm * 8..modrm * 8 + 4;
    let sib = layout.sib.map_or(0..0, |sib| sib * 8..sib * 8 + 8);
    let displacement = layout.displacement.start * 8..layout.displacement.end * 8;
    let immediate = layout.immediate.start * 8..layout.immediate.end * 8;
    let bits = low.chain(sib).chain(displacement).chain(immediate);
    bits.map(Edit::Bit).collect()
}

fn of_frame(listing: &Listing<'_>, base: Register) -> bool {
    base == Register::RSP || (base == Register::RBP && listing.has_frame_pointer())
}

/// Whether it reads an argument that nothing has changed since the function was called.
fn loads_argument(listing: &Listing<'_>, at: usize) -> bool {
    let Some(item) = listing.items.get(at).filter(|_| at < EARLY) else {
        return false;
    };
    let loads = matches!(
        item.instruction.mnemonic(),
        Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd | Mnemonic::Lea
    );
    if !loads {
        return false;
    }
    let mut factory = InstructionInfoFactory::new();
    let mut untouched = ARGUMENTS.to_vec();
    for before in listing.items.iter().take(at) {
        let it = &before.instruction;
        // Beyond a call or a jump they may hold anything.
        if !matches!(
            it.flow_control(),
            FlowControl::Next | FlowControl::ConditionalBranch
        ) {
            return false;
        }
        for used in factory.info(it).used_registers() {
            if writes(used.access()) {
                untouched.retain(|one| *one != used.register().full_register());
            }
        }
    }
    let used = factory.info(&item.instruction).used_registers();
    used.iter()
        .any(|used| !writes(used.access()) && untouched.contains(&used.register().full_register()))
}

fn writes(access: OpAccess) -> bool {
    !matches!(
        access,
        OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
    )
}

/// Whether it gives a local its first value: a constant to the stack, or zero to a register.
fn initialises(listing: &Listing<'_>, item: &Item) -> bool {
    let it = &item.instruction;
    let to_frame = it.op0_kind() == OpKind::Memory && of_frame(listing, it.memory_base());
    match it.mnemonic() {
        Mnemonic::Mov => to_frame && it.op1_kind() != OpKind::Register,
        Mnemonic::Movups
        | Mnemonic::Movaps
        | Mnemonic::Movdqu
        | Mnemonic::Movdqa
        | Mnemonic::Vmovups
        | Mnemonic::Vmovaps
        | Mnemonic::Vmovdqu
        | Mnemonic::Vmovdqa => to_frame,
        Mnemonic::Xor | Mnemonic::Xorps | Mnemonic::Pxor => {
            it.op0_kind() == OpKind::Register
                && it.op1_kind() == OpKind::Register
                && it.op0_register() == it.op1_register()
        }
        _ => false,
    }
}

fn checks(listing: &Listing<'_>, item: &Item, landmarks: &Landmarks) -> bool {
    let it = &item.instruction;
    it.is_jcc_short_or_near() && listing.leads_to_call(it.near_branch_target(), &landmarks.panics)
}

fn off_by_one(listing: &Listing<'_>, at: usize, bytes: &[u8], layout: &Layout) -> Vec<Edit> {
    let (Some(item), Some(next)) = (listing.items.get(at), listing.items.get(at + 1)) else {
        return Vec::new();
    };
    let compares = matches!(
        item.instruction.mnemonic(),
        Mnemonic::Cmp | Mnemonic::Sub | Mnemonic::Add
    );
    let decides = next.instruction.flow_control() == FlowControl::ConditionalBranch;
    let range = layout.immediate.clone();
    if !compares || !decides || range.is_empty() {
        return Vec::new();
    }
    // Little-endian: one more, or one less, which is all ones added.
    let shifted = |low: u8, others: u8| {
        let mut bytes = bytes.to_vec();
        let mut carry = false;
        for (place, byte) in bytes.get_mut(range.clone())?.iter_mut().enumerate() {
            let (sum, first) = byte.overflowing_add(if place == 0 { low } else { others });
            let (sum, second) = sum.overflowing_add(u8::from(carry));
            (*byte, carry) = (sum, first || second);
        }
        Some(Edit::Bytes(bytes))
    };
    let both = [shifted(1, 0), shifted(0xff, 0xff)];
    both.into_iter().flatten().collect()
}

fn copies(item: &Item, landmarks: &Landmarks) -> Vec<Edit> {
    let it = &item.instruction;
    let calls = callee(it).is_some_and(|callee| landmarks.copies.contains(&callee));
    let moves = matches!(
        it.mnemonic(),
        Mnemonic::Movsb | Mnemonic::Movsw | Mnemonic::Movsd | Mnemonic::Movsq
    );
    match (calls, moves && repeats(item).is_some()) {
        (true, _) => vec![Edit::Overrun(Counter::Rdx)],
        (_, true) => vec![Edit::Overrun(Counter::Rcx)],
        (false, false) => Vec::new(),
    }
}
