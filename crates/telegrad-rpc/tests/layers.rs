//! Modules of this crate import only from layers below them.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The top modules of the crate, from bottom to top. A module may name itself and the modules before it.
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

/// Other names at the root of the crate that any module may use.
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
fn upward_imports_are_found_in_any_form() {
    for source in [
        "use crate::world::init;",
        "use crate::{error::Error, world::{self, init}};",
        "use crate::{\n    error::Error,\n    types::{To, WorkerInfo},\n    world,\n};",
        "fn f() { let _ = crate::world::init(\"a\"); }",
        "fn f() -> crate::world::DebugInfo { loop {} }",
        "use super::super::world::init;",
        "mod inner { use super::super::super::world::init; }",
        "fn f() { telegrad_rpc::world::init; }",
        "use super::{super::world, Request};",
        "use crate as root;",
        "fn f(x: super::super::world::DebugInfo) {}",
        // Names at the root hide the module that they are from.
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

/// Returns the names in a module that paths from the root of the crate lead to, and that are not in its layer or below.
fn violations(module: &[&str], source: &str) -> Vec<String> {
    let own = LAYERS.iter().position(|layer| *layer == module[0]).unwrap();
    let is_allowed = |name: &str| ROOT_NAMES.contains(&name) || LAYERS[..=own].contains(&name);
    let mut names = Vec::new();
    collect_root_names(source.parse().unwrap(), module.len(), 0, &mut names);
    names.retain(|name| !is_allowed(name));
    names
}

/// Collects the names that follow the root of the crate in paths.
///
/// `depth` is the number of modules around the tokens; `supers` the number of `super::` before the group that they are from.
fn collect_root_names(tokens: TokenStream, depth: usize, supers: usize, names: &mut Vec<String>) {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let is = |at: Option<usize>, text: &str| {
        let tree = at.and_then(|at| trees.get(at));
        tree.is_some_and(|tree| !matches!(tree, TokenTree::Group(_)) && tree.to_string() == text)
    };
    let is_separator = |at: Option<usize>| is(at, ":") && is(at.map(|at| at + 1), ":");
    let mut at = 0;
    while at < trees.len() {
        let before = at.checked_sub(1);
        let here = Some(at);
        let mut is_root = false;
        if let TokenTree::Group(group) = &trees[at] {
            let is_module = group.delimiter() == Delimiter::Brace && is(at.checked_sub(2), "mod");
            collect_root_names(group.stream(), depth + usize::from(is_module), 0, names);
        } else if is(here, "crate") || is(here, "telegrad_rpc") {
            is_root = !is(before, "$");
        } else if is(here, "super") && !is_separator(at.checked_sub(2)) {
            let is_first = at == 0 || is(before, ",");
            let mut count = 1 + if is_first { supers } else { 0 };
            while is_separator(Some(at + 1)) && is(Some(at + 3), "super") {
                (count, at) = (count + 1, at + 3);
            }
            is_root = count == depth;
            if let Some(TokenTree::Group(group)) = trees.get(at + 3).filter(|_| !is_root)
                && is_separator(Some(at + 1))
            {
                collect_root_names(group.stream(), depth, count, names);
                at += 3;
            }
        }
        at += 1;
        if !is_root {
            continue;
        }
        if is(Some(at), "as") {
            names.push("as".into());
        } else if is_separator(Some(at)) {
            match trees.get(at + 2) {
                Some(TokenTree::Group(group)) => first_names(group, names),
                name => names.extend(name.map(TokenTree::to_string)),
            }
            at += 3;
        }
    }
}

/// Collects the first token of each path in the group of a `use`.
fn first_names(group: &Group, names: &mut Vec<String>) {
    let mut is_start = true;
    for tree in group.stream() {
        let text = tree.to_string();
        let is_comma = text == ",";
        if is_start && !is_comma {
            names.push(text);
        }
        is_start = is_comma;
    }
}
