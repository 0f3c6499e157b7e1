//! Which files of a crate use which, which of these uses run up its layers, and which files use each other in
//! a circle.
//!
//! Owns: reading `use` declarations and paths out of sources, and holding them against layers.
//! Never: knows which crate has which layers; ARCHITECTURE.md says that, and `tests/tests/architecture.rs`
//! reads it there.
//! Start reading at [`upward`] and [`circles`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::mem;
use std::path::{Path, PathBuf};
use std::slice;

use anyhow::{Context, Result, ensure};
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, Macro, UseTree, Visibility};

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

/// Files that use each other in a circle.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Circle {
    /// The files, below `src`.
    pub files: BTreeSet<PathBuf>,
    /// What ties them: a file, where in it, and the file that is used there.
    pub ties: BTreeSet<(PathBuf, usize, PathBuf)>,
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a circle of {} files", self.files.len())?;
        for (file, line, used) in &self.ties {
            write!(f, "\n    {}:{line} uses {}", file.display(), used.display())?;
        }
        Ok(())
    }
}

/// A path from the crate's root: `["session", "extended"]`.
type CratePath = Vec<String>;

/// The sources of a crate, read.
struct Sources {
    /// The file of each module, below the root.
    files: BTreeMap<CratePath, PathBuf>,
    /// What each file names, beside the crate's root and what is for tests.
    named: BTreeMap<CratePath, Vec<Named>>,
    /// What a module has only taken from another to show it under its own name, and where it is from.
    shown: BTreeMap<CratePath, CratePath>,
}

/// A path that a file names.
struct Named {
    path: CratePath,
    line: usize,
    /// It is named only to be shown on: `pub use`.
    is_shown: bool,
}

/// A use of one file by another.
struct Use<'a> {
    from: &'a [String],
    line: usize,
    to: &'a [String],
    is_shown: bool,
}

impl Sources {
    fn below(root: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        let mut left = vec![root.to_owned()];
        while let Some(dir) = left.pop() {
            for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
                let path = entry?.path();
                if path.is_dir() {
                    left.push(path);
                } else if path.extension().is_some_and(|it| it == "rs") {
                    let file = path.strip_prefix(root)?;
                    files.insert(module_of(file), file.to_owned());
                }
            }
        }
        ensure!(!files.is_empty(), "{} has no sources", root.display());
        let (mut named, mut shown) = (BTreeMap::new(), BTreeMap::new());
        for (module, file) in &files {
            let text = fs::read_to_string(root.join(file))?;
            let parsed = syn::parse_file(&text).with_context(|| file.display().to_string())?;
            let mut paths = Paths { module, files: &files, named: Vec::new(), shown: &mut shown };
            paths.visit_file(&parsed);
            let paths = paths.named;
            let is_free = module.is_empty() || module.last().is_some_and(|name| name == "tests");
            if !is_free {
                named.insert(module.clone(), paths);
            }
        }
        Ok(Self { files, named, shown })
    }

    /// The module that a path from the crate's root leads to or into, by whatever name it goes.
    fn find(&self, path: &[String]) -> Option<&[String]> {
        let mut path = path.to_owned();
        // Each turn follows one `pub use`; no crate shows a thing through more of them.
        for _ in 0..8 {
            let shown = (1..=path.len()).find_map(|length| {
                let home = self.shown.get(&path[..length])?;
                Some([home, &path[length..]].concat())
            });
            match shown {
                Some(home) => path = home,
                None => break,
            }
        }
        let lengths = (0..=path.len()).rev();
        lengths.into_iter().find_map(|length| {
            self.files.get_key_value(&path[..length]).map(|(module, _)| module.as_slice())
        })
    }

    /// Every use of one file by another. The crate's own root uses all and is used by all: it does not count.
    fn uses(&self) -> impl Iterator<Item = Use<'_>> {
        self.named.iter().flat_map(move |(from, named)| {
            named.iter().filter_map(move |Named { path, line, is_shown }| {
                let to = self.find(path).filter(|to| !to.is_empty() && to != from)?;
                Some(Use { from, line: *line, to, is_shown: *is_shown })
            })
        })
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

