//! Programs that try to connect: psql and psycopg, both by libpq, and what they are told.
//!
//! Owns: connection strings, and that no program asks a person for a password.

use std::process::Command;

use anyhow::{Context, Result, bail};
use tutti_tests::programs;

/// How one knocks.
#[derive(Clone)]
pub struct Knock {
    port: u16,
    options: Vec<(String, String)>,
    password: String,
}

impl Knock {
    /// At a port of this machine, with no user yet.
    pub fn at(port: u16) -> Self {
        Self { port, options: Vec::new(), password: String::new() }
    }

    /// At another port, all else the same.
    pub fn at_port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// With this option of libpq instead of what it was.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.options.retain(|(known, _)| known != name);
        self.options.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Without TLS.
    pub fn plainly(self) -> Self {
        self.with("sslmode", "disable")
    }

    /// With another password.
    pub fn password(mut self, password: &str) -> Self {
        password.clone_into(&mut self.password);
        self
    }

    fn conninfo(&self) -> String {
        let mut text =
            format!("host=127.0.0.1 port={} dbname=postgres gssencmode=disable", self.port);
        for (name, value) in &self.options {
            text.push_str(&format!(" {name}='{value}'"));
        }
        // libpq reads files of the user's home unless told otherwise.
        if !self.options.iter().any(|(name, _)| name == "sslcert") {
            text.push_str(" sslcert='' sslkey=''");
        }
        text
    }
}

/// What a statement answers, by psql; the error is what psql was told.
pub fn psql(knock: &Knock, sql: &str) -> Result<String> {
    let psql = programs::postgresql_program("psql").context("needs psql")?;
    let mut command = Command::new(psql);
    command
        .args(["-X", "-w", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql])
        .arg(knock.conninfo())
        .env("PGPASSWORD", &knock.password)
        .env("PGCONNECT_TIMEOUT", "30");
    let output = programs::output(&mut command)?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What a script in Python answers, given an open psycopg connection `connection`.
pub fn psycopg(knock: &Knock, script: &str) -> Result<String> {
    let python = programs::python_with_psycopg().context("needs psycopg")?;
    let program = format!(
        "import os, sys, threading, time, psycopg\n\
         connection = psycopg.connect(sys.argv[1], password=os.environ['KNOCK'], autocommit=True)\n\
         {script}\n"
    );
    let mut command = Command::new(python);
    command.args(["-c", &program]).arg(knock.conninfo()).env("KNOCK", &knock.password);
    Ok(programs::run(&mut command)?.trim().to_owned())
}

/// The words of a refusal.
pub fn refusal(answer: Result<String>) -> String {
    match answer {
        Ok(answer) => format!("let in: {answer}"),
        Err(error) => format!("{error:#}"),
    }
}

/// Fails unless the refusal contains these words.
#[track_caller]
pub fn assert_refused(answer: Result<String>, words: &str) {
    let refusal = refusal(answer);
    assert!(refusal.contains(words), "expected {words:?}, got: {refusal}");
}
