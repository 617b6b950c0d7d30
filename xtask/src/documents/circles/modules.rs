//! The modules of a crate as its sources tell them, and which of them import others beside them. A path counts wherever it stands, in an
//! import or in code; what is compiled for tests alone does not.

use std::collections::BTreeMap;

/// The way from a crate's root to a module, or to an item in one.
pub(super) type Path<'a> = Vec<&'a str>;

/// So many imports may lead from one to the next until the item is there.
const MOST_STEPS: usize = 8;

/// A module imports something of one beside it.
pub(super) struct Import<'a> {
    /// The module above both.
    pub(super) above: Path<'a>,
    /// Both as they are shown: by their files, where they have some.
    pub(super) from: &'a str,
    pub(super) to: &'a str,
    /// What is imported, from `above` on.
    pub(super) item: String,
}

#[derive(Default)]
pub(super) struct Modules<'a> {
    /// How each module is shown.
    shown: BTreeMap<Path<'a>, &'a str>,
    /// Those that are for tests alone.
    tests: Vec<Path<'a>>,
    /// What the names stand for that imports have brought into a module.
    names: BTreeMap<Path<'a>, Path<'a>>,
    /// Each module with a path that stands in it.
    paths: Vec<(Path<'a>, Path<'a>)>,
}

impl<'a> Modules<'a> {
    /// Adds a source file. `file`: its path from the folder `src` on.
    pub(super) fn add(&mut self, file: &'a str, text: &'a str) {
        let mut module: Path<'a> = file.trim_end_matches(".rs").split('/').collect();
        if matches!(module.last().copied(), Some("lib" | "main" | "mod")) {
            module.pop();
        }
        if module.contains(&"tests") {
            return;
        }
        if let Some(&folder) = module.last() {
            let name = file.rsplit('/').next().filter(|name| *name != "mod.rs");
            self.shown.insert(module.clone(), name.unwrap_or(folder));
        }
        let tokens = tokens(text);
        let mut rest = tokens.as_slice();
        // For each brace that is open: the module whose it is, if it is one's.
        let mut braces: Vec<Option<&'a str>> = Vec::new();
        while let [_, after @ ..] = rest {
            rest = match rest {
                ["#", "[", "cfg", "(", "test", ")", ..]
                | ["#", "[", "cfg", "(", "all", "(", "test", ..] => {
                    let behind = behind_item(rest);
                    let item = rest.get(..rest.len() - behind.len());
                    if let Some([.., "mod", name, ";"]) = item {
                        let mut tests = inside(&module, &braces);
                        tests.push(*name);
                        self.tests.push(tests);
                    }
                    behind
                }
                ["mod", name, "{", after @ ..] => {
                    braces.push(Some(*name));
                    self.shown.insert(inside(&module, &braces), *name);
                    after
                }
                ["{", ..] => {
                    braces.push(None);
                    after
                }
                ["}", ..] => {
                    braces.pop();
                    after
                }
                ["use", ..] => self.add_paths(&inside(&module, &braces), true, after),
                [_, "::", ..] => self.add_paths(&inside(&module, &braces), false, rest),
                _ => after,
            };
        }
    }

    /// Adds the paths at the beginning of `tokens`, which stand in `module`: of an import, or one in code. Returns what is behind them.
    fn add_paths<'t>(
        &mut self,
        module: &[&'a str],
        imported: bool,
        tokens: &'t [&'a str],
    ) -> &'t [&'a str] {
        let mut found = Vec::new();
        let behind = paths(tokens, Vec::new(), &mut found);
        for (path, name) in found {
            let path = from_root(module, &path);
            if imported {
                let mut known = module.to_vec();
                known.push(name);
                self.names.insert(known, path.clone());
            }
            self.paths.push((module.to_vec(), path));
        }
        behind
    }

    /// Which modules import which beside them.
    pub(super) fn imports(&self) -> Vec<Import<'a>> {
        let is_test = |module: &Path<'a>| self.tests.iter().any(|test| module.starts_with(test));
        self.paths
            .iter()
            .filter(|(module, _)| !is_test(module))
            .filter_map(|(module, path)| self.import(module, path))
            .collect()
    }

    /// What `path` in the module `from` is. `None` where it leads to no module beside `from`, nor beside one that `from` is in.
    fn import(&self, from: &[&'a str], path: &[&'a str]) -> Option<Import<'a>> {
        let mut path = path.to_vec();
        for _ in 0..MOST_STEPS {
            let ways = from.iter().zip(&path);
            let common = ways.take_while(|(one, other)| one == other).count();
            let beside = path.get(..=common)?;
            if let Some(&to) = self.shown.get(beside) {
                let beside_it = from.get(..=common)?;
                return Some(Import {
                    above: from.get(..common)?.to_vec(),
                    from: self.shown.get(beside_it).copied()?,
                    to,
                    item: path.get(common..)?.join("::"),
                });
            }
            // A name that was imported there may be of a module.
            let mut meant = self.names.get(beside)?.clone();
            meant.extend_from_slice(path.get(common + 1..)?);
            path = meant;
        }
        None
    }
}

