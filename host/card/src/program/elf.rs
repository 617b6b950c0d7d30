//! Object files, as `clang -target bpf` writes them.

use elf::abi::{EM_BPF, ET_REL, SHT_PROGBITS, SHT_REL, STT_OBJECT};
use elf::endian::LittleEndian;
use elf::{ElfBytes, ParseError};

use super::instruction::{Instruction, LDDW, LEN, MAP};
use super::{Hook, MOST_ENTRIES, MOST_MAPS, Map};

/// The section of maps: a `struct bpf_map_def` for each.
const MAPS: &str = "maps";
/// Its fields: type, bytes of a key, bytes of a value, entries, flags; 32 bits each.
const DEFINITION: usize = 20;
/// BPF_MAP_TYPE_ARRAY of Linux' bpf.h, the one type that there is here.
const ARRAY: u32 = 2;
/// A 64-bit immediate is a symbol's place.
const R_BPF_64_64: u32 = 1;
/// Names longer than that are of no use to people.
const LONGEST_NAME: usize = 64;

/// Why a file holds no program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ElfError {
    #[error("no object file of `clang -target bpf`")]
    Elf(#[from] ParseError),
    #[error("no object file of `clang -target bpf`: it is for another machine, or linked")]
    Machine,
    #[error("no section has a program: SEC(\"guest\") or SEC(\"wire\") stands before its function")]
    NoHook,
    #[error("two sections are named {0}: put one function in each")]
    Twice(&'static str),
    #[error("section {0} has no whole number of instructions")]
    Odd(&'static str),
    #[error("section maps has no whole number of struct bpf_map_def, of {DEFINITION} bytes each")]
    OddMaps,
    #[error("{0} maps, and {MOST_MAPS} may be")]
    TooManyMaps(usize),
    #[error(
        "map {0}: it must be of type BPF_MAP_TYPE_ARRAY, with keys of 4 bytes, values of 8, 1 to {MOST_ENTRIES} entries, and no flags"
    )]
    Map(String),
    #[error(
        "section {section}, instruction {instruction}: it calls a function; make that static __always_inline"
    )]
    Call {
        section: &'static str,
        instruction: u64,
    },
    #[error(
        "section {section}, instruction {instruction}: it needs {symbol:?}, which is no map; programs have no other global data"
    )]
    Symbol {
        section: &'static str,
        instruction: u64,
        symbol: String,
    },
}

/// What a file holds.
#[derive(Debug)]
pub(super) struct Object {
    /// The instructions at each [`Hook`]; none where there is no section for it.
    pub hooks: [Option<Vec<Instruction>>; 2],
    pub maps: Vec<Map>,
}