/// All paths of one file that begin with `crate`, `self`, `super` or a module within it, from the crate's root.
struct Paths<'a> {
    module: &'a [String],
    files: &'a BTreeMap<CratePath, PathBuf>,
    named: Vec<Named>,
    shown: &'a mut BTreeMap<CratePath, CratePath>,
}

impl Paths<'_> {
    fn absolute(&self, path: &[String]) -> Option<CratePath> {
        let first = path.first()?;
        let mut at = match first.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => self.module.to_vec(),
            _ => {
                let within = [self.module, slice::from_ref(first)].concat();
                return self
                    .files
                    .contains_key(&within)
                    .then(|| [&within, path.get(1..).unwrap_or_default()].concat());
            }
        };
        for name in path {
            match name.as_str() {
                "crate" | "self" => (),
                "super" => drop(at.pop()),
                name => at.push(name.to_owned()),
            }
        }
        Some(at)
    }

    /// A name that a `use` takes; `shown` is the name that others find it by.
    fn note(&mut self, path: &[String], line: usize, shown: Option<&str>) {
        let Some(path) = self.absolute(path) else { return };
        if let Some(name) = shown {
            let name = [self.module, &[name.to_owned()]].concat();
            if name != path {
                self.shown.insert(name, path.clone());
            }
        }
        self.named.push(Named { path, line, is_shown: shown.is_some() });
    }

    fn note_tree(&mut self, tree: &UseTree, before: &mut CratePath, line: usize, is_shown: bool) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.note_tree(&path.tree, before, line, is_shown);
                before.pop();
            }
            UseTree::Name(leaf) => {
                let name = leaf.ident.to_string();
                self.note_leaf(&name, before, line, is_shown.then_some(&name));
            }
            UseTree::Rename(leaf) => {
                let shown = leaf.rename.to_string();
                self.note_leaf(&leaf.ident.to_string(), before, line, is_shown.then_some(&shown));
            }
            UseTree::Glob(_) => self.note(before, line, None),
            UseTree::Group(group) => {
                group.items.iter().for_each(|it| self.note_tree(it, before, line, is_shown));
            }
        }
    }

    /// A path within code; a single name there is a variable or an item of the file, never a module.
    fn note_called(&mut self, path: &[String], line: usize) {
        if 1 < path.len() {
            self.note(path, line, None);
        }
    }

    /// Paths within a macro's call: names with `::` between them.
    fn note_tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut line, mut colons) = (CratePath::new(), 0, 0);
        for token in tokens {
            match token {
                TokenTree::Punct(it) if it.as_char() == ':' => colons += 1,
                TokenTree::Ident(it) if colons == 2 && !path.is_empty() => {
                    path.push(it.to_string());
                    colons = 0;
                }
                other => {
                    self.note_called(&mem::take(&mut path), line);
                    colons = 0;
                    match other {
                        TokenTree::Ident(it) => {
                            line = it.span().start().line;
                            path.push(it.to_string());
                        }
                        TokenTree::Group(it) => self.note_tokens(it.stream()),
                        _ => (),
                    }
                }
            }
        }
        self.note_called(&path, line);
    }

    fn note_leaf(&mut self, name: &str, before: &mut CratePath, line: usize, shown: Option<&str>) {
        before.push(name.to_owned());
        self.note(before, line, shown);
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
            let is_shown = !matches!(item.vis, Visibility::Inherited);
            self.note_tree(&item.tree, &mut Vec::new(), item.span().start().line, is_shown);
        }
    }

    /// `pub(super)` and `pub(in crate::room)` say who may use an item, and use nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<_> = path.segments.iter().map(|it| it.ident.to_string()).collect();
        self.note_called(&names, path.span().start().line);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        self.note_tokens(call.tokens.clone());
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
    let sources = Sources::below(root)?;
    let mut empty: BTreeSet<_> = layers.iter().flatten().map(String::as_str).collect();
    for module in sources.named.keys() {
        let (_, room) = room_of(layers, module)
            .with_context(|| format!("{} is in no room", sources.files[module].display()))?;
        empty.remove(room);
    }
    ensure!(empty.is_empty(), "these rooms have no file: {empty:?}");
    let mut found = BTreeSet::new();
    for Use { from: user, line, to: used, .. } in sources.uses() {
        let rooms = room_of(layers, user).zip(room_of(layers, used));
        let Some(((layer, from), (below, to))) = rooms else { continue };
        if to != from && layer <= below {
            let (from, to) = (from.to_owned(), to.to_owned());
            found.insert(Upward { file: sources.files[user].clone(), line, from, to });
        }
    }
    Ok(found.into_iter().collect())
}

