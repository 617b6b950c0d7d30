//! Modules beside each other import one way, as crates do: none of them imports one by which it is imported, directly or by others.

mod modules;

use crate::shell;
use anyhow::{Context, Result, bail};
use modules::{Modules, Path};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;

/// What each module imports of those beside it: of each an item.
type Graph<'a> = BTreeMap<&'a str, BTreeMap<&'a str, String>>;

/// Fails where modules of a crate import each other. Looks at all sources that are there, those among them that are in no commit yet.
pub(super) fn check() -> Result<()> {
    let mut command = shell::command("git");
    command.args(["ls-files", "--cached", "--others"]);
    command.args(["--exclude-standard", "*/src/*.rs"]);
    let listed = shell::output(&mut command)?;
    let mut crates: BTreeMap<&str, BTreeMap<&str, String>> = BTreeMap::new();
    for path in listed.lines() {
        let place = shell::root().join(path);
        let Some((folder, file)) = path.split_once("/src/").filter(|_| place.exists()) else {
            continue;
        };
        let text = fs::read_to_string(place).with_context(|| format!("cannot read {path}"))?;
        crates.entry(folder).or_default().insert(file, text);
    }
    let found: Vec<_> = crates
        .iter()
        .flat_map(|(folder, files)| circles(folder, files))
        .collect();
    if !found.is_empty() {
        bail!(
            "modules import each other; what several need belongs in one below them:\n{}",
            found.join("\n")
        );
    }
    println!("modules import one way in {} crates", crates.len());
    Ok(())
}

/// The circles of a crate's modules, a line each. `files`: by their paths from the folder `src` on.
fn circles(folder: &str, files: &BTreeMap<&str, String>) -> Vec<String> {
    let mut modules = Modules::default();
    for (file, text) in files {
        modules.add(file, text);
    }
    let mut graphs: BTreeMap<Path<'_>, Graph<'_>> = BTreeMap::new();
    for import in modules.imports() {
        let graph = graphs.entry(import.above).or_default();
        let imports = graph.entry(import.from).or_default();
        imports.entry(import.to).or_insert(import.item);
    }
    let mut lines = Vec::new();
    for (above, graph) in &graphs {
        let way = [folder, "src"].into_iter().chain(above.iter().copied());
        let place = way.collect::<Vec<_>>().join("/");
        let starts = graph.keys();
        let found: BTreeSet<_> = starts.filter_map(|one| shortest(graph, one)).collect();
        for circle in &found {
            lines.push(format!("{place}: {}", told(graph, circle)));
        }
    }
    lines
}

/// The shortest circle in which `start` is: each imports the next, the last the first. The least name is the first, wherever one starts.
fn shortest<'a>(graph: &Graph<'a>, start: &'a str) -> Option<Vec<&'a str>> {
    let mut seen = BTreeSet::new();
    let mut ways = VecDeque::from([vec![start]]);
    while let Some(mut way) = ways.pop_front() {
        let imports = way.last().and_then(|last| graph.get(last));
        for &next in imports.into_iter().flat_map(BTreeMap::keys) {
            if next == start {
                let first = way.iter().enumerate().min_by_key(|(_, module)| **module);
                let first = first.map_or(0, |(at, _)| at);
                way.rotate_left(first);
                return Some(way);
            }
            if seen.insert(next) {
                let mut longer = way.clone();
                longer.push(next);
                ways.push_back(longer);
            }
        }
    }
    None
}

