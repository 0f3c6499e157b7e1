//! DO and CALL: code whose statements the gateway does not see.
//!
//! Owns: that it runs on node 1, where what it touches is asked for ([`super::super::unseen`]).
//! Never: runs a part of it elsewhere, or analyses it.

use crate::plan::Planned;

pub(super) fn plan_do() -> Planned {
    Planned::at_home("the block's code runs inside node 1")
}

pub(super) fn plan_call() -> Planned {
    Planned::at_home("the procedure's code runs inside node 1")
}
