//! What is known of a program before it runs.
//!
//! Jumps lead forward alone. So one look at each instruction, in order, knows all ways that lead there, and the machine ends after at most as many
//! steps. Where loads and stores lead, the machine checks.

use std::fmt;

use super::instruction::{
    CALL, EXIT, FRAME_POINTER, Instruction, JA, LDDW, LOOKUP, MAP, alu, class, jump,
};

/// Instructions of a program, at most.
pub(super) const LONGEST: usize = 4096;

/// A program that does not run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub instruction: usize,
    pub reason: Reason,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instruction {}: {}", self.instruction, self.reason)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Reason {
    #[error("beyond the {LONGEST} that a program may have")]
    TooLong,
    #[error(
        "opcode {0:#04x} is unknown here; compile with -mcpu=v1, v2 or v3, and without atomics"
    )]
    Opcode(u8),
    #[error("a field that the instruction does not use is not 0")]
    Field,
    #[error("there is no register r{0}")]
    Register(u8),
    #[error("r10 is read-only")]
    FramePointer,
    #[error("r{0} may have no value yet")]
    NoValue(u8),
    #[error("it jumps backward: loops must be unrolled")]
    Backward,
    #[error("it jumps beyond the end, or into a 64-bit immediate")]
    Target,
    #[error("the second half of a 64-bit immediate is missing or wrong")]
    Half,
    #[error("there is no map {0}")]
    NoMap(i32),
    #[error("function {0} is unknown: bpf_map_lookup_elem is the only one")]
    Function(i32),
    #[error("r1 must be a map here, whatever the way that leads here")]
    NoMapGiven,
    #[error("this instruction is never reached")]
    Unreachable,
    #[error("the program may end without `exit`")]
    NoExit,
}

/// What is known of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    None,
    Map,
    Some,
}

/// What the verifier knows in front of an instruction (Linux: `struct bpf_verifier_state`).
#[derive(Clone, Copy, Debug)]
struct VerifierState {
    registers: [Value; 11],
    /// Instructions of the longest way that leads here.
    longest: usize,
}

impl VerifierState {
    fn meet(&mut self, other: &Self) {
        self.longest = self.longest.max(other.longest);
        for (one, other) in self.registers.iter_mut().zip(other.registers) {
            if *one != other {
                *one = if *one == Value::None || other == Value::None {
                    Value::None
                } else {
                    Value::Some
                };
            }
        }
    }

    fn get(&self, register: u8) -> Result<Value, Reason> {
        match self.registers.get(usize::from(register)) {
            None => Err(Reason::Register(register)),
            Some(Value::None) => Err(Reason::NoValue(register)),
            Some(value) => Ok(*value),
        }
    }

    fn set(&mut self, register: u8, value: Value) -> Result<(), Reason> {
        if register == FRAME_POINTER {
            return Err(Reason::FramePointer);
        }
        let place = self.registers.get_mut(usize::from(register));
        *place.ok_or(Reason::Register(register))? = value;
        Ok(())
    }
}

/// The instructions that may run after one: what follows it, and where it jumps.
#[derive(Clone, Copy, Debug, Default)]
struct Successors {
    /// To the instruction so far behind.
    next: Option<usize>,
    jump: Option<i16>,
}

const NEXT: Successors = Successors {
    next: Some(1),
    jump: None,
};

/// Looks whether a program ends, and uses nothing that there is not. Instructions of the longest way through it.
pub(super) fn verify(program: &[Instruction], maps: usize) -> Result<usize, Refused> {
    let refused = |instruction| {
        move |reason| Refused {
            instruction,
            reason,
        }
    };
    if program.len() > LONGEST {
        return Err(refused(LONGEST)(Reason::TooLong));
    }
    let mut states: Vec<Option<VerifierState>> = vec![None; program.len()];
    let mut registers = [Value::None; 11];
    [registers[1], registers[10]] = [Value::Some; 2];
    if let Some(first) = states.first_mut() {
        *first = Some(VerifierState {
            registers,
            longest: 0,
        });
    }
    let (mut longest, mut half) = (0, false);
    for (at, instruction) in program.iter().enumerate() {
        let refused = refused(at);
        let state = states.get(at).copied().flatten();
        if std::mem::take(&mut half) {
            // What leads here is a jump.
            state.map_or(Ok(()), |_| Err(refused(Reason::Target)))?;
            continue;
        }
        let mut state = state.ok_or_else(|| refused(Reason::Unreachable))?;
        state.longest += 1;
        longest = longest.max(state.longest);
        let second = program.get(at + 1);
        let successors = step(*instruction, second, &mut state, maps).map_err(refused)?;
        half = successors.next == Some(2);
        if let Some(next) = successors.next {
            let next = states.get_mut(at + next);
            join(next.ok_or_else(|| refused(Reason::NoExit))?, &state);
        }
        if let Some(jump) = successors.jump {
            let jump = usize::try_from(jump).map_err(|_| refused(Reason::Backward))?;
            let to = states.get_mut(at + 1 + jump);
            join(to.ok_or_else(|| refused(Reason::Target))?, &state);
        }
    }
    if program.is_empty() {
        return Err(refused(0)(Reason::NoExit));
    }
    Ok(longest)
}

