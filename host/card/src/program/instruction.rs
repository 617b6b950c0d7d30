//! Instructions of eBPF (RFC 9669, section 3), undecoded but for their fields.

/// Bytes of an instruction.
pub(super) const LEN: usize = 8;

/// A 64-bit immediate takes two.
pub(super) const LDDW: u8 = 0x18;
pub(super) const JA: u8 = 0x05;
pub(super) const CALL: u8 = 0x85;
pub(super) const EXIT: u8 = 0x95;
/// The source is a register, not the immediate; of END, the order is big-endian.
pub(super) const X: u8 = 0x08;
/// In LDDW's source: the immediate is the number of a map.
pub(super) const MAP: u8 = 1;
/// R10, the register with the address of the stack's end. It can only be read.
pub(super) const FRAME_POINTER: u8 = 10;
/// `bpf_map_lookup_elem`, the one function that programs can call.
pub(super) const LOOKUP: i32 = 1;

/// Instruction classes, the lower three bits.
pub(super) mod class {
    pub(crate) const LDX: u8 = 1;
    pub(crate) const ST: u8 = 2;
    pub(crate) const STX: u8 = 3;
    pub(crate) const ALU: u8 = 4;
    pub(crate) const JMP: u8 = 5;
    pub(crate) const JMP32: u8 = 6;
    pub(crate) const ALU64: u8 = 7;
}

/// Operations of ALU and ALU64, the upper four bits.
pub(super) mod alu {
    pub(crate) const ADD: u8 = 0x00;
    pub(crate) const SUB: u8 = 0x10;
    pub(crate) const MUL: u8 = 0x20;
    pub(crate) const DIV: u8 = 0x30;
    pub(crate) const OR: u8 = 0x40;
    pub(crate) const AND: u8 = 0x50;
    pub(crate) const LSH: u8 = 0x60;
    pub(crate) const RSH: u8 = 0x70;
    pub(crate) const NEG: u8 = 0x80;
    pub(crate) const MOD: u8 = 0x90;
    pub(crate) const XOR: u8 = 0xa0;
    pub(crate) const MOV: u8 = 0xb0;
    pub(crate) const ARSH: u8 = 0xc0;
    pub(crate) const END: u8 = 0xd0;
}

/// Conditions of JMP and JMP32, the upper four bits.
pub(super) mod jump {
    pub(crate) const EQ: u8 = 0x10;
    pub(crate) const GT: u8 = 0x20;
    pub(crate) const GE: u8 = 0x30;
    pub(crate) const SET: u8 = 0x40;
    pub(crate) const NE: u8 = 0x50;
    pub(crate) const SGT: u8 = 0x60;
    pub(crate) const SGE: u8 = 0x70;
    pub(crate) const LT: u8 = 0xa0;
    pub(crate) const LE: u8 = 0xb0;
    pub(crate) const SLT: u8 = 0xc0;
    pub(crate) const SLE: u8 = 0xd0;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub opcode: u8,
    pub dst: u8,
    pub src: u8,
    pub offset: i16,
    pub imm: i32,
}

impl Instruction {
    /// The fields of any eight bytes: whether that is an instruction is not looked at.
    pub(super) fn parse([opcode, registers, o0, o1, i0, i1, i2, i3]: [u8; LEN]) -> Self {
        Self {
            opcode,
            dst: registers & 0xf,
            src: registers >> 4,
            offset: i16::from_le_bytes([o0, o1]),
            imm: i32::from_le_bytes([i0, i1, i2, i3]),
        }
    }

    pub(super) fn class(self) -> u8 {
        self.opcode & 7
    }

    /// Of arithmetic and jumps.
    pub(super) fn operation(self) -> u8 {
        self.opcode & 0xf0
    }

    pub(super) fn has_source_register(self) -> bool {
        self.opcode & X != 0
    }

    /// Bytes that a load or store moves; none for another mode than MEM.
    pub(super) fn width(self) -> Option<usize> {
        match self.opcode & 0xf8 {
            0x60 => Some(4),
            0x68 => Some(2),
            0x70 => Some(1),
            0x78 => Some(8),
            _ => None,
        }
    }
}
