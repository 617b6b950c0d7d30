//! What does not verify, and files that hold no program.

use super::super::instruction::{Instruction, LDDW, MAP};
use super::super::verify::{LONGEST, Reason, Refused, verify};
use super::super::{MOST_ENTRIES, Program, ProgramError};
use super::assemble;
use super::examples::{COUNT, EXAMPLES, LOSE};

fn refused(program: &[Instruction], maps: usize) -> (usize, Reason) {
    let Err(Refused {
        instruction,
        reason,
    }) = verify(program, maps)
    else {
        panic!("it was verified: {program:?}");
    };
    (instruction, reason)
}

#[test]
fn what_might_not_end_or_uses_nothing_is_refused() {
    for (text, at, reason) in [
        ("mov r0, 0\nja -2\nexit", 1, Reason::Backward),
        ("mov r0, 0\njeq r0, 0, -1\nexit", 1, Reason::Backward),
        ("mov r0, 0\nja +1\nexit", 1, Reason::Target),
        ("mov r0, 0\njeq r0, 0, +1\nexit", 1, Reason::Target),
        (
            "mov r0, 0\njeq r0, 0, +1\nlddw r1, 1\nexit",
            3,
            Reason::Target,
        ),
        ("mov r0, 0", 0, Reason::NoExit),
        ("mov r0, 0\njeq r0, 0, +0", 1, Reason::NoExit),
        ("mov r0, 0\nexit\nmov r0, 1\nexit", 2, Reason::Unreachable),
        ("mov r0, 0\nja +1\nmov r0, 1\nexit", 2, Reason::Unreachable),
        ("exit", 0, Reason::NoValue(0)),
        ("mov r0, r2\nexit", 0, Reason::NoValue(2)),
        ("add r0, 1\nexit", 0, Reason::NoValue(0)),
        ("stxb [r1+16], r3\nexit", 0, Reason::NoValue(3)),
        ("ldxb r0, [r3]\nexit", 0, Reason::NoValue(3)),
        ("stb [r3], 1\nexit", 0, Reason::NoValue(3)),
        ("jeq r3, 0, +0\nexit", 0, Reason::NoValue(3)),
        ("jeq r1, r3, +0\nexit", 0, Reason::NoValue(3)),
        // By one way it has a value, by the other none.
        ("jeq r1, 0, +1\nmov r0, 1\nexit", 2, Reason::NoValue(0)),
        ("mov r10, 1\nexit", 0, Reason::FramePointer),
        ("ldxb r10, [r1]\nexit", 0, Reason::FramePointer),
        ("mov r2, 1\ncall 1\nexit", 1, Reason::NoMapGiven),
        ("mov r2, 1\ncall 2\nexit", 1, Reason::Function(2)),
        ("mov r0, 1\ncall -1\nexit", 1, Reason::Function(-1)),
    ] {
        assert_eq!(refused(&assemble(text), 0), (at, reason), "{text}");
    }
    let long = "mov r0, 0\n".repeat(LONGEST);
    assert_eq!(
        refused(&assemble(&(long + "exit")), 0),
        (LONGEST, Reason::TooLong)
    );
    let long = "mov r0, 0\n".repeat(LONGEST - 1);
    assert_eq!(verify(&assemble(&(long + "exit")), 0), Ok(LONGEST));
    assert_eq!(refused(&[], 0), (0, Reason::NoExit));
}

#[test]
fn maps_are_given_by_all_ways_or_none() {
    let text =
        "lddw r1, 0\nmov r2, r10\nadd r2, -4\nmov r6, 1\nmov r7, r1\ncall 1\nmov r0, 0\nexit";
    let mut program = assemble(text);
    program[0].src = MAP;
    assert_eq!(verify(&program, 1), Ok(8));
    assert_eq!(refused(&program, 0), (0, Reason::NoMap(0)));
    program[0].imm = -1;
    assert_eq!(refused(&program, 1), (0, Reason::NoMap(-1)));
    program[0].imm = 0;
    // Another copy of the map is one, too; a number made of it is not.
    program[4] = assemble("mov r1, r1\nexit")[0];
    assert_eq!(verify(&program, 1), Ok(8));
    for number in ["mov32 r1, r1", "add r1, 0", "be64 r1", "ldxw r1, [r1]"] {
        let mut changed = program.clone();
        changed[4] = assemble(&format!("{number}\nexit"))[0];
        assert_eq!(refused(&changed, 1), (6, Reason::NoMapGiven), "{number}");
    }
    let mut half = program.clone();
    half[1].imm = 1;
    assert_eq!(refused(&half, 1), (0, Reason::Half));
    // Nobody has a value in r1 to r5 behind a call.
    for register in 1..=5u8 {
        let mut changed = program.clone();
        if register > 2 {
            changed[4] = assemble(&format!("mov r{register}, 1\nexit"))[0];
        }
        changed[7] = assemble(&format!("mov r0, r{register}\nexit"))[0];
        assert_eq!(refused(&changed, 1), (7, Reason::NoValue(register)));
    }
}