/// Reads a file. What the instructions are is not looked at.
pub(super) fn parse(bytes: &[u8]) -> Result<Object, ElfError> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(bytes)?;
    if file.ehdr.e_machine != EM_BPF || file.ehdr.e_type != ET_REL {
        return Err(ElfError::Machine);
    }
    let (Some(sections), Some(names)) = file.section_headers_with_strtab()? else {
        return Err(ElfError::NoHook);
    };
    let mut places = [None, None];
    let mut hooks = [None, None];
    let (mut maps_place, mut definitions) = (None, [].as_slice());
    for (place, section) in sections.iter().enumerate() {
        if section.sh_type != SHT_PROGBITS {
            continue;
        }
        let name = names.get(section.sh_name as usize)?;
        let (data, _) = file.section_data(&section)?;
        if name == MAPS && !data.is_empty() {
            maps_place = Some(place);
            definitions = data;
        }
        for (n, hook) in Hook::ALL.into_iter().enumerate() {
            if name != hook.name() || data.is_empty() {
                continue;
            }
            let (Some(code), Some(of)) = (hooks.get_mut(n), places.get_mut(n)) else {
                continue;
            };
            if code.is_some() {
                return Err(ElfError::Twice(hook.name()));
            }
            *code = Some(instructions(hook, data)?);
            *of = Some(place);
        }
    }
    if hooks.iter().all(Option::is_none) {
        return Err(ElfError::NoHook);
    }
    let symbols = file.symbol_table()?;
    let mut maps = definitions_of(definitions)?;
    if let Some((symbols, names)) = &symbols {
        for symbol in symbols.iter() {
            let place = usize::from(symbol.st_shndx);
            if Some(place) == maps_place && symbol.st_symtype() == STT_OBJECT {
                let map = map_at(symbol.st_value).and_then(|n| maps.get_mut(n));
                let name = names.get(symbol.st_name as usize)?;
                if let Some(map) = map {
                    map.name = name.chars().take(LONGEST_NAME).collect();
                }
            }
        }
    }
    check(&maps, definitions)?;
    for section in sections.iter().filter(|of| of.sh_type == SHT_REL) {
        let of = Some(section.sh_info as usize);
        for ((hook, place), code) in Hook::ALL.into_iter().zip(places).zip(&mut hooks) {
            let Some(code) = code.as_mut().filter(|_| place == of) else {
                continue;
            };
            for rel in file.section_data_as_rels(&section)? {
                let symbol = match &symbols {
                    Some((symbols, names)) => Some((symbols.get(rel.r_sym as usize)?, names)),
                    None => None,
                };
                let instruction = rel.r_offset / LEN as u64;
                let section = hook.name();
                if rel.r_type != R_BPF_64_64 {
                    return Err(ElfError::Call {
                        section,
                        instruction,
                    });
                }
                let of_map = symbol
                    .as_ref()
                    .filter(|(symbol, _)| Some(usize::from(symbol.st_shndx)) == maps_place);
                let to = code
                    .get_mut(instruction as usize..)
                    .and_then(<[_]>::first_mut);
                let map = of_map.zip(to).and_then(|((symbol, _), to)| {
                    // A symbol that is the section's has the rest of its place in the instruction.
                    let at = symbol.st_value.checked_add(u64::try_from(to.imm).ok()?)?;
                    let n = map_at(at).filter(|n| *n < maps.len())?;
                    (to.opcode == LDDW && rel.r_offset % LEN as u64 == 0).then_some((to, n))
                });
                let Some((to, n)) = map else {
                    // A name may be as long as the file: it is looked up once.
                    let name = match symbol {
                        Some((symbol, names)) => names.get(symbol.st_name as usize)?,
                        None => "",
                    };
                    return Err(ElfError::Symbol {
                        section,
                        instruction,
                        symbol: name.chars().take(LONGEST_NAME).collect(),
                    });
                };
                to.src = MAP;
                to.imm = n as i32;
            }
        }
    }
    Ok(Object { hooks, maps })
}

fn instructions(hook: Hook, data: &[u8]) -> Result<Vec<Instruction>, ElfError> {
    let (whole, rest) = data.as_chunks::<LEN>();
    if !rest.is_empty() {
        return Err(ElfError::Odd(hook.name()));
    }
    Ok(whole.iter().copied().map(Instruction::parse).collect())
}

/// Which map's definition is at this place of its section.
fn map_at(place: u64) -> Option<usize> {
    let place = usize::try_from(place).ok()?;
    place
        .is_multiple_of(DEFINITION)
        .then_some(place / DEFINITION)
}

/// The maps of these definitions, with a name until they have their own.
fn definitions_of(data: &[u8]) -> Result<Vec<Map>, ElfError> {
    let (whole, rest) = data.as_chunks::<DEFINITION>();
    if !rest.is_empty() {
        return Err(ElfError::OddMaps);
    }
    if whole.len() > MOST_MAPS {
        return Err(ElfError::TooManyMaps(whole.len()));
    }
    let maps = whole.iter().enumerate().map(|(n, definition)| Map {
        name: n.to_string(),
        entries: fields(definition)[3],
    });
    Ok(maps.collect())
}

fn fields(definition: &[u8; DEFINITION]) -> [u32; DEFINITION / 4] {
    let (words, _) = definition.as_chunks::<4>();
    let mut fields = [0; DEFINITION / 4];
    for (field, word) in fields.iter_mut().zip(words) {
        *field = u32::from_le_bytes(*word);
    }
    fields
}

fn check(maps: &[Map], definitions: &[u8]) -> Result<(), ElfError> {
    let (whole, _) = definitions.as_chunks::<DEFINITION>();
    for (map, definition) in maps.iter().zip(whole) {
        let [kind, key, value, entries, flags] = fields(definition);
        let fits = (1..=MOST_ENTRIES).contains(&entries);
        if [kind, key, value, flags] != [ARRAY, 4, 8, 0] || !fits {
            return Err(ElfError::Map(map.name.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_maps_at_most() {
        let definitions =
            |count| definitions_of(&vec![0; count * DEFINITION]).map(|maps| maps.len());
        assert!(matches!(definitions(MOST_MAPS), Ok(MOST_MAPS)));
        assert!(matches!(
            definitions(MOST_MAPS + 1),
            Err(ElfError::TooManyMaps(9))
        ));
        assert!(matches!(
            definitions_of(&[0; DEFINITION + 1]),
            Err(ElfError::OddMaps)
        ));
    }
}
