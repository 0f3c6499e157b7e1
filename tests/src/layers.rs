//! Which files of a crate use which, and which of these uses run up its layers.
//!
//! Owns: reading `use` declarations and paths out of sources, and holding them against layers.
//! Never: knows which crate has which layers; ARCHITECTURE.md says that, and `tests/tests/architecture.rs`
//! reads it there.
//! Start reading at [`upward`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, UseTree, Visibility};

/// Layers from the ground up; each a set of rooms: files without `.rs`, or folders, by their path below the
/// crate's `src`. A room may use those of lower layers, and itself.
pub type Layers = Vec<Vec<String>>;

/// A use that no layering allows.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Upward {
    /// The file, below `src`.
    pub file: PathBuf,
    /// Where in it.
    pub line: usize,
    /// Its room.
    pub from: String,
    /// The room that it uses, of the same layer or a higher one.
    pub to: String,
}

impl fmt::Display for Upward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, from, to } = self;
        write!(f, "{}:{line}: {from} uses {to}", file.display())
    }
}

/// The modules of a crate, by their paths: `["session", "extended"]`.
struct Modules(BTreeMap<Vec<String>, PathBuf>);

impl Modules {
    fn below(root: &Path) -> Result<Self> {
        let mut found = BTreeMap::new();
        let mut left = vec![root.to_owned()];
        while let Some(dir) = left.pop() {
            for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
                let path = entry?.path();
                if path.is_dir() {
                    left.push(path);
                } else if path.extension().is_some_and(|it| it == "rs") {
                    found.insert(module_of(path.strip_prefix(root)?), path);
                }
            }
        }
        ensure!(!found.is_empty(), "{} has no sources", root.display());
        Ok(Self(found))
    }

    /// The module that a path from the crate's root leads to or into.
    fn find(&self, mut path: &[String]) -> Option<&[String]> {
        loop {
            if let Some((module, _)) = self.0.get_key_value(path) {
                return Some(module);
            }
            path = path.split_last()?.1;
        }
    }
}

/// `session/extended/mod.rs` is `session::extended`; `lib.rs` is the crate's root.
fn module_of(file: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        file.with_extension("").iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if names.last().is_some_and(|name| ["mod", "lib", "main"].contains(&&**name)) {
        names.pop();
    }
    names
}

/// All paths of one file that begin with `crate`, `self` or `super`, from the crate's root, with their lines.
struct Paths<'a> {
    module: &'a [String],
    found: Vec<(Vec<String>, usize)>,
}

impl Paths<'_> {
    fn note(&mut self, path: &[String], line: usize) {
        let mut at = match path.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => self.module.to_vec(),
            _ => return,
        };
        for name in path {
            match name.as_str() {
                "crate" | "self" => (),
                "super" => drop(at.pop()),
                name => at.push(name.to_owned()),
            }
        }
        self.found.push((at, line));
    }

    fn note_tree(&mut self, tree: &UseTree, before: &mut Vec<String>, line: usize) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.note_tree(&path.tree, before, line);
                before.pop();
            }
            UseTree::Name(name) => self.note_leaf(&name.ident.to_string(), before, line),
            UseTree::Rename(name) => self.note_leaf(&name.ident.to_string(), before, line),
            UseTree::Glob(_) => self.note(before, line),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.note_tree(tree, before, line));
            }
        }
    }

    fn note_leaf(&mut self, name: &str, before: &mut Vec<String>, line: usize) {
        before.push(name.to_owned());
        self.note(before, line);
        before.pop();
    }
}

/// What is compiled for tests only may use anything.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|it| {
        it.path().is_ident("cfg")
            && it.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.note_tree(&item.tree, &mut Vec::new(), item.span().start().line);
        }
    }

    /// `pub(super)` and `pub(in crate::room)` say who may use an item, and use nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<_> = path.segments.iter().map(|it| it.ident.to_string()).collect();
        self.note(&names, path.span().start().line);
        visit::visit_path(self, path);
    }
}

