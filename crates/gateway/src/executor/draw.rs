//! Which of several ways to one answer is taken where tests want any of them.
//!
//! Owns: the draw, where [`Switches::any_way`](tutti_configuration::Switches) is on: by the statement's text and the session's
//! `tutti.draw`, so that a session that sets this takes another way with the same statement.
//! Never: draws where the switch is off, as it is wherever a gateway serves anybody.
//! Start reading at [`Executor::drawn`].

use std::fmt::Display;

use crate::executor::Executor;

/// The session's setting.
const DRAW: &str = "tutti.draw";

impl Executor<'_> {
    /// One of so many choices, each as often; `None`: what they cost decides.
    pub(super) fn drawn(
        &self,
        question: &str,
        statement: &impl Display,
        choices: usize,
    ) -> Option<usize> {
        if !self.tx.registry.cluster.config.switches.any_way || choices == 0 {
            return None;
        }
        let seed = self.tx.settings.kept_sql(DRAW).unwrap_or_default();
        // FNV-1a, whose last step leaves its lowest bits to the last byte: the upper half has all of them.
        let bytes = question.bytes().chain(seed.bytes()).chain(statement.to_string().into_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        usize::try_from(hash >> 32).ok().map(|upper| upper % choices)
    }
}