/// A map by one way and a number by the other.
#[test]
fn a_map_by_one_way_alone_is_none() {
    let mut program = assemble("mov r2, r10\nlddw r3, 0\njeq r2, 0, +1\nmov r1, r3\ncall 1\nexit");
    program[1].src = MAP;
    assert_eq!(refused(&program, 1), (5, Reason::NoMapGiven));
}

#[test]
fn fields_and_opcodes_are_those_that_there_are() {
    let set = |n: usize, change: &dyn Fn(&mut Instruction)| {
        let mut program = assemble(
            "lddw r0, 1\nmov r2, 0\nadd r0, r2\nldxb r3, [r1]\nstb [r1+16], 0\nstxb [r1+16], r0\nneg r0\nbe16 r0\n\
             jeq r0, 0, +0\njeq r0, r2, +0\nja +0\nexit",
        );
        assert!(verify(&program, 0).is_ok());
        change(&mut program[n]);
        let (at, reason) = refused(&program, 0);
        assert!(at == n || (n == 1 && at == 0), "{n} {at}");
        reason
    };
    let src: &dyn Fn(&mut Instruction) = &|it| it.src = 2;
    let imm: &dyn Fn(&mut Instruction) = &|it| it.imm = 1;
    let offset: &dyn Fn(&mut Instruction) = &|it| it.offset = 1;
    for (n, change) in [
        (0, src),
        (0, offset),
        (2, src),
        (2, offset),
        (3, imm),
        (3, offset),
        (4, imm),
        (5, src),
        (6, imm),
        (7, imm),
        (7, src),
        (7, offset),
        (8, src),
        (8, offset),
        (9, src),
        (10, imm),
        (11, imm),
        (11, src),
        (12, imm),
        (12, src),
        (12, offset),
    ] {
        assert_eq!(set(n, change), Reason::Field, "{n}");
    }
    assert_eq!(set(1, &|it| it.opcode = 1), Reason::Half);
    assert_eq!(set(1, &|it| it.dst = 1), Reason::Half);
    assert_eq!(set(2, &|it| it.dst = 11), Reason::Register(11));
    assert_eq!(set(3, &|it| it.src = 15), Reason::Register(15));
    assert_eq!(set(8, &|it| it.imm = 8), Reason::Opcode(0xdc));
    // Other modes, atomics, MOVSX, calls of local functions, tail calls, far jumps.
    for opcode in [
        0x20, 0x28, 0x81, 0xdb, 0xc3, 0xe4, 0xd7, 0x8d, 0x0d, 0x06, 0x8e, 0x96, 0xe5,
    ] {
        let reason = set(3, &|it| {
            *it = Instruction {
                opcode,
                dst: 0,
                src: 0,
                offset: 0,
                imm: 0,
            }
        });
        assert_eq!(reason, Reason::Opcode(opcode), "{opcode:#x}");
    }
    let mut half = assemble("lddw r0, 1\nexit");
    half.truncate(1);
    assert_eq!(half[0].opcode, LDDW);
    assert_eq!(refused(&half, 0), (0, Reason::Half));
}

#[test]
fn the_longest_way_is_counted() {
    for (text, longest) in [
        ("mov r0, 0\nexit", 2),
        ("lddw r0, 0\nexit", 2),
        ("mov r0, 0\njeq r0, 0, +2\nmov r0, 1\nmov r0, 2\nexit", 5),
        (
            "mov r0, 0\njeq r0, 0, +1\nexit\nmov r0, 1\nmov r0, 2\nexit",
            5,
        ),
    ] {
        assert_eq!(verify(&assemble(text), 0), Ok(longest), "{text}");
    }
}

fn reason(bytes: &[u8]) -> String {
    match Program::parse(bytes) {
        Ok(program) => panic!("taken: {program:?}"),
        Err(ProgramError::File(error)) => panic!("{error}"),
        Err(error) => error.to_string(),
    }
}

/// Replaces all bytes `from`.
fn patched(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut patched = bytes.to_vec();
    let mut found = false;
    for at in 0..=patched.len() - from.len() {
        if patched[at..].starts_with(from) {
            patched[at..at + to.len()].copy_from_slice(to);
            found = true;
        }
    }
    assert!(found);
    patched
}

