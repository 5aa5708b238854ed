//! Dependencies between files: no two files use each other, directly or through others,
//! and a layer uses only the layers below it.
//!
//! A file uses another if it imports an item defined there or names it by a path. An item
//! re-exported by `pub use` belongs to the file that defines it, so a `mod.rs` that lists
//! its files does not form a cycle with them.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Item, ItemUse, Path, UseTree, Visibility};

use crate::sources::{self, SourceFile, assert_few};

type ModulePath = Vec<String>;

/// One name that a `use` brings into a module.
struct Import {
    name: String,
    target: ModulePath,
    passed_on: bool,
}

/// Imports and paths of one file.
struct Names {
    imports: Vec<Import>,
    paths: BTreeSet<ModulePath>,
}

impl Names {
    fn of(file: &SourceFile) -> Self {
        let mut names = Self {
            imports: Vec::new(),
            paths: BTreeSet::new(),
        };
        for item in &file.items() {
            names.visit_item(item);
        }
        names
    }

    fn add(&mut self, tree: &UseTree, before: &ModulePath, passed_on: bool) {
        let mut target = before.clone();
        match tree {
            UseTree::Path(path) => {
                target.push(path.ident.to_string());
                self.add(&path.tree, &target, passed_on);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add(tree, before, passed_on);
                }
            }
            UseTree::Name(name) => {
                if name.ident != "self" {
                    target.push(name.ident.to_string());
                }
                let name = target.last().cloned().unwrap_or_default();
                self.imports.push(Import {
                    name,
                    target,
                    passed_on,
                });
            }
            UseTree::Rename(rename) => {
                target.push(rename.ident.to_string());
                let name = rename.rename.to_string();
                self.imports.push(Import {
                    name,
                    target,
                    passed_on,
                });
            }
            UseTree::Glob(_) => self.imports.push(Import {
                name: "*".to_owned(),
                target,
                passed_on,
            }),
        }
    }
}

impl<'a> Visit<'a> for Names {
    fn visit_item_use(&mut self, item: &'a ItemUse) {
        let passed_on = !matches!(item.vis, Visibility::Inherited);
        self.add(&item.tree, &Vec::new(), passed_on);
    }

    fn visit_path(&mut self, path: &'a Path) {
        let names = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        self.paths.insert(names.collect());
        visit::visit_path(self, path);
    }

    fn visit_item(&mut self, item: &'a Item) {
        let is_test = matches!(item, Item::Mod(module) if sources::is_for_tests(&module.attrs));
        if !is_test {
            visit::visit_item(self, item);
        }
    }
}

/// The modules of the workspace and what each of them imports.
struct Tree {
    modules: BTreeMap<ModulePath, Names>,
}

impl Tree {
    fn new(files: &[SourceFile]) -> Self {
        let modules = files
            .iter()
            .map(|file| (file.module.clone(), Names::of(file)));
        Self {
            modules: modules.collect(),
        }
    }

    /// Returns `path` from the crate's root, or `None` if it leads into another crate.
    fn absolute(&self, module: &ModulePath, path: &[String]) -> Option<ModulePath> {
        let first = path.first()?;
        let mut base = module.clone();
        let mut rest = path;
        match &**first {
            "crate" => {
                base.truncate(1);
                rest = &path[1..];
            }
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|name| name == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            _ => {
                let mut child = module.clone();
                child.push(first.clone());
                let is_child = self.modules.contains_key(&child);
                let is_import = || {
                    let imports = &self.modules[module].imports;
                    imports.iter().any(|import| import.name == *first)
                };
                if !is_child && !is_import() {
                    return None;
                }
            }
        }
        base.extend_from_slice(rest);
        Some(base)
    }

