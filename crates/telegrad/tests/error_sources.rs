//! An error either prints what caused it or returns that from `source()`, not both.
//!
//! This reads the source of every error type of the workspace. The tests of `telegrad-error` look at values.

use std::path::{Path, PathBuf};

use syn::{Attribute, Fields, Item, Meta};

#[test]
fn no_error_prints_its_source_and_returns_it() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for folder in std::fs::read_dir(crates).unwrap() {
        rust_files(&folder.unwrap().path().join("src"), &mut files);
    }
    let mut found = Found::default();
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        found.items(&file.display().to_string(), &syntax.items);
    }
    assert!(
        found.errors > 10,
        "only {} error types in {} files",
        found.errors,
        files.len()
    );
    assert!(found.problems.is_empty(), "\n{}", found.problems.join("\n"));
}

#[test]
fn a_source_that_is_printed_is_found_in_every_form() {
    let both = [
        "#[error(\"no: {source}\")] A { source: B }",
        "#[error(\"no: {source:?}\")] A { source: B }",
        "#[error(\"no: {}\", reason(source))] A { source: B }",
        "#[error(\"no: {cause}\")] A { #[source] cause: B }",
        "#[error(\"no: {0}\")] A(#[from] B)",
        "#[error(\"no: {1}\")] A(u8, #[source] B)",
        "#[error(\"no: {}\", .0.text())] A(#[source] B)",
    ];
    let one = [
        "#[error(transparent)] A(#[from] B)",
        "#[error(\"no: {source}\")] A { r#source: B }",
        "#[error(\"no: {0}\")] A(B)",
        "#[error(\"no\")] A { source: B }",
        "#[error(\"no: {0}\")] A(u8, #[source] B)",
        "#[error(\"no\")] A",
    ];
    let problems = |variant: &str| {
        let text = format!("#[derive(Debug, Error)] enum E {{ {variant} }}");
        let mut found = Found::default();
        found.items("e.rs", &syn::parse_file(&text).unwrap().items);
        assert_eq!(found.errors, 1);
        found.problems
    };
    for variant in both {
        assert_eq!(
            problems(variant),
            ["e.rs: `E::A` prints its source and returns it"],
            "{variant}"
        );
    }
    for variant in one {
        assert!(problems(variant).is_empty(), "{variant}");
    }
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

#[derive(Default)]
struct Found {
    /// How many types derive `Error`.
    errors: usize,
    problems: Vec<String>,
}

impl Found {
    fn items(&mut self, file: &str, items: &[Item]) {
        for item in items {
            match item {
                Item::Mod(module) => {
                    let items = module.content.as_ref().map(|(_, items)| items.as_slice());
                    self.items(file, items.unwrap_or_default());
                }
                Item::Enum(error) if derives_error(&error.attrs) => {
                    self.errors += 1;
                    for variant in &error.variants {
                        let name = format!("{}::{}", error.ident, variant.ident);
                        self.check(file, &name, &variant.attrs, &variant.fields);
                    }
                }
                Item::Struct(error) if derives_error(&error.attrs) => {
                    self.errors += 1;
                    self.check(file, &error.ident.to_string(), &error.attrs, &error.fields);
                }
                _ => {}
            }
        }
    }

    fn check(&mut self, file: &str, name: &str, attributes: &[Attribute], fields: &Fields) {
        let Some(shown) = attributes
            .iter()
            .find(|attribute| attribute.path().is_ident("error"))
        else {
            return;
        };
        let Meta::List(shown) = &shown.meta else { return };
        let text = shown.tokens.to_string();
        for (position, field) in fields.iter().enumerate() {
            let is_marked = |attribute: &Attribute| {
                attribute.path().is_ident("source") || attribute.path().is_ident("from")
            };
            let named = field.ident.as_ref().map(ToString::to_string);
            let is_source = field.attrs.iter().any(is_marked) || named.as_deref() == Some("source");
            let shown_as = named.unwrap_or_else(|| position.to_string());
            if is_source && words(&text).any(|word| word == shown_as) {
                self.problems
                    .push(format!("{file}: `{name}` prints its source and returns it"));
            }
        }
    }
}

fn derives_error(attributes: &[Attribute]) -> bool {
    let derives = attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("derive"));
    let lists = derives.filter_map(|attribute| match &attribute.meta {
        Meta::List(list) => Some(list.tokens.to_string()),
        _ => None,
    });
    lists
        .into_iter()
        .any(|list| words(&list).any(|word| word == "Error"))
}

/// The names and numbers in a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}
