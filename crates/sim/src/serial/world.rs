//! A small world as a text: which transactions do what on which of two nodes, and what may go wrong.
//!
//! Owns: the grammar, both ways.
//! Start reading at [`World`].
//!
//! ```text
//! rx1 wy2 | sp ry2 rb wx1 | auto rx1u1 | ro rx1 ry2 ; kill relief error restart
//! ```
//!
//! Transactions stand between bars. `rx1` reads row x of node 1, `rx1u1` two rows in one statement, `wy2`
//! writes row y of node 2, `sp` is SAVEPOINT, `rb` ROLLBACK TO it. `auto`: its one statement stands outside
//! of a block. `ro`: it is declared READ ONLY. After the semicolon: how often a sentinel is killed,
//! a sentinel is relieved, a ticket fails, a node restarts.

use std::fmt;
use std::str::FromStr;

use super::ssi::Row;

/// One statement of a client's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Statement {
    /// These rows of the node.
    Read(usize, Vec<Row>),
    /// This row of the node, which it reads too.
    Write(usize, Row),
    /// SAVEPOINT.
    Savepoint,
    /// ROLLBACK TO SAVEPOINT.
    RollbackTo,
}

/// What one client wants.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Script {
    /// One statement outside of a transaction block.
    pub is_auto: bool,
    /// Declared READ ONLY.
    pub is_read_only: bool,
    /// In order; COMMIT follows.
    pub statements: Vec<Statement>,
}

/// Everything that an exploration begins with.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct World {
    /// One for each client.
    pub scripts: Vec<Script>,
    /// How often a sentinel may be killed.
    pub kills: u8,
    /// How often a sentinel may be relieved.
    pub reliefs: u8,
    /// How often the insertion of a ticket may fail.
    pub errors: u8,
    /// How often a node may restart.
    pub restarts: u8,
    /// Names of each node's rows.
    names: [Vec<char>; 2],
}

impl World {
    /// How many rows the node has.
    pub fn rows(&self, node: usize) -> u8 {
        u8::try_from(self.names[node].len()).unwrap_or(u8::MAX)
    }

    fn row(&mut self, name: char, node: char) -> Result<(usize, Row), String> {
        let node = match node {
            '1' => 0,
            '2' => 1,
            _ => return Err(format!("there are nodes 1 and 2, and no {node}")),
        };
        let names = &mut self.names[node];
        let index = names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        Ok((node, Row(u8::try_from(index).map_err(|_| "too many rows")?)))
    }

    fn statement(&mut self, word: &str) -> Result<Statement, String> {
        match word {
            "sp" => return Ok(Statement::Savepoint),
            "rb" => return Ok(Statement::RollbackTo),
            _ => (),
        }
        let letters: Vec<_> = word.chars().collect();
        let mut rows = Vec::new();
        let mut at = None;
        for pair in letters[1..].chunks(2) {
            let [name, node] = pair else { return Err(format!("not a row in {word}")) };
            let (node, row) = self.row(*name, *node)?;
            if at.replace(node).is_some_and(|before| before != node) {
                return Err(format!("{word} is over two nodes"));
            }
            rows.push(row);
        }
        match (letters[0], at, &rows[..]) {
            ('r', Some(node), _) => Ok(Statement::Read(node, rows)),
            ('w', Some(node), [row]) => Ok(Statement::Write(node, *row)),
            _ => Err(format!("not a statement: {word}")),
        }
    }
}

impl FromStr for World {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut world = Self::default();
        let (scripts, faults) = text.split_once(';').unwrap_or((text, ""));
        for text in scripts.split('|') {
            let mut script = Script::default();
            for word in text.split_whitespace() {
                match word {
                    "auto" => script.is_auto = true,
                    "ro" => script.is_read_only = true,
                    word => script.statements.push(world.statement(word)?),
                }
            }
            if script.is_auto && script.statements.len() != 1 {
                return Err("outside of a block there is one statement".to_owned());
            }
            let writes = |statement: &Statement| matches!(statement, Statement::Write(..));
            if script.is_read_only && script.statements.iter().any(writes) {
                return Err("it is READ ONLY".to_owned());
            }
            world.scripts.push(script);
        }
        for word in faults.split_whitespace() {
            match word {
                "kill" => world.kills += 1,
                "relief" => world.reliefs += 1,
                "error" => world.errors += 1,
                "restart" => world.restarts += 1,
                _ => return Err(format!("nothing is called {word}")),
            }
        }
        Ok(world)
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |node: usize, row: Row| self.names[node][usize::from(row.0)];
        for (index, script) in self.scripts.iter().enumerate() {
            let mut words = Vec::new();
            if script.is_auto {
                words.push("auto".to_owned());
            }
            if script.is_read_only {
                words.push("ro".to_owned());
            }
            words.extend(script.statements.iter().map(|statement| match statement {
                Statement::Read(node, rows) => {
                    let rows = rows.iter().map(|row| format!("{}{}", name(*node, *row), node + 1));
                    format!("r{}", rows.collect::<String>())
                }
                Statement::Write(node, row) => format!("w{}{}", name(*node, *row), node + 1),
                Statement::Savepoint => "sp".to_owned(),
                Statement::RollbackTo => "rb".to_owned(),
            }));
            write!(f, "{}{}", if index == 0 { "" } else { " | " }, words.join(" "))?;
        }
        let faults = [
            ("kill", self.kills),
            ("relief", self.reliefs),
            ("error", self.errors),
            ("restart", self.restarts),
        ];
        let faults = faults.iter().flat_map(|(word, times)| (0..*times).map(move |_| *word));
        let faults: Vec<_> = faults.collect();
        if !faults.is_empty() {
            write!(f, " ; {}", faults.join(" "))?;
        }
        Ok(())
    }
}
