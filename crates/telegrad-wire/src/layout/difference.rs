//! Comparison of layouts: finds and describes the first difference.

use std::collections::HashSet;

use super::table::Table;
use super::text::quoted;
use super::{Fields, Layout, Signature, TypeNumber};

/// Largest number of pairs of types in one comparison. Far more than any program has; bounds the time that a hostile table
/// can cost.
const MAX_PAIRS: usize = 1 << 20;

/// A pair of types: ours and theirs.
type Pair = (TypeNumber, TypeNumber);

/// Comparison of two tables. Types are equal unless a difference is found, so recursive types terminate.
pub(super) struct Comparison<'a> {
    ours: &'a Table,
    theirs: &'a Table,
    /// Pairs already found equal.
    equal: HashSet<Pair>,
    /// Number of pairs that may still be compared.
    budget: usize,
}

/// One step from a type into one of its components.
#[derive(Clone, Copy)]
enum Step<'a> {
    Argument(usize, Option<&'a str>),
    Result,
    Variant(&'a str),
    Field(&'a str),
    Position(&'static str, usize),
    Each(&'static str),
}

/// Path from the root to a type: the index of its last step in [`Walk::steps`], which links to the one before.
type PathIndex = Option<usize>;

impl<'a> Comparison<'a> {
    pub(super) fn new(ours: &'a Table, theirs: &'a Table) -> Self {
        Self {
            ours,
            theirs,
            equal: HashSet::new(),
            budget: MAX_PAIRS,
        }
    }

    /// The first difference between two types.
    pub(super) fn of_types(&mut self, ours: TypeNumber, theirs: TypeNumber) -> Option<String> {
        self.of(Walk::new(vec![((ours, theirs), None)], Vec::new()))
    }

    /// The first difference between two signatures; `parameters` are the names of the parameters here.
    pub(super) fn of_signatures(
        &mut self,
        ours: &Signature,
        theirs: &Signature,
        parameters: &'a [&'a str],
    ) -> Option<String> {
        if ours.is_method != theirs.is_method {
            let text = |is_method| if is_method { "a method" } else { "a function" };
            return Some(format!(
                "it is {} there and {} here",
                text(theirs.is_method),
                text(ours.is_method)
            ));
        }
        let [mine, other] = [
            self.ours.elements(ours.arguments),
            self.theirs.elements(theirs.arguments),
        ];
        if mine.len() != other.len() {
            return Some(format!(
                "it takes {} there and {} here",
                count(other.len(), "argument"),
                count(mine.len(), "argument")
            ));
        }
        let mut walk = Walk::default();
        let arguments = mine.iter().zip(other).enumerate();
        walk.enter(
            None,
            arguments
                .map(|(i, (mine, other))| (Step::Argument(i, parameters.get(i).copied()), (*mine, *other))),
        );
        if let Some(difference) = self.of(walk) {
            return Some(difference);
        }
        let unsendable = "a value that cannot be sent";
        match (ours.value, theirs.value) {
            (None, None) => None,
            (Some(mine), Some(other)) => {
                let mut walk = Walk::default();
                walk.enter(None, [(Step::Result, (mine, other))]);
                self.of(walk)
            }
            (Some(mine), None) => Some(format!(
                "result: {unsendable} there, {} here",
                self.ours.text(mine)
            )),
            (None, Some(other)) => Some(format!(
                "result: {} there, {unsendable} here",
                self.theirs.text(other)
            )),
        }
    }

    fn of(&mut self, mut walk: Walk<'a>) -> Option<String> {
        let mut seen = HashSet::new();
        while let Some((pair, path)) = walk.open.pop() {
            if self.equal.contains(&pair) || !seen.insert(pair) {
                continue;
            }
            if self.budget == 0 {
                return Some("it has too many types to compare".into());
            }
            self.budget -= 1;
            if let Err(difference) = self.enter(pair, path, &mut walk) {
                return Some(walk.describe(path, &difference));
            }
        }
        self.equal.extend(seen);
        None
    }

    /// Compares two types without their components, which are added to the walk.
    fn enter(&self, pair: Pair, path: PathIndex, walk: &mut Walk<'a>) -> Result<(), String> {
        let (ours, theirs) = (&self.ours.0[pair.0.index()], &self.theirs.0[pair.1.index()]);
        match (ours, theirs) {
            (Layout::Named(mine), Layout::Named(other)) if mine == other => {}
            (Layout::Struct(mine, fields), Layout::Struct(other, others)) if mine == other => {
                walk.enter_fields(path, mine, fields, others)?;
            }
            (Layout::Enum(mine, variants), Layout::Enum(other, others)) if mine == other => {
                same_names(mine, "variant", names(variants), names(others))?;
                for ((variant, fields), (_, others)) in variants.iter().zip(others).rev() {
                    let path = walk.step(path, Step::Variant(variant));
                    walk.enter_fields(path, &format!("{mine}::{variant}"), fields, others)?;
                }
            }
            (Layout::Tuple(mine), Layout::Tuple(other)) if mine.len() == other.len() => {
                walk.enter_positions(path, "element", mine, other);
            }
            (Layout::Array(mine, len), Layout::Array(other, others)) if len == others => {
                walk.enter(path, [(Step::Each("elements"), (*mine, *other))]);
            }
            (Layout::List(mine), Layout::List(other)) | (Layout::Set(mine), Layout::Set(other)) => {
                walk.enter(path, [(Step::Each("elements"), (*mine, *other))]);
            }
            (Layout::Map(key, value), Layout::Map(other_key, other_value)) => walk.enter(
                path,
                [
                    (Step::Each("keys"), (*key, *other_key)),
                    (Step::Each("values"), (*value, *other_value)),
                ],
            ),
            (Layout::Option(mine), Layout::Option(other)) => walk.open.push(((*mine, *other), path)),
            _ => {
                return Err(format!(
                    "{} there, {} here",
                    self.theirs.text(pair.1),
                    self.ours.text(pair.0)
                ));
            }
        }
        Ok(())
    }
}

impl Table {
    /// The elements of a tuple.
    fn elements(&self, number: TypeNumber) -> &[TypeNumber] {
        match &self.0[number.index()] {
            Layout::Tuple(elements) => elements,
            _ => &[],
        }
    }
}

/// Depth-first walk through two tables. A list instead of recursion, whose depth a peer could choose.
#[derive(Default)]
struct Walk<'a> {
    /// Pairs that remain to be compared, the next one last.
    open: Vec<(Pair, PathIndex)>,
    steps: Vec<(PathIndex, Step<'a>)>,
}

impl<'a> Walk<'a> {
    fn new(open: Vec<(Pair, PathIndex)>, steps: Vec<(PathIndex, Step<'a>)>) -> Self {
        Self { open, steps }
    }

    fn step(&mut self, from: PathIndex, step: Step<'a>) -> PathIndex {
        self.steps.push((from, step));
        Some(self.steps.len() - 1)
    }

    /// Adds components of the types at `path`; the first one is compared next.
    fn enter<I>(&mut self, path: PathIndex, parts: I)
    where
        I: IntoIterator<Item = (Step<'a>, Pair), IntoIter: DoubleEndedIterator>,
    {
        for (step, pair) in parts.into_iter().rev() {
            let path = self.step(path, step);
            self.open.push((pair, path));
        }
    }

    fn enter_positions(
        &mut self,
        path: PathIndex,
        what: &'static str,
        ours: &[TypeNumber],
        theirs: &[TypeNumber],
    ) {
        let pairs = ours.iter().copied().zip(theirs.iter().copied()).enumerate();
        let parts: Vec<_> = pairs.map(|(i, pair)| (Step::Position(what, i), pair)).collect();
        self.enter(path, parts);
    }

    /// Adds the fields of the struct or variant `of`.
    fn enter_fields(
        &mut self,
        path: PathIndex,
        of: &str,
        ours: &'a Fields,
        theirs: &'a Fields,
    ) -> Result<(), String> {
        match (ours, theirs) {
            (Fields::Unit, Fields::Unit) => {}
            (Fields::Unnamed(ours), Fields::Unnamed(theirs)) if ours.len() == theirs.len() => {
                self.enter_positions(path, "field", ours, theirs);
            }
            (Fields::Named(ours), Fields::Named(theirs)) => {
                same_names(of, "field", names(ours), names(theirs))?;
                let pairs = ours.iter().zip(theirs);
                let parts: Vec<_> = pairs
                    .map(|((name, mine), (_, other))| (Step::Field(name), (*mine, *other)))
                    .collect();
                self.enter(path, parts);
            }
            _ => {
                let (of, theirs, ours) = (quoted(of), number_of(theirs), number_of(ours));
                return Err(format!("{of} has {theirs} there and {ours} here"));
            }
        }
        Ok(())
    }

    fn describe(&self, path: PathIndex, difference: &str) -> String {
        let steps = std::iter::successors(path, |&at| self.steps[at].0);
        let mut steps: Vec<_> = steps.map(|at| self.steps[at].1.text()).collect();
        steps.reverse();
        // A path through recursive types can be of any length.
        const SHOWN: usize = 16;
        if steps.len() > SHOWN {
            steps.splice(SHOWN / 2..steps.len() - SHOWN / 2, ["…".into()]);
        }
        match steps.is_empty() {
            true => difference.into(),
            false => format!("{}: {difference}", steps.join(", ")),
        }
    }
}

impl Step<'_> {
    fn text(self) -> String {
        match self {
            Self::Argument(i, None) => format!("argument {}", i + 1),
            Self::Argument(i, Some(name)) => format!("argument {} ({})", i + 1, quoted(name)),
            Self::Result => "result".into(),
            Self::Variant(name) => format!("variant {}", quoted(name)),
            Self::Field(name) => format!("field {}", quoted(name)),
            Self::Position(what, i) => format!("{what} {i}"),
            Self::Each(what) => what.into(),
        }
    }
}

fn names<T>(list: &[(super::Name, T)]) -> impl ExactSizeIterator<Item = &str> {
    list.iter().map(|(name, _)| &**name)
}

/// Compares the names of the fields or variants of `of`, and their order.
fn same_names<'n>(
    of: &str,
    what: &str,
    mut ours: impl Iterator<Item = &'n str>,
    mut theirs: impl Iterator<Item = &'n str>,
) -> Result<(), String> {
    let of = quoted(of);
    for i in 0.. {
        return Err(match (ours.next(), theirs.next()) {
            (None, None) => break,
            (Some(mine), Some(other)) if mine == other => continue,
            (Some(mine), Some(other)) => format!(
                "{what} {i} of {of} is {} there and {} here",
                quoted(other),
                quoted(mine)
            ),
            (Some(mine), None) => format!("{of} has {what} {} here and not there", quoted(mine)),
            (None, Some(other)) => format!("{of} has {what} {} there and not here", quoted(other)),
        });
    }
    Ok(())
}

fn number_of(fields: &Fields) -> String {
    match fields {
        Fields::Unit => "no fields".into(),
        Fields::Unnamed(types) => count(types.len(), "unnamed field"),
        Fields::Named(fields) => count(fields.len(), "named field"),
    }
}

fn count(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}