#[test]
fn other_files_are_refused() {
    assert!(reason(b"").contains("clang -target bpf"));
    assert!(reason(b"int main() {}").contains("clang -target bpf"));
    let mut machine = COUNT.to_vec();
    machine[18] = 62;
    assert!(reason(&machine).contains("for another machine"));
    let mut linked = COUNT.to_vec();
    linked[16] = 2;
    assert!(reason(&linked).contains("or linked"));
    let nameless = patched(
        &patched(COUNT, b"guest\0", b"xuest\0"),
        b"wire\0",
        b"xire\0",
    );
    assert!(reason(&nameless).contains("SEC(\"guest\") or SEC(\"wire\")"));
    let nowhere = patched(COUNT, b"maps\0", b"mapx\0");
    assert!(
        reason(&nowhere).contains("\"from_guest\", which is no map"),
        "{}",
        reason(&nowhere)
    );
    // The definitions: type 2, keys of 4, values of 8 bytes.
    let words = |words: [u32; 5]| words.map(u32::to_le_bytes).concat();
    let good = words([2, 4, 8, 257, 0]);
    for bad in [
        [1, 4, 8, 257, 0],
        [2, 8, 8, 257, 0],
        [2, 4, 4, 257, 0],
        [2, 4, 8, 0, 0],
        [2, 4, 8, MOST_ENTRIES + 1, 0],
        [2, 4, 8, 257, 1],
    ] {
        let text = reason(&patched(COUNT, &good, &words(bad)));
        assert!(
            text.contains("map from_guest: it must be of type"),
            "{text}"
        );
    }
    let most = patched(COUNT, &good, &words([2, 4, 8, MOST_ENTRIES, 0]));
    assert!(Program::parse(&most).is_ok());
    // `call 1` becomes `call 3`; a place of a map becomes one of a function.
    let text = reason(&patched(LOSE, &[0x85, 0, 0, 0, 1], &[0x85, 0, 0, 0, 3]));
    assert!(
        text.starts_with("section wire: instruction 42: function 3 is unknown"),
        "{text}"
    );
    let relocation = |at, kind| [&[at, 1, 0, 0, 0, 0, 0, 0, kind][..], &[0; 3]].concat();
    let here = relocation(0x40, 1);
    let text = reason(&patched(LOSE, &here, &relocation(0x40, 10)));
    assert!(
        text.contains("section wire, instruction 40: it calls a function"),
        "{text}"
    );
}

/// The header of an executable section of COUNT, and where its name is among the names.
fn section(name: &[u8]) -> (usize, u32) {
    let find = |bytes: &[u8]| COUNT.windows(bytes.len()).position(|at| at == bytes);
    let names = find(b"\0.text\0").unwrap();
    // Names share their ends.
    let places = (names..COUNT.len()).filter(|at| COUNT[*at..].starts_with(name));
    let mut headers = places.filter_map(|at| {
        let place = (at - names) as u32;
        // SHT_PROGBITS, ALLOC and EXECINSTR.
        let header = [&place.to_le_bytes()[..], &[1, 0, 0, 0, 6, 0, 0, 0]].concat();
        Some((find(&header)?, place))
    });
    headers.next().unwrap()
}

#[test]
fn a_hook_is_one_section_of_whole_instructions() {
    let ((guest, _), (_, wire)) = (section(b"guest\0"), section(b"wire\0"));
    let mut twice = COUNT.to_vec();
    twice[guest..guest + 4].copy_from_slice(&wire.to_le_bytes());
    assert!(reason(&twice).contains("two sections are named wire"));
    let mut odd = COUNT.to_vec();
    odd[guest + 32] -= 4;
    assert!(reason(&odd).contains("section guest has no whole number"));
}

/// What a relocation says must be a map's place, at a 64-bit immediate.
#[test]
fn relocations_lead_from_immediates_to_maps() {
    let relocation = |at| [at, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    // In front of it, and in its middle.
    for (at, instruction) in [(0x30, 38), (0x41, 40)] {
        let text = reason(&patched(LOSE, &relocation(0x40), &relocation(at)));
        let expected = format!(
            "section wire, instruction {instruction}: it needs \"offers\", which is no map"
        );
        assert!(text.starts_with(&expected), "{text}");
    }
    // A symbol's place and length.
    let symbol = |place: u64| [place.to_le_bytes(), 20u64.to_le_bytes()].concat();
    for place in [10, 40] {
        let text = reason(&patched(COUNT, &symbol(20), &symbol(place)));
        assert!(text.contains("\"from_wire\", which is no map"), "{text}");
    }
}

/// No file is too broken to be refused.
#[test]
fn cut_and_changed_files_do_no_harm() {
    for (name, bytes) in EXAMPLES {
        for len in 0..bytes.len() {
            assert!(Program::parse(&bytes[..len]).is_err(), "{name} {len}");
        }
        let mut changed = bytes.to_vec();
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                changed[at] = value;
                super::super::fuzz::fuzz_card_program(&changed);
            }
            changed[at] = bytes[at];
        }
    }
}
