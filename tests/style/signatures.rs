//! Limits on functions and types: parameters, lengths, names and shadowed names.

use std::collections::BTreeMap;

use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{
    Block, FnArg, Ident, ImplItemFn, ItemEnum, ItemFn, ItemImpl, ItemStruct, ItemTrait, ItemType,
    Pat, Signature, Stmt, TraitItemFn, Type,
};

use crate::sources::{self, assert_few, is_for_tests};

const PARAMETERS_MAX: usize = 4;
const FUNCTION_LINES_MAX: usize = 70;
const SHADOWED_MAX: usize = 10;

/// Names that more than one module may define: callers write the module first
/// (`egress::Options`).
const SHARED_NAMES: [&str; 3] = ["Options", "Error", "Kind"];

/// Names of std's prelude; a type with one of these names would hide it.
const PRELUDE: [&str; 31] = [
    "AsMut",
    "AsRef",
    "Box",
    "Clone",
    "Copy",
    "Default",
    "DoubleEndedIterator",
    "Drop",
    "Eq",
    "Err",
    "ExactSizeIterator",
    "Extend",
    "Fn",
    "FnMut",
    "FnOnce",
    "From",
    "FromIterator",
    "Into",
    "IntoIterator",
    "Iterator",
    "Ok",
    "Option",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "Result",
    "Send",
    "String",
    "Sync",
    "ToString",
    "Vec",
];

/// Findings of one pass over a file.
#[derive(Default)]
struct Findings {
    tuples: Vec<String>,
    long_lists: Vec<String>,
    long_functions: Vec<String>,
    shadowed: Vec<String>,
    types: Vec<String>,
    /// Whether the visited functions implement a trait, which fixes their signatures.
    is_in_trait_impl: bool,
}

impl Findings {
    fn signature(&mut self, signature: &Signature) {
        let typed = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(typed) => Some(&*typed.ty),
            FnArg::Receiver(_) => None,
        });
        if typed.clone().count() > PARAMETERS_MAX {
            self.long_lists.push(signature.ident.to_string());
        }
        if typed.clone().any(is_tuple) {
            self.tuples.push(signature.ident.to_string());
        }
    }

    fn body(&mut self, name: &Ident, block: &Block) {
        let span = block.span();
        let lines = span.end().line - span.start().line + 1;
        if lines > FUNCTION_LINES_MAX {
            self.long_functions.push(format!("{name} ({lines})"));
        }
    }
}

fn is_tuple(kind: &Type) -> bool {
    match kind {
        Type::Reference(reference) => is_tuple(&reference.elem),
        Type::Tuple(tuple) => !tuple.elems.is_empty(),
        _ => false,
    }
}

fn bound_name(statement: &Stmt) -> Option<&Ident> {
    let Stmt::Local(local) = statement else {
        return None;
    };
    match &local.pat {
        Pat::Ident(name) => Some(&name.ident),
        Pat::Type(typed) => match &*typed.pat {
            Pat::Ident(name) => Some(&name.ident),
            _ => None,
        },
        _ => None,
    }
}

impl<'a> Visit<'a> for Findings {
    fn visit_item_fn(&mut self, item: &'a ItemFn) {
        if !is_for_tests(&item.attrs) {
            self.signature(&item.sig);
            self.body(&item.sig.ident, &item.block);
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'a ItemImpl) {
        let outer = std::mem::replace(&mut self.is_in_trait_impl, item.trait_.is_some());
        visit::visit_item_impl(self, item);
        self.is_in_trait_impl = outer;
    }

    fn visit_impl_item_fn(&mut self, item: &'a ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            if !self.is_in_trait_impl {
                self.signature(&item.sig);
            }
            self.body(&item.sig.ident, &item.block);
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'a TraitItemFn) {
        self.signature(&item.sig);
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_block(&mut self, block: &'a Block) {
        for pair in block.stmts.windows(2) {
            if let Some(name) = bound_name(&pair[1])
                && bound_name(&pair[0]) == Some(name)
            {
                self.shadowed.push(name.to_string());
            }
        }
        visit::visit_block(self, block);
    }

    fn visit_item_struct(&mut self, item: &'a ItemStruct) {
        self.types.push(item.ident.to_string());
    }

    fn visit_item_enum(&mut self, item: &'a ItemEnum) {
        self.types.push(item.ident.to_string());
    }

    fn visit_item_trait(&mut self, item: &'a ItemTrait) {
        self.types.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'a ItemType) {
        self.types.push(item.ident.to_string());
    }
}

/// Returns the findings of each file, by its path.
fn findings() -> BTreeMap<String, Findings> {
    let files = sources::all().into_iter().map(|file| {
        let mut findings = Findings::default();
        for item in &file.items() {
            findings.visit_item(item);
        }
        (file.path, findings)
    });
    files.collect()
}

/// Returns a line with path and name for each finding that `pick` selects.
fn places(pick: fn(&Findings) -> &Vec<String>) -> Vec<String> {
    let mut places = Vec::new();
    for (path, found) in &findings() {
        places.extend(pick(found).iter().map(|name| format!("{path}: {name}")));
    }
    places
}

#[test]
fn no_parameter_is_a_tuple() {
    let places = places(|found| &found.tuples);
    assert_few(&places, 0);
}

#[test]
fn no_function_takes_more_than_four_parameters() {
    let places = places(|found| &found.long_lists);
    assert_few(&places, 0);
}

#[test]
fn no_function_has_more_than_seventy_lines() {
    let places = places(|found| &found.long_functions);
    assert_few(&places, 0);
}

#[test]
fn few_names_are_bound_twice_in_a_row() {
    let places = places(|found| &found.shadowed);
    assert_few(&places, SHADOWED_MAX);
}

#[test]
fn a_type_name_is_used_in_one_module_and_hides_no_prelude_name() {
    let mut modules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, found) in findings() {
        for name in found.types {
            modules.entry(name).or_default().push(path.clone());
        }
    }
    let wrong: Vec<String> = modules
        .iter()
        .filter(|(name, paths)| {
            let twice = paths.len() > 1 && !SHARED_NAMES.contains(&&***name);
            twice || PRELUDE.contains(&&***name)
        })
        .map(|(name, paths)| format!("{name}: {}", paths.join(", ")))
        .collect();
    assert_few(&wrong, 0);
}