/// Every circle of files in the crate whose sources are below `root`. A face that only shows what its files
/// have (`pub use`) uses nothing; neither does the crate's root, nor what is compiled for tests.
///
/// Errors: a file cannot be read.
pub fn circles(root: &Path) -> Result<Vec<Circle>> {
    let sources = Sources::below(root)?;
    let uses: Vec<_> = sources.uses().filter(|it| !it.is_shown).collect();
    let graph: DiGraphMap<_, ()> = uses.iter().map(|it| (it.from, it.to)).collect();
    let circles = tarjan_scc(&graph).into_iter().filter(|files| 1 < files.len());
    let mut found: Vec<_> = circles
        .map(|files| {
            let file = |module: &[String]| sources.files[module].clone();
            let ties = uses.iter().filter(|it| files.contains(&it.from) && files.contains(&it.to));
            Circle {
                files: files.iter().map(|it| file(it)).collect(),
                ties: ties.map(|it| (file(it.from), it.line, file(it.to))).collect(),
            }
        })
        .collect();
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(text: &str) -> Layers {
        text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    }

    fn written(files: &[(&str, &str)]) -> Result<tempfile::TempDir> {
        let dir = tempfile::tempdir()?;
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().context("a folder")?)?;
            fs::write(path, text)?;
        }
        Ok(dir)
    }

    /// A crate with these files, and what runs up its layers.
    fn upward_in(files: &[(&str, &str)], layered: &str) -> Result<Vec<String>> {
        let dir = written(files)?;
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

    /// A crate with these files, and its circles.
    fn circles_in(files: &[(&str, &str)]) -> Result<Vec<String>> {
        let dir = written(files)?;
        Ok(circles(dir.path())?.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_circle_of_files_is_found_within_a_room_too() -> Result<()> {
        let files = [
            ("lib.rs", "mod room; pub use room::Face;"),
            ("room/mod.rs", "mod a;\nmod b;\nfn f() {\n    println!(\"{}\", a::called());\n}"),
            ("room/a.rs", "use super::b::Other;\nuse crate::Face;"),
            ("room/b.rs", "use crate::room::Face;"),
        ];
        let tied = "a circle of 3 files
    room/a.rs:1 uses room/b.rs
    room/a.rs:2 uses room/mod.rs
    room/b.rs:1 uses room/mod.rs
    room/mod.rs:4 uses room/a.rs";
        // The root's face leads to the room's file.
        assert_eq!(circles_in(&files)?, [tied]);
        Ok(())
    }

    #[test]
    fn a_face_over_files_is_no_circle() -> Result<()> {
        let files = [
            ("lib.rs", "mod room;"),
            ("room/mod.rs", "mod a;\nmod b;\npub use a::Shown;\npub use b::Deep as Known;"),
            ("room/a.rs", "use super::Known;\nuse super::super::room::Known as Again;"),
            ("room/b.rs", "#[cfg(test)]\nmod tests { use super::super::Shown; }"),
        ];
        assert!(circles_in(&files)?.is_empty());
        let tied = [files[0], files[1], files[2], ("room/b.rs", "use super::Shown;")];
        let circle = "a circle of 2 files
    room/a.rs:1 uses room/b.rs
    room/a.rs:2 uses room/b.rs
    room/b.rs:1 uses room/a.rs";
        assert_eq!(circles_in(&tied)?, [circle]);
        Ok(())
    }

    #[test]
    fn a_variable_called_like_a_file_is_no_use_of_it() -> Result<()> {
        let files = [
            ("lib.rs", "mod room;"),
            ("room/mod.rs", "mod a;\nfn f(a: u8) -> u8 {\n    a + 1\n}"),
            ("room/a.rs", "use super::f;"),
        ];
        assert!(circles_in(&files)?.is_empty());
        Ok(())
    }
}
