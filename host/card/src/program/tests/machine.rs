//! Programs that run: their arithmetic, their memory and their maps.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::Map;
use super::super::instruction::{Instruction, LDDW, MAP};
use super::super::machine::{CONTEXT, ProgramMemory, READ_ONLY, Wild};
use super::super::verify::verify;
use super::assemble;

fn run(text: &str) -> Result<u64, Wild> {
    let program = assemble(text);
    verify(&program, 0).unwrap();
    ProgramMemory::new(&[]).run(&program, &mut [0x11; CONTEXT])
}

/// RFC 9669, sections 4.1 to 4.3, where interpreters differ: signs of immediates, division, shifts, 32 bits.
#[test]
fn instructions_do_what_the_rfc_says() {
    for (text, result) in [
        ("mov r0, -1", u64::MAX),
        ("mov32 r0, -1", 0xffff_ffff),
        ("mov r0, 7\ndiv r0, 0", 0),
        ("mov r0, 7\nmod r0, 0", 7),
        ("lddw r0, 0x500000007\nmod32 r0, 0", 7),
        ("mov r0, -4\ndiv r0, -2", 0),
        ("mov r0, -1\ndiv r0, -2", 1),
        ("lddw r0, 0x8000000000000000\nneg r0", 1 << 63),
        ("mov r0, 1\nneg32 r0", 0xffff_ffff),
        ("mov r0, 1\nmov r1, 65\nlsh r0, r1", 2),
        ("mov r0, 1\nmov r1, 33\nlsh32 r0, r1", 2),
        ("mov r0, -8\narsh r0, 1", -4i64 as u64),
        ("mov r0, -8\narsh32 r0, 1", 0xffff_fffc),
        ("lddw r0, 0x1122334455667788\nbe16 r0", 0x8877),
        ("lddw r0, 0x1122334455667788\nbe32 r0", 0x8877_6655),
        (
            "lddw r0, 0x1122334455667788\nbe64 r0",
            0x8877_6655_4433_2211,
        ),
        ("lddw r0, 0x1122334455667788\nle16 r0", 0x7788),
        ("lddw r0, 0x1122334455667788\nle32 r0", 0x5566_7788),
        ("stdw [r10-8], -2\nldxw r0, [r10-8]", 0xffff_fffe),
        ("stdw [r10-8], -2\nldxb r0, [r10-1]", 0xff),
    ] {
        assert_eq!(run(&format!("{text}\nexit")), Ok(result), "{text}");
    }
    // A condition, whether it holds.
    for (registers, condition, holds) in [
        ("mov r1, -1", "jeq r1, -1", true),
        ("mov r1, -1", "jne r1, -1", false),
        ("mov r1, 1", "jlt r1, -1", true),
        ("mov r1, 1", "jgt r1, -1", false),
        ("mov r1, -2", "jle r1, -1", true),
        ("mov r1, -1", "jge r1, -1", true),
        ("mov r1, 1", "jsgt r1, -1", true),
        ("mov r1, 1", "jslt r1, -1", false),
        ("mov r1, -1", "jsge r1, -1", true),
        ("mov r1, -1", "jsle r1, -2", false),
        ("mov r1, 6", "jset r1, 1", false),
        ("mov r1, 6", "jset r1, 2", true),
        ("lddw r1, 0x500000000", "jset r1, -1", true),
        ("lddw r1, 0x500000000", "jset32 r1, -1", false),
        ("lddw r1, 0x500000001", "jeq32 r1, 1", true),
        ("lddw r1, 0x500000001", "jeq r1, 1", false),
        ("lddw r1, 0x5ffffffff", "jslt32 r1, 0", true),
        ("lddw r1, 0x5ffffffff", "jslt r1, 0", false),
        ("lddw r1, 0x5ffffffff", "jgt32 r1, 1", true),
        (
            "lddw r1, 0x580000000\nlddw r2, 0x17fffffff",
            "jgt32 r1, r2",
            true,
        ),
        (
            "lddw r1, 0x580000000\nlddw r2, 0x17fffffff",
            "jsgt32 r1, r2",
            false,
        ),
    ] {
        let text = format!("{registers}\nmov r0, 1\n{condition}, +1\nmov r0, 0\nexit");
        assert_eq!(run(&text), Ok(holds.into()), "{registers}; {condition}");
    }
}

