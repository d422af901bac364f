//! Machine code of one function, cut into instructions.
use iced_x86::{
    ConstantOffsets, Decoder, DecoderOptions, FlowControl, Formatter, Instruction, IntelFormatter,
    Mnemonic, OpKind, Register,
};
use std::collections::BTreeSet;
use std::ops::Range;

/// Instructions that the way to a panic may take to make its message.
const WAY_TO_PANIC: usize = 12;

/// A function's machine code, x86-64.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Code {
    /// Where its first byte is linked to be.
    pub address: u64,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// Addresses of functions that some classes of faults look for, or of the slots that hold them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Landmarks {
    /// Functions that panic.
    pub panics: BTreeSet<u64>,
    /// `memcpy` and `memmove`.
    pub copies: BTreeSet<u64>,
}

/// One instruction of a function.
pub(crate) struct Item {
    pub(crate) offset: usize,
    pub(crate) instruction: Instruction,
    constants: ConstantOffsets,
}

/// Where the parts of an encoding are, counted from the instruction's first byte.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    /// The opcode's last byte.
    pub(crate) opcode: usize,
    pub(crate) modrm: Option<usize>,
    pub(crate) sib: Option<usize>,
    pub(crate) displacement: Range<usize>,
    /// Also the distance of a jump.
    pub(crate) immediate: Range<usize>,
}

/// A function and its instructions.
pub(crate) struct Listing<'a> {
    pub(crate) code: &'a Code,
    pub(crate) items: Vec<Item>,
}

impl<'a> Listing<'a> {
    pub(crate) fn new(code: &'a Code) -> Listing<'a> {
        let mut decoder = Decoder::with_ip(64, &code.bytes, code.address, DecoderOptions::NONE);
        let mut items = Vec::new();
        while decoder.can_decode() {
            let offset = decoder.position();
            let instruction = decoder.decode();
            // What follows may be decoded in the wrong places.
            if instruction.is_invalid() {
                break;
            }
            items.push(Item {
                offset,
                constants: decoder.get_constant_offsets(&instruction),
                instruction,
            });
        }
        Listing { code, items }
    }

    /// The place in `items` of the instruction that begins at `offset`.
    pub(crate) fn find(&self, offset: usize) -> Option<usize> {
        self.items
            .binary_search_by_key(&offset, |item| item.offset)
            .ok()
    }

    /// The bytes of an instruction.
    pub(crate) fn bytes(&self, item: &Item) -> &'a [u8] {
        let end = item.offset + item.instruction.len();
        self.code.bytes.get(item.offset..end).unwrap_or_default()
    }

    /// Whether rbp points to the stack frame.
    pub(crate) fn has_frame_pointer(&self) -> bool {
        self.items.iter().take(4).any(|item| {
            let it = &item.instruction;
            it.mnemonic() == Mnemonic::Mov
                && it.op0_register() == Register::RBP
                && it.op1_register() == Register::RSP
        })
    }

    /// Whether a jump to `target` calls one of `functions` before it goes anywhere else.
    pub(crate) fn leads_to_call(&self, target: u64, functions: &BTreeSet<u64>) -> bool {
        let offset = target.wrapping_sub(self.code.address);
        let start = usize::try_from(offset).ok().and_then(|at| self.find(at));
        let Some(start) = start else {
            return false;
        };
        let mut ahead = self.items.iter().skip(start).take(WAY_TO_PANIC);
        let leaves = ahead.find(|item| item.instruction.flow_control() != FlowControl::Next);
        let called = leaves.and_then(|item| callee(&item.instruction));
        called.is_some_and(|called| functions.contains(&called))
    }
}

impl Item {
    /// Where the parts of its encoding are.
    pub(crate) fn layout(&self, bytes: &[u8]) -> Layout {
        let opcode = opcode(bytes);
        let constants = &self.constants;
        let part = |has: bool, at: usize, size: usize| match has {
            true => at..at + size,
            false => bytes.len()..bytes.len(),
        };
        let displacement = part(
            constants.has_displacement(),
            constants.displacement_offset(),
            constants.displacement_size(),
        );
        let immediate = part(
            constants.has_immediate(),
            constants.immediate_offset(),
            constants.immediate_size(),
        );
        let end = displacement.start.min(immediate.start);
        let next = opcode + 1;
        Layout {
            opcode,
            modrm: (next < end).then_some(next),
            sib: (next + 1 < end).then_some(next + 1),
            displacement,
            immediate,
        }
    }
}

/// Where an encoding goes on after its prefixes.
fn lead(bytes: &[u8]) -> usize {
    const LEGACY: [u8; 11] = [
        0x66, 0x67, 0xf0, 0xf2, 0xf3, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65,
    ];
    let at = bytes.iter().take_while(|byte| LEGACY.contains(byte));
    let at = at.count();
    let is_rex = bytes.get(at).is_some_and(|byte| byte & 0xf0 == 0x40);
    at + usize::from(is_rex)
}

/// Whether it is for the old floating-point unit.
pub(crate) fn is_x87(bytes: &[u8]) -> bool {
    let lead = bytes.get(lead(bytes));
    lead.is_some_and(|byte| (0xd8..=0xdf).contains(byte))
}

/// Where the opcode's last byte is.
fn opcode(bytes: &[u8]) -> usize {
    let at = lead(bytes);
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    match (byte(at), byte(at + 1)) {
        // VEX and EVEX.
        (0xc5, _) => at + 2,
        (0xc4, _) => at + 3,
        (0x62, _) => at + 4,
        (0x0f, 0x38 | 0x3a) => at + 2,
        (0x0f, _) => at + 1,
        (_, _) => at,
    }
}

/// What a call calls, or the slot that holds it.
pub(crate) fn callee(instruction: &Instruction) -> Option<u64> {
    match instruction.flow_control() {
        FlowControl::Call if instruction.op0_kind() == OpKind::NearBranch64 => {
            Some(instruction.near_branch64())
        }
        FlowControl::IndirectCall if instruction.is_ip_rel_memory_operand() => {
            Some(instruction.ip_rel_memory_address())
        }
        _ => None,
    }
}

/// Instructions in words: those that begin within the first `length` bytes.
pub(crate) fn disassemble(bytes: &[u8], address: u64, length: usize) -> String {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut formatter = IntelFormatter::new();
    let mut words = Vec::new();
    while decoder.can_decode() && decoder.position() < length {
        let instruction = decoder.decode();
        let mut text = String::new();
        formatter.format(&instruction, &mut text);
        words.push(text);
    }
    // Deleted ones are many of the same.
    let count = words.len();
    words.dedup();
    match (words.as_slice(), count) {
        ([one], 2..) => format!("{count} × {one}"),
        (all, _) => all.join("; "),
    }
}
