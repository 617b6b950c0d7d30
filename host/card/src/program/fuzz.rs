//! The body of the fuzz target: a file that says whatever it likes, and a frame.

use super::machine::{CONTEXT, ProgramMemory};
use super::verify::LONGEST;
use super::{Hook, Program};

/// Reads a program, and runs what was verified on a frame.
///
/// # Panics
/// When a promise is broken.
pub fn fuzz_card_program(data: &[u8]) {
    let Ok(program) = Program::parse(data) else {
        return;
    };
    let mut memory = ProgramMemory::new(&program.maps);
    for (hook, code) in Hook::ALL.into_iter().zip(&program.hooks) {
        let Some(code) = code else { continue };
        assert!((1..=LONGEST).contains(&code.longest), "{hook:?}");
        let mut context = [0x55; CONTEXT];
        let told = context;
        let result = memory.run(&code.instructions, &mut context);
        assert_ne!(result, Err(super::machine::Wild::Unverified), "{hook:?}");
        assert_eq!(
            context[..super::machine::READ_ONLY],
            told[..super::machine::READ_ONLY]
        );
    }
}