    /// Returns the module of the file that defines the item at `path`. Follows at most
    /// `steps` re-exports.
    fn defining(&self, path: &ModulePath, steps: usize) -> Option<ModulePath> {
        let length = (1..=path.len())
            .rev()
            .find(|&length| self.modules.contains_key(&path[..length]))?;
        let (module, rest) = (path[..length].to_vec(), &path[length..]);
        let Some(name) = rest.first() else {
            return Some(module);
        };
        let import = self.modules[&module]
            .imports
            .iter()
            .find(|import| import.name == *name);
        match import {
            // A re-export may itself name a re-export: the chain is as long as the
            // folders are deep.
            Some(import) if steps > 0 => {
                let mut target = self.absolute(&module, &import.target)?;
                target.extend_from_slice(&rest[1..]);
                self.defining(&target, steps - 1)
            }
            _ => Some(module),
        }
    }

    /// Returns the modules that `module` uses.
    fn uses(&self, module: &ModulePath) -> BTreeSet<ModulePath> {
        const STEPS: usize = 8;
        let names = &self.modules[module];
        let named: BTreeSet<&str> = names.paths.iter().map(|path| &*path[0]).collect();
        let imported = names
            .imports
            .iter()
            .filter(|import| !import.passed_on || named.contains(&*import.name))
            .map(|import| &import.target);
        let paths = names.paths.iter().filter(|path| path.len() > 1);
        let mut uses: BTreeSet<ModulePath> = imported
            .chain(paths)
            .filter_map(|path| self.absolute(module, path))
            .filter_map(|path| self.defining(&path, STEPS))
            .collect();
        uses.remove(module);
        uses
    }

    /// Returns all modules that each module uses, directly or through others.
    fn reached(&self) -> BTreeMap<ModulePath, BTreeSet<ModulePath>> {
        let uses: BTreeMap<_, _> = self
            .modules
            .keys()
            .map(|module| (module.clone(), self.uses(module)))
            .collect();
        let reach = |start: &ModulePath| {
            let mut reached = BTreeSet::new();
            let mut next: Vec<&ModulePath> = uses[start].iter().collect();
            while let Some(module) = next.pop() {
                if reached.insert(module.clone()) {
                    next.extend(&uses[module]);
                }
            }
            reached
        };
        self.modules
            .keys()
            .map(|module| (module.clone(), reach(module)))
            .collect()
    }
}

#[test]
fn no_two_files_use_each_other() {
    let files = sources::all();
    let tree = Tree::new(&files);
    let reached = tree.reached();
    let mut loops = BTreeSet::new();
    for (module, others) in &reached {
        if others.contains(module) {
            let members = others
                .iter()
                .filter(|other| reached[*other].contains(module));
            let members: Vec<String> = members.map(|member| member.join("::")).collect();
            loops.insert(members.join(" <-> "));
        }
    }
    let loops: Vec<String> = loops.into_iter().collect();
    assert_few(&loops, 0);
}

/// Returns the height of a module's layer in `politesse`; a higher layer may use a lower
/// one.
fn layer(module: &[String]) -> Option<u8> {
    let layer = match &**module.get(1)? {
        "config" => 1,
        "serve" | "cli" => 2,
        _ => return None,
    };
    (module[0] == "politesse").then_some(layer)
}

// The map in ARCHITECTURE.md.
#[test]
fn a_layer_uses_only_the_layers_below_it() {
    let tree = Tree::new(&sources::all());
    let mut upwards = Vec::new();
    for module in tree.modules.keys() {
        for used in tree.uses(module) {
            let (Some(own), Some(other)) = (layer(module), layer(&used)) else {
                continue;
            };
            let beside = module[1] == used[1] || (own, other) == (2, 2);
            if own <= other && !beside {
                upwards.push(format!("{} uses {}", module.join("::"), used.join("::")));
            }
        }
    }
    assert_few(&upwards, 0);
}

// The other tests would also pass if no import were found.
#[test]
fn imports_are_found() {
    let files = sources::all();
    let tree = Tree::new(&files);
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<ModulePath>();
    assert!(
        tree.uses(&module("politesse_proxy::exchange"))
            .contains(&module("politesse_proxy::annotate"))
    );
}
