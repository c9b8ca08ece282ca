//! Modules of this crate import from those below them only.

use std::fs;
use std::path::{Path, PathBuf};

/// The top modules of the crate, from the bottom to the top. A module may name those before it.
const LAYERS: &[&str] = &[
    "error",
    "types",
    "time",
    "exec",
    "context",
    "function",
    "membership",
    "observe",
    "reference",
    "message",
    "link",
    "worker",
    "call",
    "serve",
    "rref",
    "world",
];

/// Names at the root of the crate that are no modules, and that any module may use.
const ROOT_NAMES: &[&str] = &["__sending", "__private"];

#[test]
fn no_module_imports_from_a_higher_layer() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    for file in rust_files(&src) {
        let path = file.strip_prefix(&src).unwrap().with_extension("");
        let module: Vec<&str> = path.iter().map(|part| part.to_str().unwrap()).collect();
        if module == ["lib"] {
            continue;
        }
        assert!(
            LAYERS.contains(&module[0]),
            "`{}` is in no layer: add it to the table",
            module[0]
        );
        let source = fs::read_to_string(&file).unwrap();
        let wrong = violations(&module, &source).into_iter();
        found.extend(wrong.map(|wrong| format!("src/{}.rs: {wrong}", path.display())));
    }
    assert!(
        found.is_empty(),
        "imports from higher layers:\n{}",
        found.join("\n")
    );
}

#[test]
fn the_root_declares_the_modules_in_the_order_of_the_layers() {
    let lib = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let declared: Vec<&str> = lib
        .lines()
        .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'))
        .collect();
    assert_eq!(declared, LAYERS);
}

#[test]
fn upward_imports_are_found_wherever_they_stand() {
    for source in [
        "use crate::world::init;",
        "use crate::{error::Error, world::{self, init}};",
        "use crate::{\n    error::Error,\n    types::{To, WorkerInfo},\n    world,\n};",
        "fn f() { let _ = crate::world::init(\"a\"); }",
        "fn f() -> crate::world::DebugInfo { todo!() }",
        "use super::super::world::init;",
        "mod inner { use super::super::super::world::init; }",
        "fn f() { telegrad_rpc::world::init; }",
        // Names at the root hide where they come from.
        "use crate::World;",
    ] {
        assert_eq!(violations(&["call", "future"], source).len(), 1, "{source}");
    }
    for source in [
        "use crate::worker::World;",
        "use super::Request;",
        "use super::super::link::Call;",
        "mod tests { use super::super::super::link::Call; use super::*; }",
        "// use crate::world::init;\n/* crate::world */ /// [`init`](crate::world::init)",
        "const TEXT: &str = \"crate::world::init\"; const RAW: &str = r#\"crate::world\"#;",
        "pub(crate) fn f<'a>(c: &'a char) -> bool { *c == '\"' || *c == '\\'' }",
    ] {
        assert_eq!(violations(&["call", "future"], source), [""; 0], "{source}");
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The paths in a module that lead to the root of the crate, and from there to a layer above the module's.
fn violations(module: &[&str], source: &str) -> Vec<String> {
    let own = LAYERS.iter().position(|layer| *layer == module[0]).unwrap();
    let is_allowed = |name: &str| ROOT_NAMES.contains(&name) || LAYERS[..=own].contains(&name);
    let tokens = tokens(source);
    let mut names = Vec::new();
    // The inline modules that the token is in, by the depth of their braces.
    let (mut braces, mut inline) = (0_usize, Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        match &*tokens[at] {
            "{" => {
                braces += 1;
                if at >= 2 && tokens[at - 2] == "mod" {
                    inline.push(braces);
                }
            }
            "}" => {
                if inline.last() == Some(&braces) {
                    inline.pop();
                }
                braces -= 1;
            }
            "crate" | "telegrad_rpc" if at == 0 || tokens[at - 1] != "$" => {
                at = root_names(&tokens, at + 1, &mut names);
                continue;
            }
            "super" if at == 0 || tokens[at - 1] != "::" => {
                let mut supers = 1;
                while tokens.get(at + 1).is_some_and(|token| token == "::")
                    && tokens.get(at + 2).is_some_and(|token| token == "super")
                {
                    (supers, at) = (supers + 1, at + 2);
                }
                if supers == module.len() + inline.len() {
                    at = root_names(&tokens, at + 1, &mut names);
                    continue;
                }
            }
            _ => {}
        }
        at += 1;
    }
    names.retain(|name| !is_allowed(name));
    names
}

/// Reads the names that follow the root of the crate: one, or a group of them. Returns where to go on.
fn root_names(tokens: &[String], at: usize, names: &mut Vec<String>) -> usize {
    if tokens.get(at).is_none_or(|token| token != "::") {
        return at;
    }
    let Some(first) = tokens.get(at + 1) else {
        return at + 1;
    };
    if first != "{" {
        names.push(first.clone());
        return at + 2;
    }
    let (mut depth, mut at) = (1, at + 2);
    let mut is_start = true;
    while depth > 0 && at < tokens.len() {
        match &*tokens[at] {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," => is_start = depth == 1,
            name => {
                if is_start {
                    names.push(name.to_owned());
                }
                is_start = false;
            }
        }
        at += 1;
    }
    at
}

/// Splits a source into identifiers, `::` and single characters, without comments and literals.
fn tokens(source: &str) -> Vec<String> {
    let chars: Vec<char> = source.chars().collect();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        at += match rest {
            ['/', '/', ..] => length_until(rest, &['\n']),
            ['/', '*', ..] => length_until(rest, &['*', '/']),
            ['"', ..] => string_length(rest),
            ['r', '"' | '#', ..] if raw_string_length(rest).is_some() => raw_string_length(rest).unwrap(),
            ['\'', '\\', _, ..] => 3 + length_until(&rest[3..], &['\'']),
            ['\'', _, '\'', ..] => 3,
            [':', ':', ..] => {
                tokens.push("::".to_owned());
                2
            }
            [c, ..] if is_word(*c) => {
                let word: String = rest.iter().take_while(|c| is_word(**c)).collect();
                let length = word.chars().count();
                tokens.push(word);
                length
            }
            [c, ..] => {
                if !c.is_whitespace() {
                    tokens.push(c.to_string());
                }
                1
            }
            [] => break,
        };
    }
    tokens
}

/// The length up to the end of `end`.
fn length_until(rest: &[char], end: &[char]) -> usize {
    let found = rest.windows(end.len()).position(|window| window == end);
    found.map_or(rest.len(), |found| found + end.len())
}

fn string_length(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != '"' {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

fn raw_string_length(rest: &[char]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return None;
    }
    let mut end = vec!['"'];
    end.extend(std::iter::repeat_n('#', hashes));
    let start = 2 + hashes;
    Some(start + length_until(&rest[start..], &end))
}
