//! The machine that runs verified programs, by RFC 9669.
//!
//! Its addresses are its own: a register never holds one of this process. What a program reaches is its context, its stack and the values of its
//! maps.

use super::Map;
use super::instruction::{CALL, EXIT, FRAME_POINTER, Instruction, JA, LDDW, MAP, alu, class, jump};

/// Bytes of a frame that a program sees: DHCP's options among them, which begin at 282.
pub(crate) const SEEN: usize = 512;
/// `struct frame` of docs/card/programs/card.h: what is told of a frame, what the program says of it, and its first bytes.
pub(super) const CONTEXT: usize = READ_ONLY + 8 + SEEN;
/// Bytes of it that are the card's to write: time, length, direction.
pub(super) const READ_ONLY: usize = 16;
const STACK: usize = 512;
/// Bytes of a key of a map, and of a value.
const KEY: usize = 4;
const VALUE: usize = 8;

/// Where each kind of memory begins. A map's values begin `MAP_STEP` behind those of the one before.
const CONTEXT_BASE: u64 = 1 << 32;
const STACK_BASE: u64 = 2 << 32;
const MAPS_BASE: u64 = 3 << 32;
const MAP_STEP: u64 = 1 << 24;
/// What stands for a map in a register. Nothing can be read or written there.
const HANDLE_BASE: u64 = 4 << 32;

/// Why a program was stopped on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Wild {
    #[error("instruction {instruction} reads {width} bytes where it has none")]
    Read { instruction: usize, width: usize },
    #[error("instruction {instruction} writes {width} bytes where it may not")]
    Write { instruction: usize, width: usize },
    #[error("it returned {0}, which is neither PASS (0) nor DROP (1)")]
    Verdict(u64),
    #[error("it asked for a delay of {0} us, and 1000000 may be")]
    Delay(u32),
    #[error("it asked for {0} copies, and 8 may be")]
    Copies(u16),
    #[error("it asked for pair {pair}, and there are 0 to {}", .pairs - 1)]
    Pair { pair: u16, pairs: u16 },
    #[error("it is no program")]
    Unverified,
}

impl Wild {
    /// [`Self::kind`] is below that.
    pub(crate) const KINDS: usize = 7;

    pub(crate) fn kind(self) -> usize {
        match self {
            Self::Read { .. } => 0,
            Self::Write { .. } => 1,
            Self::Verdict(_) => 2,
            Self::Delay(_) => 3,
            Self::Copies(_) => 4,
            Self::Pair { .. } => 5,
            Self::Unverified => 6,
        }
    }
}

/// Memory of a program that stays from frame to frame.
#[derive(Debug)]
pub(super) struct ProgramMemory {
    stack: [u8; STACK],
    maps: Vec<Box<[u8]>>,
}

#[derive(Debug)]
struct Registers([u64; 11]);

impl Registers {
    fn get(&self, register: u8) -> u64 {
        self.0.get(usize::from(register)).copied().unwrap_or(0)
    }

    fn set(&mut self, register: u8, value: u64) {
        if let Some(place) = self.0.get_mut(usize::from(register)) {
            *place = value;
        }
    }
}

impl ProgramMemory {
    pub(super) fn new(maps: &[Map]) -> Self {
        let values = |map: &Map| vec![0; map.entries as usize * VALUE].into_boxed_slice();
        Self {
            stack: [0; STACK],
            maps: maps.iter().map(values).collect(),
        }
    }

    /// The values of each map.
    pub(super) fn values(&self) -> impl Iterator<Item = impl Iterator<Item = u64>> {
        self.maps.iter().map(|map| {
            let (values, _) = map.as_chunks::<VALUE>();
            values.iter().copied().map(u64::from_le_bytes)
        })
    }

