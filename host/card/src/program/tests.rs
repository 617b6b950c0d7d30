//! Programs by RFC 9669 and another interpreter, refusals, and the examples of docs/card/programs.

mod examples;
mod filter;
mod machine;
mod refusals;

use super::instruction::Instruction;
use super::{Code, Hook, Program, verify::verify};

/// Instructions of a text, as rbpf's assembler reads it.
fn assemble(text: &str) -> Vec<Instruction> {
    let bytes = rbpf::assembler::assemble(text).unwrap();
    let (whole, rest) = bytes.as_chunks();
    assert!(rest.is_empty());
    whole.iter().copied().map(Instruction::parse).collect()
}

/// A program at one hook, without maps.
pub(crate) fn program(hook: Hook, text: &str) -> Program {
    let instructions = assemble(text);
    let longest = verify(&instructions, 0).unwrap();
    let code = Some(Code {
        instructions,
        longest,
    });
    let hooks = match hook {
        Hook::Guest => [code, None],
        Hook::Wire => [None, code],
    };
    Program {
        hooks,
        maps: Vec::new(),
    }
}
