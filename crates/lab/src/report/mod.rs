//! What a study says: a page of text, tables and plots, for the terminal and for a browser.
//!
//! Owns: the parts of a page, how they look, and the comparison of two directories.
//! Never: measures, nor knows what a figure means; a study makes its page of its runs.
//! Start reading at [`Page`].

use std::fmt::Write as _;

use tutti_lab::table;

pub(crate) mod compare;
mod figures;
pub(crate) mod html;
pub(crate) mod plot;

pub(crate) use crate::median::median;
pub(crate) use figures::figure;

/// A page about the runs of a directory.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub title: String,
    /// What was asked, and the answer, in a few sentences.
    pub lead: String,
    pub blocks: Vec<Block>,
    /// Files beside it that are not behind a plot: a name and what is in it.
    pub files: Vec<(String, String)>,
}

/// A part of a page.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    Heading(String),
    Text(String),
    /// As it stands, with equally wide letters.
    Plain(String),
    Table(Table),
    Plot(plot::Chart),
}

/// Figures in lines and columns.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// What it shows, with units.
    pub caption: String,
    pub columns: Vec<String>,
    pub lines: Vec<Vec<String>>,
}

impl Table {
    /// Of names and lines with equally many fields.
    pub(crate) fn block(caption: &str, columns: &[&str], lines: Vec<Vec<String>>) -> Block {
        let columns = columns.iter().map(|name| (*name).to_owned()).collect();
        Block::Table(Self { caption: caption.to_owned(), columns, lines })
    }
}

impl Page {
    /// As it is printed: what is drawn is left out.
    pub(crate) fn in_terminal(&self) -> String {
        let mut text = format!("\n{}\n\n{}\n", self.title, wrapped(&self.lead));
        for block in &self.blocks {
            match block {
                Block::Heading(heading) => writeln!(text, "\n{heading}"),
                Block::Text(sentences) => writeln!(text, "\n{}", wrapped(sentences)),
                Block::Plain(text_of) => writeln!(text, "\n{text_of}"),
                Block::Table(Table { caption, columns, lines }) => {
                    let all: Vec<_> = std::iter::once(columns).chain(lines).cloned().collect();
                    writeln!(text, "\n{}\n{}", wrapped(caption), table::layout(&all))
                }
                Block::Plot(_) => Ok(()),
            }
            .expect("writing to a string does not fail");
        }
        text
    }
}

/// Lines of at most 100 characters, broken between words.
fn wrapped(text: &str) -> String {
    const WIDTH: usize = 100;
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a line from the beginning");
        if !line.is_empty() && WIDTH < line.chars().count() + 1 + word.chars().count() {
            lines.push(word.to_owned());
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.join("\n")
}