#[test]
fn a_program_reaches_its_own_memory_and_no_more() {
    let read = |width, at: &str| match width {
        1 => format!("ldxb r0, {at}\nexit"),
        2 => format!("ldxh r0, {at}\nexit"),
        4 => format!("ldxw r0, {at}\nexit"),
        _ => format!("ldxdw r0, {at}\nexit"),
    };
    let end = CONTEXT as u64;
    for width in [1, 2, 4, 8] {
        for (base, first, behind) in [("r1", 0, end as i64), ("r10", -512, 0)] {
            let last = behind - width as i64;
            for inside in [first, last] {
                assert!(run(&read(width, &format!("[{base}{inside:+}]"))).is_ok());
            }
            for outside in [first - 1, last + 1] {
                let refused = Err(Wild::Read {
                    instruction: 0,
                    width,
                });
                assert_eq!(run(&read(width, &format!("[{base}{outside:+}]"))), refused);
            }
        }
    }
    let write = |at: usize| run(&format!("mov r0, 0\nstb [r1+{at}], 1\nexit"));
    let refused = Err(Wild::Write {
        instruction: 1,
        width: 1,
    });
    for (at, result) in [
        (0, refused),
        (READ_ONLY - 1, refused),
        (READ_ONLY, Ok(0)),
        (CONTEXT - 1, Ok(0)),
        (CONTEXT, refused),
    ] {
        assert_eq!(write(at), result, "{at}");
    }
    // Addresses of nobody, and those that wrap.
    for address in [
        "0",
        "0x7fffffffffffffff",
        "0xffffffffffffffff",
        "0x400000000",
    ] {
        let text = format!("lddw r1, {address}\nldxdw r0, [r1+1]\nexit");
        assert!(matches!(run(&text), Err(Wild::Read { .. })), "{address}");
    }
}

#[test]
fn nothing_of_a_run_is_left_on_the_stack() {
    let write = assemble("stdw [r10-8], 7\nstdw [r10-512], 7\nmov r0, 0\nexit");
    let read = assemble("ldxdw r0, [r10-8]\nldxdw r1, [r10-512]\nor r0, r1\nexit");
    let mut memory = ProgramMemory::new(&[]);
    for (program, result) in [(&write, 0), (&read, 0)] {
        assert_eq!(memory.run(program, &mut [0; CONTEXT]), Ok(result));
    }
}

/// `r0 = *bpf_map_lookup_elem(map, key)`, plus 1, which is put back; -1 where there is none.
fn bump(map: i32, key: i32) -> Vec<Instruction> {
    let lines = format!(
        "stw [r10-4], {key}\nmov r2, r10\nadd r2, -4\nlddw r1, {map}\ncall 1\njne r0, 0, +2\nmov r0, -1\nexit\n\
         ldxdw r1, [r0]\nadd r1, 1\nstxdw [r0], r1\nmov r0, r1\nexit"
    );
    let mut program = assemble(&lines);
    let map = program.iter_mut().find(|it| it.opcode == LDDW).unwrap();
    map.src = MAP;
    program
}

