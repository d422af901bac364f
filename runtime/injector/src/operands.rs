//! Which bits of an encoding say which operand.
use crate::code::{Item, Layout, is_x87};
use crate::edits::Edit;
use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind, Register};

/// Which operands are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Destination,
    Source,
}

/// The bits after the opcode that change an operand on that side, or what is done to it.
///
/// Each bit is tried out. If another instruction comes of it, as where the opcode goes on in modrm, it
/// counts for both sides; so do all bits where there is only one operand.
pub(crate) fn bits(item: &Item, bytes: &[u8], layout: &Layout, side: Side) -> Vec<Edit> {
    let before = &item.instruction;
    if is_x87(bytes) || before.op_count() == 0 {
        return Vec::new();
    }
    let candidates = (layout.opcode + 1) * 8..bytes.len() * 8;
    let counts = |bit: &usize| {
        let after = flipped(bytes, *bit, before.ip());
        if after.code() != before.code() || before.op_count() == 1 {
            return true;
        }
        let differs = |at: u32| operand(before, at) != operand(&after, at);
        match side {
            Side::Destination => differs(0),
            Side::Source => (1..before.op_count()).any(differs),
        }
    };
    candidates.filter(counts).map(Edit::Bit).collect()
}

fn flipped(bytes: &[u8], bit: usize, address: u64) -> Instruction {
    let mut bytes = bytes.to_vec();
    if let Some(byte) = bytes.get_mut(bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
    // It may have become longer.
    bytes.resize(bytes.len() + 8, 0);
    Decoder::with_ip(64, &bytes, address, DecoderOptions::NONE).decode()
}

#[derive(PartialEq, Eq)]
enum Operand {
    Register(Register),
    /// Base, index, scale, displacement.
    Memory(Register, Register, u32, u64),
    Constant(u64),
    Other(OpKind),
}

fn operand(it: &Instruction, at: u32) -> Operand {
    match it.op_kind(at) {
        OpKind::Register => Operand::Register(it.op_register(at)),
        OpKind::Memory => Operand::Memory(
            it.memory_base(),
            it.memory_index(),
            it.memory_index_scale(),
            it.memory_displacement64(),
        ),
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
            Operand::Constant(it.near_branch_target())
        }
        kind => match it.try_immediate(at) {
            Ok(value) => Operand::Constant(value),
            Err(_) => Operand::Other(kind),
        },
    }
}