/// The room that a module is in, and its layer.
fn room_of<'a>(layers: &'a Layers, module: &[String]) -> Option<(usize, &'a str)> {
    let path = module.join("/");
    let holds = |room: &str| {
        path.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let rooms = layers.iter().enumerate();
    let rooms = rooms.flat_map(|(layer, rooms)| rooms.iter().map(move |room| (layer, &**room)));
    // The narrowest: a file of a folder may be a room of its own.
    rooms.filter(|(_, room)| holds(room)).max_by_key(|(_, room)| room.len())
}

/// Every use in the crate whose sources are below `root` that runs up these layers, or across one. The crate's
/// own root may use everything; files named `tests.rs` too.
///
/// Errors: a file cannot be read, or is in no room; a room has no file.
pub fn upward(root: &Path, layers: &Layers) -> Result<Vec<Upward>> {
    let modules = Modules::below(root)?;
    let mut empty: BTreeSet<_> = layers.iter().flatten().map(String::as_str).collect();
    let mut found = BTreeSet::new();
    for (module, file) in &modules.0 {
        let is_free = module.is_empty() || module.last().is_some_and(|name| name == "tests");
        if is_free {
            continue;
        }
        let (layer, from) =
            room_of(layers, module).with_context(|| format!("{} is in no room", file.display()))?;
        empty.remove(from);
        let text = fs::read_to_string(file)?;
        let parsed = syn::parse_file(&text).with_context(|| file.display().to_string())?;
        let mut paths = Paths { module, found: Vec::new() };
        paths.visit_file(&parsed);
        for (path, line) in paths.found {
            let Some(used) = modules.find(&path).filter(|used| !used.is_empty()) else { continue };
            let Some((below, to)) = room_of(layers, used) else { continue };
            if to != from && layer <= below {
                let file = file.strip_prefix(root)?.to_owned();
                let (from, to) = (from.to_owned(), to.to_owned());
                found.insert(Upward { file, line, from, to });
            }
        }
    }
    ensure!(empty.is_empty(), "these rooms have no file: {empty:?}");
    Ok(found.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(text: &str) -> Layers {
        text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    }

    /// A crate with these files, and what runs up its layers.
    fn upward_in(files: &[(&str, &str)], layered: &str) -> Result<Vec<String>> {
        let dir = tempfile::tempdir()?;
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().context("a folder")?)?;
            fs::write(path, text)?;
        }
        Ok(upward(dir.path(), &layers(layered))?.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_use_that_runs_up_is_found_however_it_is_written() -> Result<()> {
        let files = [
            ("lib.rs", "mod ground; mod middle; mod top;"),
            ("ground.rs", "use crate::{middle::{inner::Thing, Other}, ground::Own};\n"),
            ("middle/visible.rs", "pub(in crate::top) fn f() {}\npub(super) struct S;"),
            ("middle/mod.rs", "mod inner;\nfn f() {\n    crate::top::call();\n}\n"),
            (
                "middle/inner.rs",
                "use super::super::top;\nuse super::Other;\nuse crate::ground::Own;",
            ),
            ("top.rs", "use crate::middle::Other;\n#[cfg(test)]\nmod tests { use crate::top; }"),
        ];
        let found = upward_in(&files, "ground\nmiddle\ntop")?;
        assert_eq!(
            found,
            [
                "ground.rs:1: ground uses middle",
                "middle/inner.rs:1: middle uses top",
                "middle/mod.rs:3: middle uses top",
            ]
        );
        Ok(())
    }

    #[test]
    fn rooms_of_one_layer_do_not_know_each_other() -> Result<()> {
        let files = [("lib.rs", ""), ("a.rs", "use crate::b::B;"), ("b.rs", "")];
        assert_eq!(upward_in(&files, "a b")?, ["a.rs:1: a uses b"]);
        assert!(upward_in(&files, "b\na")?.is_empty());
        Ok(())
    }

    #[test]
    fn a_file_without_a_room_and_a_room_without_a_file_are_refused() {
        let files = [("lib.rs", ""), ("a.rs", "")];
        assert!(upward_in(&files, "b").is_err());
        assert!(upward_in(&files, "a\nb").is_err());
    }
}