#[test]
fn maps_stay_and_are_apart() {
    let map = |entries| Map {
        name: String::new(),
        entries,
    };
    let mut memory = ProgramMemory::new(&[map(1), map(3)]);
    for (n, key, result) in [
        (0, 0, 1),
        (1, 0, 1),
        (1, 2, 1),
        (0, 0, 2),
        (1, 2, 2),
        (1, 2, 3),
        (0, 1, u64::MAX),
        (1, 3, u64::MAX),
        (1, -1, u64::MAX),
    ] {
        let program = bump(n, key);
        verify(&program, 2).unwrap();
        assert_eq!(memory.run(&program, &mut [0; CONTEXT]), Ok(result));
    }
    let values: Vec<Vec<u64>> = memory.values().map(Iterator::collect).collect();
    assert_eq!(values, [vec![2], vec![1, 0, 3]]);
    // Behind a map's end is nothing, though there is another map.
    let mut program = bump(0, 0);
    let load = program.iter_mut().find(|it| it.opcode == 0x79).unwrap();
    load.offset = 8;
    let result = memory.run(&program, &mut [0; CONTEXT]);
    assert!(matches!(result, Err(Wild::Read { width: 8, .. })));
}

/// An instruction of arithmetic or a jump, as rbpf 0.4 does it by the RFC: it takes immediates of jumps as numbers without a sign, leaves 64 bits as
/// they are where 32 are divided by 0 for the rest, and NEG of the smallest number ends it in a build with checks.
fn instruction() -> impl Strategy<Value = String> {
    let binary = prop::sample::select(vec![
        "add", "sub", "mul", "div", "or", "and", "lsh", "rsh", "mod", "xor", "mov", "arsh",
        "add32", "sub32", "mul32", "div32", "or32", "and32", "lsh32", "rsh32", "xor32", "mov32",
        "arsh32",
    ]);
    let jumps = prop::sample::select(vec![
        "jeq", "jne", "jgt", "jge", "jlt", "jle", "jset", "jsgt", "jsge", "jslt", "jsle", "jeq32",
        "jne32", "jgt32", "jge32", "jlt32", "jle32", "jset32", "jsgt32", "jsge32", "jslt32",
        "jsle32",
    ]);
    let order = prop::sample::select(vec!["be16", "be32", "be64", "le16", "le32", "le64"]);
    prop_oneof![
        4 => (binary.clone(), 0..6, 0..6).prop_map(|(name, a, b)| format!("{name} r{a}, r{b}")),
        4 => (binary, 0..6, any::<i32>()).prop_map(|(name, a, b)| format!("{name} r{a}, {b}")),
        2 => (jumps.clone(), 0..6, 0..6).prop_map(|(name, a, b)| format!("{name} r{a}, r{b}, +1")),
        2 => (jumps, 0..6, 0..i32::MAX).prop_map(|(name, a, b)| format!("{name} r{a}, {b}, +1")),
        1 => (order, 0..6).prop_map(|(name, a)| format!("{name} r{a}")),
    ]
}

proptest! {
    #[test]
    fn arithmetic_and_jumps_are_those_of_rbpf(
        values in any::<[u64; 6]>(),
        lines in vec(instruction(), 1..40),
        shown in 0..6,
    ) {
        let mut text = String::new();
        for (n, value) in values.iter().enumerate() {
            text += &format!("lddw r{n}, {value:#x}\n");
        }
        text += &lines.join("\n");
        // A jump over one at the end leads to the exit.
        text += &format!("\nmov r0, r{shown}\nmov r0, r0\nexit\n");
        let bytes = rbpf::assembler::assemble(&text).unwrap();
        let expected = rbpf::EbpfVmNoData::new(Some(&bytes)).unwrap().execute_program().unwrap();
        prop_assert_eq!(run(&text), Ok(expected), "{}", text);
    }

    /// Whatever the instructions, verified or not, the machine ends.
    #[test]
    fn any_bytes_end(bytes in vec(any::<[u8; 8]>(), 0..64)) {
        let program: Vec<_> = bytes.into_iter().map(Instruction::parse).collect();
        let result = ProgramMemory::new(&[]).run(&program, &mut [0; CONTEXT]);
        if let Ok(longest) = verify(&program, 0) {
            prop_assert!(longest <= program.len());
            prop_assert_ne!(result, Err(Wild::Unverified));
        }
    }
}