fn join(place: &mut Option<VerifierState>, state: &VerifierState) {
    match place {
        Some(known) => known.meet(state),
        None => *place = Some(*state),
    }
}

/// Checks an instruction, and what is known behind it.
fn step(
    it: Instruction,
    second: Option<&Instruction>,
    state: &mut VerifierState,
    maps: usize,
) -> Result<Successors, Reason> {
    let unused = |all_zero: bool| if all_zero { Ok(()) } else { Err(Reason::Field) };
    match it.opcode {
        LDDW => {
            let value = match it.src {
                0 => Value::Some,
                MAP if usize::try_from(it.imm).is_ok_and(|n| n < maps) => Value::Map,
                MAP => return Err(Reason::NoMap(it.imm)),
                _ => return Err(Reason::Field),
            };
            unused(it.offset == 0)?;
            let half = second.ok_or(Reason::Half)?;
            if [half.opcode, half.dst, half.src] != [0; 3]
                || half.offset != 0
                || (value == Value::Map && half.imm != 0)
            {
                return Err(Reason::Half);
            }
            state.set(it.dst, value)?;
            return Ok(Successors {
                next: Some(2),
                jump: None,
            });
        }
        CALL => {
            unused(it.dst == 0 && it.src == 0 && it.offset == 0)?;
            if it.imm != LOOKUP {
                return Err(Reason::Function(it.imm));
            }
            if state.get(1)? != Value::Map {
                return Err(Reason::NoMapGiven);
            }
            state.get(2)?;
            for register in 1..=5 {
                state.set(register, Value::None)?;
            }
            state.set(0, Value::Some)?;
            return Ok(NEXT);
        }
        EXIT => {
            unused(it.dst == 0 && it.src == 0 && it.offset == 0 && it.imm == 0)?;
            state.get(0)?;
            return Ok(Successors::default());
        }
        JA => {
            unused(it.dst == 0 && it.src == 0 && it.imm == 0)?;
            return Ok(Successors {
                next: None,
                jump: Some(it.offset),
            });
        }
        _ => {}
    }
    let unknown = Reason::Opcode(it.opcode);
    match it.class() {
        class::LDX => {
            it.width().ok_or(unknown)?;
            unused(it.imm == 0)?;
            state.get(it.src)?;
            state.set(it.dst, Value::Some)?;
            Ok(NEXT)
        }
        class::ST | class::STX => {
            it.width().ok_or(unknown)?;
            if it.class() == class::STX {
                unused(it.imm == 0)?;
                state.get(it.src)?;
            } else {
                unused(it.src == 0)?;
            }
            state.get(it.dst)?;
            Ok(NEXT)
        }
        class::ALU | class::ALU64 => {
            unused(it.offset == 0)?;
            let by_register = it.has_source_register();
            match it.operation() {
                alu::NEG if !by_register => unused(it.src == 0 && it.imm == 0)?,
                alu::END if it.class() == class::ALU => {
                    unused(it.src == 0)?;
                    if ![16, 32, 64].contains(&it.imm) {
                        return Err(unknown);
                    }
                }
                alu::ADD..=alu::RSH | alu::MOD..=alu::ARSH if by_register => {
                    unused(it.imm == 0)?;
                    state.get(it.src)?;
                }
                alu::ADD..=alu::RSH | alu::MOD..=alu::ARSH => unused(it.src == 0)?,
                _ => return Err(unknown),
            }
            let mut value = Value::Some;
            if it.operation() != alu::MOV {
                state.get(it.dst)?;
            } else if by_register && it.class() == class::ALU64 {
                value = state.get(it.src)?;
            }
            state.set(it.dst, value)?;
            Ok(NEXT)
        }
        class::JMP | class::JMP32 => {
            match it.operation() {
                jump::EQ..=jump::SGE | jump::LT..=jump::SLE => {}
                _ => return Err(unknown),
            }
            if it.has_source_register() {
                unused(it.imm == 0)?;
                state.get(it.src)?;
            } else {
                unused(it.src == 0)?;
            }
            state.get(it.dst)?;
            Ok(Successors {
                next: Some(1),
                jump: Some(it.offset),
            })
        }
        _ => Err(unknown),
    }
}