/// The module in these open braces of the file of `module`.
fn inside<'a>(module: &[&'a str], braces: &[Option<&'a str>]) -> Path<'a> {
    let braces = braces.iter().flatten();
    module.iter().chain(braces).copied().collect()
}

/// Reads the paths at the beginning of `tokens`, as of an import with its groups: how they go on behind `path`, each with the name that it
/// has from then on. Returns what is behind them.
fn paths<'t, 'a>(
    mut tokens: &'t [&'a str],
    mut path: Path<'a>,
    found: &mut Vec<(Path<'a>, &'a str)>,
) -> &'t [&'a str] {
    loop {
        match tokens {
            ["{", rest @ ..] => {
                tokens = rest;
                while !matches!(tokens, ["}", ..] | []) {
                    tokens = paths(tokens, path.clone(), found);
                    if let [",", rest @ ..] = tokens {
                        tokens = rest;
                    }
                }
                return tokens.get(1..).unwrap_or_default();
            }
            [name, "::", rest @ ..] => {
                path.push(*name);
                tokens = rest;
            }
            [last, rest @ ..] => {
                // `a::{self}`, `a::*` and `a::<T>` are of `a`.
                if last.starts_with(is_of_word) && *last != "self" {
                    path.push(*last);
                }
                let (name, behind) = match rest {
                    ["as", name, behind @ ..] => (Some(*name), behind),
                    _ => (path.last().copied(), rest),
                };
                found.extend(name.map(|name| (path, name)));
                return behind;
            }
            [] => return tokens,
        }
    }
}

/// `path`, which stands in `module`, from the crate's root on.
fn from_root<'a>(module: &[&'a str], path: &[&'a str]) -> Path<'a> {
    let (mut whole, mut rest) = (module.to_vec(), path);
    while let [first, after @ ..] = rest {
        match *first {
            "crate" => whole.clear(),
            "super" => {
                whole.pop();
            }
            "self" => {}
            _ => break,
        }
        rest = after;
    }
    whole.extend_from_slice(rest);
    whole
}

/// What is behind the item at the beginning of `tokens`, and behind its attributes.
fn behind_item<'t, 'a>(mut tokens: &'t [&'a str]) -> &'t [&'a str] {
    let mut depth = 0_usize;
    while let [first, after @ ..] = tokens {
        match *first {
            "(" | "[" | "{" => depth += 1,
            // Of a field: what it is in ends.
            ")" | "]" | "}" if depth == 0 => return tokens,
            "}" if depth == 1 => return after,
            ")" | "]" | "}" => depth -= 1,
            ";" if depth == 0 => return after,
            _ => {}
        }
        tokens = after;
    }
    tokens
}

/// The words and signs of a source, without comments, strings and characters.
fn tokens(mut text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    while let Some(first) = text.chars().next() {
        if let Some(behind) = behind_text(text) {
            text = behind;
            continue;
        }
        let length = if text.starts_with("::") {
            2
        } else if is_of_word(first) {
            let end = text.find(|one: char| !is_of_word(one));
            end.unwrap_or(text.len())
        } else {
            first.len_utf8()
        };
        let (token, behind) = text.split_at(length);
        if !first.is_whitespace() {
            tokens.push(token);
        }
        text = behind;
    }
    tokens
}

fn is_of_word(one: char) -> bool {
    one.is_alphanumeric() || one == '_'
}

/// What is behind the comment, the string or the character at the beginning of `text`. `None` where there is none of them.
fn behind_text(text: &str) -> Option<&str> {
    if text.starts_with("//") {
        return Some(behind_end(text, "\n"));
    }
    if text.starts_with("/*") {
        return Some(behind_end(text, "*/"));
    }
    if let Some(string) = text.strip_prefix('"') {
        return Some(behind_quote(string, '"'));
    }
    if let Some(quoted) = text.strip_prefix('\'') {
        // A lifetime has no second quote.
        let is_character = quoted.starts_with('\\') || quoted.chars().nth(1) == Some('\'');
        return is_character.then(|| behind_quote(quoted, '\''));
    }
    let mut prefixes = ["r", "br", "cr"].into_iter();
    let raw = prefixes.find_map(|prefix| text.strip_prefix(prefix))?;
    let string = raw.trim_start_matches('#').strip_prefix('"')?;
    let signs = raw.len() - string.len() - 1;
    Some(behind_end(string, &format!("\"{}", "#".repeat(signs))))
}

fn behind_end<'a>(text: &'a str, end: &str) -> &'a str {
    text.split_once(end).map_or("", |(_, behind)| behind)
}

/// What is behind the next `quote` that no backslash stands before.
fn behind_quote(text: &str, quote: char) -> &str {
    let mut characters = text.chars();
    while let Some(one) = characters.next() {
        if one == quote {
            break;
        }
        if one == '\\' {
            characters.next();
        }
    }
    characters.as_str()
}