    /// What the program returns. It ends, verified or not, as no jump leads backward.
    pub(super) fn run(
        &mut self,
        program: &[Instruction],
        context: &mut [u8; CONTEXT],
    ) -> Result<u64, Wild> {
        self.stack.fill(0);
        let mut registers = Registers([0; 11]);
        registers.set(1, CONTEXT_BASE);
        registers.set(FRAME_POINTER, STACK_BASE + STACK as u64);
        let mut at = 0;
        while let Some(&it) = program.get(at) {
            let dst = registers.get(it.dst);
            let operand = if it.has_source_register() {
                registers.get(it.src)
            } else {
                i64::from(it.imm) as u64
            };
            let mut jumps = false;
            let mut skip = 1;
            match it.opcode {
                LDDW if it.src == MAP => {
                    registers.set(it.dst, HANDLE_BASE + u64::from(it.imm as u32));
                    skip = 2;
                }
                LDDW => {
                    let high = program.get(at + 1).map_or(0, |half| half.imm as u32);
                    registers.set(it.dst, u64::from(high) << 32 | u64::from(it.imm as u32));
                    skip = 2;
                }
                CALL => {
                    let key = self.load(context, registers.get(2), KEY);
                    let key = key.ok_or(Wild::Read {
                        instruction: at,
                        width: KEY,
                    })?;
                    registers.set(0, self.lookup(registers.get(1), key));
                }
                EXIT => return Ok(registers.get(0)),
                JA => jumps = true,
                _ => {
                    let address = |base: u64| base.wrapping_add(i64::from(it.offset) as u64);
                    let width = it.width().unwrap_or(0);
                    match it.class() {
                        class::LDX => {
                            let from = address(registers.get(it.src));
                            let value = self.load(context, from, width).ok_or(Wild::Read {
                                instruction: at,
                                width,
                            })?;
                            registers.set(it.dst, value);
                        }
                        class::ST | class::STX => {
                            let value = if it.class() == class::STX {
                                registers.get(it.src)
                            } else {
                                i64::from(it.imm) as u64
                            };
                            let wild = Wild::Write {
                                instruction: at,
                                width,
                            };
                            let to = self.place(context, address(dst), width).ok_or(wild)?;
                            for (to, from) in to.iter_mut().zip(value.to_le_bytes()) {
                                *to = from;
                            }
                        }
                        class::ALU if it.operation() == alu::END => {
                            registers.set(it.dst, reorder(dst, it.has_source_register(), it.imm));
                        }
                        class::ALU => {
                            let value = alu32(it.operation(), dst as u32, operand as u32);
                            registers.set(it.dst, value.into());
                        }
                        class::ALU64 => registers.set(it.dst, alu64(it.operation(), dst, operand)),
                        class::JMP => jumps = holds(it.operation(), dst, operand),
                        class::JMP32 => {
                            let wide = |value: u64| i64::from(value as u32 as i32) as u64;
                            // A sign in front changes no order, and no bits in common but of the sign itself.
                            jumps = holds(it.operation(), wide(dst), wide(operand));
                        }
                        _ => return Err(Wild::Unverified),
                    }
                }
            }
            if jumps {
                skip += usize::try_from(it.offset).map_err(|_| Wild::Unverified)?;
            }
            at += skip;
        }
        Err(Wild::Unverified)
    }

    /// The address of a map's value; 0 where there is none.
    fn lookup(&self, handle: u64, key: u64) -> u64 {
        let number = handle.wrapping_sub(HANDLE_BASE);
        let map = usize::try_from(number).ok().and_then(|n| self.maps.get(n));
        let offset = key * VALUE as u64;
        match map {
            Some(map) if offset < map.len() as u64 => MAPS_BASE + number * MAP_STEP + offset,
            _ => 0,
        }
    }