/// A circle in words, with what each of its modules imports of the next.
fn told(graph: &Graph<'_>, circle: &[&str]) -> String {
    let next = circle.iter().cycle().skip(1);
    let items: Vec<_> = circle
        .iter()
        .zip(next)
        .filter_map(|(from, to)| graph.get(from)?.get(to))
        .map(String::as_str)
        .collect();
    let Some((last, others)) = circle.split_last() else {
        return String::new();
    };
    let (others, items) = (others.join(", "), items.join(", "));
    format!("{others} and {last} import each other ({items})")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The circles of a crate of these files.
    fn of(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|&(file, text)| (file, text.to_owned()));
        circles("crates/x", &files.collect())
    }

    /// Of `a.rs` and `b.rs`, the second of which imports the first.
    fn of_two(a: &str) -> Vec<String> {
        of(&[
            ("lib.rs", "pub use b::B;\npub const C: u8 = 0;\n"),
            ("a.rs", a),
            ("b.rs", "use crate::a::A;\npub struct B(A);\n"),
        ])
    }

    fn circle(item: &str) -> String {
        format!("crates/x/src: a.rs and b.rs import each other ({item}, a::A)")
    }

    #[test]
    fn imports_one_way_are_no_circle() {
        assert_eq!(of_two("pub struct A;\n"), [""; 0]);
        let files = [
            ("main.rs", "mod a;\nmod b;\nuse a::A;\n"),
            ("a.rs", "use inner::I;\nuse crate::{b::B, c::C};\n"),
            ("a/inner.rs", "use super::I;\nuse crate::b::B;\n"),
            ("b.rs", "use super::c::C;\n"),
            ("c.rs", "use std::fmt;\n"),
        ];
        assert_eq!(of(&files), [""; 0]);
    }

    #[test]
    fn two_that_import_each_other_are_told() {
        assert_eq!(of_two("use crate::b::B;\n"), [circle("b::B")]);
        assert_eq!(of_two("use super::b::B as Other;\n"), [circle("b::B")]);
        assert_eq!(of_two("use super::b;\n"), [circle("b")]);
        assert_eq!(of_two("use super::b::*;\n"), [circle("b")]);
    }

    #[test]
    fn three_in_a_circle_are_told_once() {
        let files = [
            ("a.rs", "mod deep;\n"),
            ("a/deep/below.rs", "use crate::b::B;\n"),
            ("b.rs", "use crate::c::C;\nuse crate::d::D;\n"),
            ("c.rs", "use super::a::A;\n"),
            ("d.rs", ""),
        ];
        let told = "crates/x/src: a.rs, b.rs and c.rs import each other (b::B, c::C, a::A)";
        assert_eq!(of(&files), [told]);
    }

    #[test]
    fn modules_below_another_have_circles_too() {
        let files = [
            ("a/mod.rs", "mod b;\nmod c;\n"),
            ("a/b/mod.rs", "use super::c::C;\n"),
            ("a/c.rs", "use crate::a::b::B;\nmod d;\n"),
            ("a/c/d.rs", "mod e {\nuse super::super::super::b::B;\n}\n"),
        ];
        let told = "crates/x/src/a: b and c.rs import each other (c::C, b::B)";
        assert_eq!(of(&files), [told]);
    }

    #[test]
    fn groups_are_read() {
        assert_eq!(of_two("use crate::{C, b::B};\n"), [circle("b::B")]);
        assert_eq!(
            of_two("use {std::{io::{self, Read as _}}, crate::{b::{self, B}, C}};\n"),
            [circle("b")]
        );
        assert_eq!(of_two("use crate::{C, z::{X, b::B}};\n"), [""; 0]);
    }

    #[test]
    fn a_path_in_code_counts() {
        assert_eq!(
            of_two("fn f() -> u8 {\n    crate::b::g::<u8>(1) as u8\n}\n"),
            [circle("b::g")]
        );
        assert_eq!(
            of_two("fn f<'a>(x: &'a super::b::B) -> char { 'a' }\n"),
            [circle("b::B")]
        );
    }

    #[test]
    fn what_only_looks_like_an_import_does_not() {
        for text in [
            "// use crate::b::B;\n",
            "//! [`crate::b::B`]\n/* use crate::b::B; */\n",
            "const A: &str = \"\\\"use crate::b::B;\";\n",
            "const A: &str = r#\"\"; use crate::b::B;\"#;\n",
            "const A: [u8; 2] = [b'\"', b'\\'']; // ' use crate::b::B;\nconst B: char = '\"';\n",
        ] {
            assert_eq!(of_two(text), [""; 0], "{text}");
        }
        // And what follows such text is read.
        assert_eq!(
            of_two("const A: [u8; 2] = [b'\"', b'\\''];\nuse crate::b::B;\n"),
            [circle("b::B")]
        );
    }

    #[test]
    fn an_item_of_the_module_above_counts_where_it_is_of_a_module_beside() {
        assert_eq!(of_two("use crate::C;\nuse super::D;\n"), [""; 0]);
        assert_eq!(of_two("use crate::B;\n"), [circle("b::B")]);
    }

    #[test]
    fn what_is_for_tests_alone_does_not_count() {
        for text in [
            "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n",
            "#[cfg(test)]\n#[allow(dead_code)]\nuse crate::{C, b::B};\npub struct A;\n",
            "#[cfg(all(test, not(loom)))]\nfn f(x: [u8; 2]) {\n    crate::b::g();\n}\n",
        ] {
            assert_eq!(of_two(text), [""; 0], "{text}");
            let text = format!("{text}use crate::b::B;\n");
            assert_eq!(of_two(&text), [circle("b::B")], "{text}");
        }
        let files = [
            ("lib.rs", "#[cfg(test)]\nmod kit;\nmod a;\n"),
            ("kit.rs", "use crate::a::A;\n"),
            ("kit/part.rs", "use crate::a::A;\n"),
            ("a.rs", "#[cfg(test)]\nmod tests;\nmod b;\n"),
            ("a/tests.rs", "use super::b::B;\nuse crate::kit::K;\n"),
            ("a/b.rs", "#[cfg(test)]\nuse crate::kit::K;\n"),
        ];
        assert_eq!(of(&files), [""; 0]);
        // What also others have is no test's.
        assert_eq!(
            of_two("#[cfg(any(test, feature = \"fuzzing\"))]\nuse crate::b::B;\n"),
            [circle("b::B")]
        );
    }
}