    fn load(&self, context: &[u8; CONTEXT], address: u64, width: usize) -> Option<u64> {
        let offset = (address & 0xffff_ffff) as usize;
        let (memory, offset) = match address & !0xffff_ffff {
            CONTEXT_BASE => (context.as_slice(), offset),
            STACK_BASE => (self.stack.as_slice(), offset),
            MAPS_BASE => {
                let (number, offset) = within_maps(address);
                (self.maps.get(number)?.as_ref(), offset)
            }
            _ => return None,
        };
        let mut value = [0; 8];
        let from = memory.get(offset..offset + width)?;
        value.get_mut(..width)?.copy_from_slice(from);
        Some(u64::from_le_bytes(value))
    }

    /// Memory that the program may write.
    fn place<'a>(
        &'a mut self,
        context: &'a mut [u8; CONTEXT],
        address: u64,
        width: usize,
    ) -> Option<&'a mut [u8]> {
        let offset = (address & 0xffff_ffff) as usize;
        match address & !0xffff_ffff {
            CONTEXT_BASE if offset >= READ_ONLY => context.get_mut(offset..offset + width),
            STACK_BASE => self.stack.get_mut(offset..offset + width),
            MAPS_BASE => {
                let (number, offset) = within_maps(address);
                self.maps.get_mut(number)?.get_mut(offset..offset + width)
            }
            _ => None,
        }
    }
}

/// Which map, and where in it.
fn within_maps(address: u64) -> (usize, usize) {
    let offset = address & 0xffff_ffff;
    ((offset / MAP_STEP) as usize, (offset % MAP_STEP) as usize)
}

fn alu64(operation: u8, a: u64, b: u64) -> u64 {
    match operation {
        alu::ADD => a.wrapping_add(b),
        alu::SUB => a.wrapping_sub(b),
        alu::MUL => a.wrapping_mul(b),
        alu::DIV => a.checked_div(b).unwrap_or(0),
        alu::OR => a | b,
        alu::AND => a & b,
        alu::LSH => a.wrapping_shl(b as u32),
        alu::RSH => a.wrapping_shr(b as u32),
        alu::NEG => a.wrapping_neg(),
        alu::MOD => a.checked_rem(b).unwrap_or(a),
        alu::XOR => a ^ b,
        alu::ARSH => (a as i64).wrapping_shr(b as u32) as u64,
        _ => b,
    }
}

fn alu32(operation: u8, a: u32, b: u32) -> u32 {
    match operation {
        alu::ADD => a.wrapping_add(b),
        alu::SUB => a.wrapping_sub(b),
        alu::MUL => a.wrapping_mul(b),
        alu::DIV => a.checked_div(b).unwrap_or(0),
        alu::OR => a | b,
        alu::AND => a & b,
        alu::LSH => a.wrapping_shl(b),
        alu::RSH => a.wrapping_shr(b),
        alu::NEG => a.wrapping_neg(),
        alu::MOD => a.checked_rem(b).unwrap_or(a),
        alu::XOR => a ^ b,
        alu::ARSH => (a as i32).wrapping_shr(b) as u32,
        _ => b,
    }
}

/// To big-endian or little-endian order, of so many bits.
fn reorder(value: u64, big: bool, bits: i32) -> u64 {
    match (bits, big) {
        (16, true) => (value as u16).swap_bytes().into(),
        (32, true) => (value as u32).swap_bytes().into(),
        (64, true) => value.swap_bytes(),
        (16, false) => (value as u16).into(),
        (32, false) => (value as u32).into(),
        _ => value,
    }
}

fn holds(operation: u8, a: u64, b: u64) -> bool {
    let (signed_a, signed_b) = (a as i64, b as i64);
    match operation {
        jump::EQ => a == b,
        jump::GT => a > b,
        jump::GE => a >= b,
        jump::SET => a & b != 0,
        jump::NE => a != b,
        jump::SGT => signed_a > signed_b,
        jump::SGE => signed_a >= signed_b,
        jump::LT => a < b,
        jump::LE => a <= b,
        jump::SLT => signed_a < signed_b,
        jump::SLE => signed_a <= signed_b,
        _ => false,
    }
}
